// SPDX-License-Identifier: Apache-2.0
#include "worker/push/unacknowledged_pushes.h"

namespace slimps {

uint64_t UnacknowledgedPushes::Add(KeyId key, size_t partitions) {
  OfKey& pushes = keys_[key];
  pushes.partitions[pushes.turn] += partitions;
  size_ += partitions;
  return pushes.turn;
}

bool UnacknowledgedPushes::Await(KeyId key, Waiter waiter) {
  const auto found = keys_.find(key);
  if (found == keys_.end() || found->second.partitions.empty()) return false;
  found->second.waiting.emplace_back(found->second.turn + 1, std::move(waiter));
  ++found->second.turn;  // later pushes have a later turn, so this waiter ignores them
  return true;
}

UnacknowledgedPushes::Waiters UnacknowledgedPushes::Take(KeyId key, uint64_t turn,
                                                         size_t partitions) {
  OfKey& pushes = keys_.at(key);
  size_ -= partitions;
  const auto open = pushes.partitions.find(turn);
  if ((open->second -= partitions) == 0) pushes.partitions.erase(open);
  Waiters ready;
  Waiters& waiting = pushes.waiting;
  auto end = waiting.begin();
  while (end != waiting.end() &&
         (pushes.partitions.empty() || pushes.partitions.begin()->first >= end->first)) {
    ++end;
  }
  ready.splice(ready.end(), waiting, waiting.begin(), end);
  return ready;
}

UnacknowledgedPushes::Waiters UnacknowledgedPushes::TakeWaiters() {
  Waiters all;
  for (auto& [key, pushes] : keys_) all.splice(all.end(), pushes.waiting);
  return all;
}

}  // namespace slimps
