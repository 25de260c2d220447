#include "worker/unacknowledged_pushes.h"

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
  // Pushes from here on are of the next turn.
  found->second.waiting.emplace_back(++found->second.turn, std::move(waiter));
  return true;
}

std::vector<UnacknowledgedPushes::Waiter> UnacknowledgedPushes::Take(KeyId key, uint64_t turn,
                                                                     size_t partitions) {
  OfKey& pushes = keys_.at(key);
  size_ -= partitions;
  const auto open = pushes.partitions.find(turn);
  if ((open->second -= partitions) == 0) pushes.partitions.erase(open);
  std::vector<Waiter> ready;
  while (!pushes.waiting.empty() && (pushes.partitions.empty() ||
                                     pushes.partitions.begin()->first >= pushes.waiting[0].first)) {
    ready.push_back(std::move(pushes.waiting[0].second));
    pushes.waiting.pop_front();
  }
  return ready;
}

std::vector<UnacknowledgedPushes::Waiter> UnacknowledgedPushes::TakeWaiters() {
  std::vector<Waiter> all;
  for (auto& [key, pushes] : keys_) {
    for (auto& [turn, waiter] : pushes.waiting) all.push_back(std::move(waiter));
    pushes.waiting.clear();
  }
  return all;
}

}  // namespace slimps
