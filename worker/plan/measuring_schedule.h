// SPDX-License-Identifier: Apache-2.0
// MeasuringSchedule: which rounds are measured, and which tensors in each of them.
//
//   round    3 .. pre_steps             the profile: some tensors
//   later    two of remeasure_every     a pair (compress/policy/measured_rounds.h): some tensors
//
// Both measure one tensor of each chosen size, or a few small ones: they cost little more than
// start-up time. Each pair takes the next tensors of the size. The profile sends raw at most five
// steps' worth of bytes, and pulls raw at most as much: where the chosen tensors are so large a
// share of the model, it ends before round pre_steps.
//
// Pure. Thread-compatible: CompressionPlan's mutex guards it.
#ifndef SLIMPS_WORKER_PLAN_MEASURING_SCHEDULE_H_
#define SLIMPS_WORKER_PLAN_MEASURING_SCHEDULE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "compress/policy/measured_rounds.h"
#include "worker/tensor/key_table.h"

namespace slimps {

class MeasuringSchedule final {
 public:
  // Measures nothing until Start.
  explicit MeasuringSchedule(uint64_t pre_steps) : pre_steps_(pre_steps) {}

  // Measures pairs every `remeasure_every` rounds; 0: never. With `profiles`, the profile comes
  // first.
  void Start(bool profiles, uint64_t remeasure_every);
  void EndProfile() { profiling_ = false; }

  uint64_t pre_steps() const { return pre_steps_; }
  // True until the profile has ended.
  bool profiling() const { return profiling_; }
  const MeasuredRounds& pairs() const { return pairs_; }

  // Notes that the tensor is pushed.
  void See(const TensorPlan& tensor);

  // Returns how many tensors there are, by a tensor's bytes.
  const std::map<uint64_t, uint64_t>& counts() const { return counts_; }

  // True if the profile, or the pair, that `round` belongs to measures this tensor. `threshold` is
  // the one in force.
  bool IsChosen(const TensorPlan& tensor, uint64_t round, std::optional<uint64_t> threshold) const;

 private:
  const uint64_t pre_steps_;
  bool profiling_ = false;
  MeasuredRounds pairs_ = MeasuredRounds(0, 0);
  // The tensors pushed so far, ascending, and how many there are, both by a tensor's bytes.
  std::map<uint64_t, std::vector<KeyId>> tensors_;
  std::map<uint64_t, uint64_t> counts_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PLAN_MEASURING_SCHEDULE_H_
