// SPDX-License-Identifier: Apache-2.0
#include "proto/net/shared/orphaned_loans.h"

#include <utility>

#include "absl/status/status.h"

namespace slimps {

OrphanedLoans& OrphanedLoans::OfProcess() {
  static OrphanedLoans* const loans = new OrphanedLoans();
  return *loans;
}

void OrphanedLoans::Keep(uint64_t pid, Payload payload) {
  std::vector<Payload> released;  // destroyed after the lock is released
  MutexLock lock(&mutex_);
  // First of all, because another process may have the number of one that has ended.
  released = TakeReleased();
  const absl::Status watched = watch_.Add(pid);
  if (watched.ok()) {
    loans_.emplace(pid, std::move(payload));
  } else if (absl::IsNotFound(watched)) {
    released.push_back(std::move(payload));
  } else {
    unwatched_.push_back(std::move(payload));
  }
}

void OrphanedLoans::Sweep() {
  std::vector<Payload> released;  // destroyed after the lock is released
  MutexLock lock(&mutex_);
  released = TakeReleased();
}

std::vector<Payload> OrphanedLoans::TakeReleased() {
  std::vector<Payload> released;
  for (const uint64_t pid : watch_.TakeEnded()) {
    const auto [begin, end] = loans_.equal_range(pid);
    for (auto it = begin; it != end; ++it) released.push_back(std::move(it->second));
    loans_.erase(begin, end);
  }
  return released;
}

size_t OrphanedLoans::size() const {
  MutexLock lock(&mutex_);
  return loans_.size() + unwatched_.size();
}

}  // namespace slimps
