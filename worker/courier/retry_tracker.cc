// SPDX-License-Identifier: Apache-2.0
#include "worker/courier/retry_tracker.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace slimps {

void RetryTracker::Add(uint64_t ticket, SteadyTime deadline, SteadyTime now) {
  const SteadyTime wake = std::min(deadline, now + options_.first_interval);
  // The entry comes first. If memory runs out between the two, TakeDue finds every wake's entry.
  entries_.emplace(ticket, Entry{deadline, wake, options_.first_interval});
  wakes_.emplace(wake, ticket);
}

bool RetryTracker::OnAnswer(uint64_t ticket) {
  const auto found = entries_.find(ticket);
  if (found == entries_.end()) return false;
  wakes_.erase({found->second.wake, ticket});
  entries_.erase(found);
  return true;
}

RetryTracker::Due RetryTracker::TakeDue(SteadyTime now) {
  Due due;
  const auto end = wakes_.upper_bound({now, std::numeric_limits<uint64_t>::max()});
  const auto most = static_cast<size_t>(std::distance(wakes_.begin(), end));
  due.resend.reserve(most);
  due.expired.reserve(most);
  while (!wakes_.empty() && wakes_.begin()->first <= now) {
    const uint64_t ticket = wakes_.begin()->second;
    Entry& entry = entries_.at(ticket);
    if (entry.deadline <= now) {
      due.expired.push_back(ticket);
      OnAnswer(ticket);
      continue;
    }
    due.resend.push_back(ticket);
    // Counted from `now`, not from when it was due: a caller that slept long sends each item once,
    // not once per interval.
    entry.interval = std::min(entry.interval * options_.backoff, options_.max_interval);
    entry.interval = std::max(entry.interval, absl::Milliseconds(1));
    WakeAt(ticket, entry, now + entry.interval);
  }
  return due;
}

void RetryTracker::Postpone(uint64_t ticket, SteadyTime until) {
  const auto found = entries_.find(ticket);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  entry.interval = options_.first_interval;
  WakeAt(ticket, entry, until);
}

void RetryTracker::WakeAt(uint64_t ticket, Entry& entry, SteadyTime wake) {
  auto waking = wakes_.extract({entry.wake, ticket});
  entry.wake = std::min(entry.deadline, wake);
  waking.value().first = entry.wake;
  wakes_.insert(std::move(waking));
}

}  // namespace slimps
