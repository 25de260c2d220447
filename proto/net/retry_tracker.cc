// SPDX-License-Identifier: Apache-2.0
#include "proto/net/retry_tracker.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"

namespace slimps {

absl::Status RetryTracker::Add(uint64_t ticket, size_t bytes, SteadyTime deadline, SteadyTime now) {
  if (entries_.count(ticket) != 0) {
    return absl::AlreadyExistsError(absl::StrCat("ticket ", ticket, " is in flight already"));
  }
  if (entries_.size() >= options_.max_items) {
    return absl::ResourceExhaustedError(
        absl::StrCat(entries_.size(), " items in flight, at most ", options_.max_items));
  }
  if (bytes > options_.max_bytes - bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat(bytes_, " bytes in flight and ", bytes,
                                                     " more, at most ", options_.max_bytes));
  }
  const SteadyTime wake = std::min(deadline, now + options_.first_interval);
  wakes_.emplace(wake, ticket);
  entries_.emplace(ticket, Entry{bytes, deadline, wake, options_.first_interval});
  bytes_ += bytes;
  return absl::OkStatus();
}

bool RetryTracker::OnAnswer(uint64_t ticket) {
  const auto found = entries_.find(ticket);
  if (found == entries_.end()) return false;
  wakes_.erase({found->second.wake, ticket});
  bytes_ -= found->second.bytes;
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

SteadyTime RetryTracker::NextWake() const {
  return wakes_.empty() ? SteadyTime::InfiniteFuture() : wakes_.begin()->first;
}

}  // namespace slimps
