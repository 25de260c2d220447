// SPDX-License-Identifier: Apache-2.0
// What the workers tell a controller about a window of rounds, and how their reports are merged.
// Plain data; this folder sees no message. Thread-safe: all functions are pure.
//
//   Report report{.worker = 0, .round = 200, .rounds = 100, .iteration_ns = 4e7};
//   report.tensors.push_back({.tensor = {.key = 5, .elements = 4096, .rows = 64, .columns = 64},
//                             .ready_ns = 1e6, .input_norm2 = 3.5,
//                             .levels = {{.codec = "topk:ratio=0.01", .error_norm2 = 2.1,
//                                         .payload_bytes = 320, .encode_ns = 9e3}}});
//   auto job = MergeReports(reports_of_all_workers);
//
// Times are in nanoseconds and 0 where they are not known. Squares are those of fp32 elements,
// summed over a whole tensor: a worker that looks at a sample of its blocks scales the sums up.
#ifndef SLIMPS_COMPRESS_POLICY_CONTROLLERS_REPORT_H_
#define SLIMPS_COMPRESS_POLICY_CONTROLLERS_REPORT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/key.h"

namespace slimps {

// What a tensor is; the same on all workers and in all rounds.
struct TensorInfo {
  KeyId key = 0;
  uint64_t elements = 0;
  // The tensor as a matrix: rows * columns = elements. A tensor with fewer than two dimensions has
  // 0 rows and 0 columns, and no low-rank codec is a candidate for it.
  uint64_t rows = 0, columns = 0;

  uint64_t raw_bytes() const { return elements * sizeof(float); }

  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

// What one codec would do to x, the sum of one tensor's gradients since the worker's last report,
// without feedback.
struct LevelReport {
  std::string codec;           // one of the controller's candidates, as it was written there
  double error_norm2 = 0;      // |x - decode(encode(x))|^2
  uint64_t payload_bytes = 0;  // all partitions and all phases of one push, per round
  double encode_ns = 0;        // at the worker, per round
  double decode_ns = 0;        // at the server, per round and worker
};

struct TensorReport {
  TensorInfo tensor;

  // Mean time from an iteration's start to the push of this gradient.
  double ready_ns = 0;
  // Bytes of the answer to a pull of this tensor. 0: as many as raw, or as the push with
  // Report::pulls_follow_pushes.
  uint64_t pull_bytes = 0;

  double input_norm2 = 0;           // |x|^2
  std::vector<LevelReport> levels;  // in the order of the controller's candidates
};

// How a worker got on with one step of the ladders in force (decision.h).
struct StepReport {
  uint64_t rounds = 0;      // rounds that this step was chosen for
  double iteration_ns = 0;  // trimmed mean time of their iterations
  double gain = 0;          // |C(x)|^2 / |x|^2, smoothed (step_choice.h); raw: 1
};

// The link as one worker sees it, while all workers use it: the same in both directions, since only
// pushes are timed. 0: not known.
struct LinkReport {
  double startup_ns = 0, ns_per_byte = 0;
};

struct Report {
  uint32_t worker = 0;   // rank
  uint32_t workers = 1;  // how many workers' reports were merged into this one
  uint64_t round = 0;    // the newest round covered
  uint64_t rounds = 0;   // how many rounds are covered, up to and with `round`
  double iteration_ns = 0;
  double learning_rate = 0;          // of `round`; 0: not known
  bool pulls_follow_pushes = false;  // answers are coded like the pushes that they answer
  LinkReport link;
  std::vector<StepReport> steps;      // by the number of the step; empty: no ladders
  std::vector<TensorReport> tensors;  // by rising key
};

// Merges the workers' reports of one window. Sums and means are taken in rank order, so the result
// does not depend on the order in which the reports came:
// - squares and rounds of steps are added up
// - bytes are the mean, rounded up
// - times and the link are trimmed means (robust.h) of the workers that know them
// - a step's time is the mean over its rounds; its gain, the mean of the workers that know it
// - the learning rate is that of the lowest rank that knows it; pulls_follow_pushes, that of the
//   lowest rank
// A tensor is kept if every worker reported it; a level, if every worker reported it.
// InvalidArgument: no report, a rank twice, rounds, shapes or numbers of steps that disagree, keys
// that do not rise, a codec twice in one tensor, or a number that is negative or not finite. The
// message names worker, key and what was expected.
[[nodiscard]] absl::StatusOr<Report> MergeReports(std::span<const Report> reports);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_CONTROLLERS_REPORT_H_
