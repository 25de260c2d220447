// SPDX-License-Identifier: Apache-2.0
// Predicts an iteration's time from what each tensor's push and pull take, and finds the levels
// that make it least within an error budget. Thread-safe: all functions are pure.
//
// The pipeline, for one worker while all workers use the link:
//
//   gradient ready -> encode -> push link -> decode, all workers' payloads
//                                -> pull link -> weight there
//
// Encoding, and the link in each direction, take one tensor at a time, in the order in which they
// come; the link takes ns_per_byte * bytes. Its start-up time delays a tensor and nothing else,
// since the next one follows while an answer is on its way. Decoding delays a tensor, too: servers
// decode side by side. The iteration ends when the last weight is there.
//
//   TimedProblem problem{.link = report.link, ...};
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
  uint32_t workers = 1;
};

// Returns the tensor's levels with the times and bytes of `report`'s. `none`: raw is the last one,
// with no error. Answers come as the report says.
enum class RawLevel { kNotAmongThem, kLast };
TimedTensor TimedTensorOf(const Report& report, const TensorReport& tensor, RawLevel raw);

// True if the report tells what a byte takes.
bool KnowsLink(const Report& report);

double PredictIterationNs(const TimedProblem& problem, const Allocation& allocation);

// Returns the allocation with the least predicted time, of all that were tried; of equally fast
// ones, that with the fewest bytes. It tries:
// - each of `starts`
// - one threshold for all tensors (OneThreshold) over link and encoding times. Bytes of tensors
//   that are ready before a certain moment count nothing, since they travel while other gradients
//   are still being made; kMoments moments are tried, and encoding counting more or less
// - for few tensors L-GreCo's dynamic programme, for each moment with the weight of encoding that
//   was fastest so far
// - from the fastest of these, changes of single tensors
// REQUIRES: `starts` is not empty, and all of them are within the budget.
Allocation Fastest(const TimedProblem& problem, std::span<const Allocation> starts);

inline constexpr size_t kMoments = 8;

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_CONTROLLERS_ITERATION_MODEL_H_
