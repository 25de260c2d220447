// SPDX-License-Identifier: Apache-2.0
#include "worker/plan/measuring_schedule.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <vector>

namespace slimps {
namespace {

// A round measures kSmallTensors tensors of a size up to kSmallBytes.
constexpr uint64_t kSmallBytes = 64 << 10;
constexpr size_t kSmallTensors = 4;
// What the profile may send raw, and pull raw, in steps' worth of bytes.
constexpr uint64_t kMaxRawSteps = 5;

size_t TensorsOf(uint64_t bytes) { return bytes <= kSmallBytes ? kSmallTensors : 1; }

// True if the profile, with tensors of these sizes, may measure `round` too. Rounds 3, 5, ... go
// raw. A measured pull comes twice. Repeats of small pushes are not counted.
bool IsWithinBudget(uint64_t round, const std::map<uint64_t, uint64_t>& counts,
                    const std::set<uint64_t>& sizes) {
  uint64_t step = 0, raw = 0;
  for (const auto& [bytes, count] : counts) {
    step += bytes * count;
    if (sizes.contains(bytes)) raw += 2 * bytes * std::min<uint64_t>(count, TensorsOf(bytes));
  }
  return (round - 1) / 2 * raw <= kMaxRawSteps * step;
}

}  // namespace

void MeasuringSchedule::Start(bool profiles, uint64_t remeasure_every) {
  profiling_ = profiles;
  pairs_ = MeasuredRounds(remeasure_every, profiles ? pre_steps_ + 2 : 1);
}

void MeasuringSchedule::See(const TensorPlan& tensor) {
  if (!pairs_.on() && !profiling_) return;
  std::vector<KeyId>& keys = tensors_[tensor.bytes()];
  const auto place = std::ranges::lower_bound(keys, tensor.key.id());
  if (place != keys.end() && *place == tensor.key.id()) return;
  keys.insert(place, tensor.key.id());
  ++counts_[tensor.bytes()];
}

bool MeasuringSchedule::IsChosen(const TensorPlan& tensor, uint64_t round,
                                 std::optional<uint64_t> threshold) const {
  const auto keys = tensors_.find(tensor.bytes());
  if (keys == tensors_.end()) return false;
  const uint64_t pair = pairs_.PairOf(round);
  const std::set<uint64_t> sizes = ChooseSizes(counts_, threshold, pair);
  if (!sizes.contains(tensor.bytes())) return false;
  if (pair == 0 && !IsWithinBudget(round, counts_, sizes)) return false;
  const size_t wanted = TensorsOf(tensor.bytes());
  const size_t there = keys->second.size();
  const auto place = std::ranges::lower_bound(keys->second, tensor.key.id());
  if (place == keys->second.end() || *place != tensor.key.id()) return false;
  const auto index = static_cast<size_t>(place - keys->second.begin());
  return (index + there - pair % there) % there < wanted;
}

}  // namespace slimps
