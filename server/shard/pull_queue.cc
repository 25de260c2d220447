// SPDX-License-Identifier: Apache-2.0
#include "server/shard/pull_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"

namespace slimps {

absl::Status PullQueue::Add(WaitingPull&& pull) {
  size_t of_worker = 0;
  for (WaitingPull& other : waiting_) {
    if (other.origin.worker != pull.origin.worker) continue;
    if (other.item.id().ticket() == pull.item.id().ticket()) {
      pull.deadline = std::min(pull.deadline, other.deadline);
      other = std::move(pull);
      return absl::OkStatus();
    }
    ++of_worker;
  }
  if (of_worker >= kMaxPerWorker) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "worker ", pull.origin.worker, " has ", of_worker, " pulls of this partition waiting"));
  }
  waiting_.push_back(std::move(pull));
  return absl::OkStatus();
}

std::vector<WaitingPull> PullQueue::TakeIf(
    const std::function<bool(const WaitingPull&)>& predicate) {
  const auto taken = std::stable_partition(
      waiting_.begin(), waiting_.end(), [&](const WaitingPull& pull) { return !predicate(pull); });
  std::vector<WaitingPull> result(std::make_move_iterator(taken),
                                  std::make_move_iterator(waiting_.end()));
  waiting_.erase(taken, waiting_.end());
  return result;
}

std::vector<WaitingPull> PullQueue::TakeReady(uint64_t version, uint64_t slowest,
                                              uint64_t measured) {
  return TakeIf([&](const WaitingPull& pull) {
    return pull.item.min_version() <= (pull.item.norm() ? measured : version) &&
           pull.clock <= slowest;
  });
}

std::vector<WaitingPull> PullQueue::TakeExpired(SteadyTime now) {
  return TakeIf([&](const WaitingPull& pull) { return pull.deadline <= now; });
}

std::vector<WaitingPull> PullQueue::TakeAll() { return std::exchange(waiting_, {}); }

uint64_t PullQueue::HighestClock() const {
  uint64_t highest = 0;
  for (const WaitingPull& pull : waiting_) highest = std::max(highest, pull.clock);
  return highest;
}

SteadyTime PullQueue::NextDeadline() const {
  SteadyTime next = SteadyTime::InfiniteFuture();
  for (const WaitingPull& pull : waiting_) next = std::min(next, pull.deadline);
  return next;
}

}  // namespace slimps
