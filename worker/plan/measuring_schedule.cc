// SPDX-License-Identifier: Apache-2.0
#include "worker/plan/measuring_schedule.h"

#include <cstddef>
#include <iterator>

namespace slimps {
namespace {

// A pair of rounds measures kSmallTensors tensors of a size up to kSmallBytes.
constexpr uint64_t kSmallBytes = 64 << 10;
constexpr size_t kSmallTensors = 4;

}  // namespace

void MeasuringSchedule::Start(bool profiles, uint64_t remeasure_every) {
  profiling_ = profiles;
  pairs_ = MeasuredRounds(remeasure_every, profiles ? pre_steps_ + 2 : 1);
}

void MeasuringSchedule::See(const TensorPlan& tensor) {
  if ((!pairs_.on() && !profiling_) || !tensors_[tensor.bytes()].insert(tensor.key.id()).second)
    return;
  ++counts_[tensor.bytes()];
}

bool MeasuringSchedule::IsChosen(const TensorPlan& tensor, uint64_t round,
                                 std::optional<uint64_t> threshold) const {
  const auto keys = tensors_.find(tensor.bytes());
  if (keys == tensors_.end()) return false;
  const uint64_t pair = pairs_.PairOf(round);
  if (!ChooseSizes(counts_, threshold, pair).contains(tensor.bytes())) return false;
  const size_t wanted = tensor.bytes() <= kSmallBytes ? kSmallTensors : 1;
  const size_t there = keys->second.size();
  const auto index =
      static_cast<size_t>(std::distance(keys->second.begin(), keys->second.find(tensor.key.id())));
  return index < there && (index + there - pair % there) % there < wanted;
}

}  // namespace slimps
