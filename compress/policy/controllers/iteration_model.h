// SPDX-License-Identifier: Apache-2.0
// Predicts an iteration's time from what each tensor's push and pull take, and finds the levels
// that make it least within an error budget. Thread-safe: all functions are pure.
//
// The pipeline, for one worker while all workers use the link:
//
//   gradient ready -> encode (one of encode_cores) -> push link -> decode, all workers' payloads
//                                                  -> pull link -> weight there
//
// Each link carries one tensor at a time, in the order in which they come: push_ns_per_byte * bytes
// each. A link's start-up time delays its tensor and nothing else, since the next one follows
// while an answer is on its way. Decoding delays a tensor, too: servers decode side by side. The
// iteration ends when the last weight is there, and not before compute_ns.
//
//   TimedProblem problem{.link = report.link, .compute_ns = report.compute_ns, ...};
//   const Allocation fastest = Fastest(problem, {uniform});
//   PredictIterationNs(problem, fastest);
#ifndef SLIMPS_COMPRESS_POLICY_CONTROLLERS_ITERATION_MODEL_H_
#define SLIMPS_COMPRESS_POLICY_CONTROLLERS_ITERATION_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compress/policy/allocation/allocation.h"
#include "compress/policy/controllers/report.h"

namespace slimps {

// What one level of one tensor takes.
struct TimedLevel {
  double error = 0;
  double push_bytes = 0, pull_bytes = 0;
  double encode_ns = 0, decode_ns = 0;
};

struct TimedTensor {
  double ready_ns = 0;
  std::vector<TimedLevel> levels;  // at least one
};

struct TimedProblem {
  std::vector<TimedTensor> tensors;
  double budget = 0;
  LinkReport link;
  double compute_ns = 0;
  uint32_t encode_cores = 1;
  uint32_t workers = 1;
};

// Returns the tensor's levels with the times and bytes of `report`'s. `none`: raw is the last one,
// with no error. Answers come as the report says.
enum class RawLevel { kNotAmongThem, kLast };
TimedTensor TimedTensorOf(const Report& report, const TensorReport& tensor, RawLevel raw);

// True if the report tells what a byte of a push and of a pull take.
bool KnowsLink(const Report& report);

double PredictIterationNs(const TimedProblem& problem, const Allocation& allocation);

// Returns the allocation with the least predicted time, of all that were tried; of equally fast
// ones, that with the fewest bytes. It tries:
// - each of `starts`
// - L-GreCo's dynamic programme over link and encoding times. Bytes of tensors that are ready
//   before a certain moment count nothing, since they travel while other gradients are still being
//   made; kMoments moments are tried, and encoding counting more or less
// - from the fastest of these, changes of single tensors
// REQUIRES: `starts` is not empty, and all of them are within the budget.
Allocation Fastest(const TimedProblem& problem, std::span<const Allocation> starts);

inline constexpr size_t kMoments = 8;

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_CONTROLLERS_ITERATION_MODEL_H_
