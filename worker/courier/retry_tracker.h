// SPDX-License-Identifier: Apache-2.0
// Tracks which items wait for an answer, when to send one again under the same ticket, and when to
// give it up. Pure: the caller brings the clock, sends, and keeps the items.
//
//   tracker.Add(ticket, now + timeout, now);
//   ... on a reply:    if (!tracker.OnAnswer(ticket)) return;       // a late duplicate
//   ... now and then:  RetryTracker::Due due = tracker.TakeDue(now);
#ifndef SLIMPS_WORKER_COURIER_RETRY_TRACKER_H_
#define SLIMPS_WORKER_COURIER_RETRY_TRACKER_H_

#include <cstdint>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace slimps {

struct RetryOptions {
  absl::Duration first_interval = absl::Seconds(1);  // from Add to the first resend
  double backoff = 2.0;                              // ratio of each interval to the one before
  absl::Duration max_interval = absl::Seconds(30);
};

// Thread-compatible.
class RetryTracker final {
 public:
  struct Due {
    std::vector<uint64_t> resend;   // still tracked, in the order in which they came due
    std::vector<uint64_t> expired;  // their deadline has passed; no longer tracked
  };

  explicit RetryTracker(RetryOptions options = {}) : options_(options) {}

  // Starts to track an item. REQUIRES: the ticket is not in flight.
  void Add(uint64_t ticket, SteadyTime deadline, SteadyTime now);

  // Stops tracking an answered item. Returns false if it is not in flight: it never was, was
  // answered before, or has expired.
  bool OnAnswer(uint64_t ticket);

  // Returns the items to resend and those to give up at `now`.
  [[nodiscard]] Due TakeDue(SteadyTime now);

  // Puts off an item that has not been sent: it is due at `until` or at its deadline, whichever is
  // earlier. Its intervals start again with the first. Does nothing if the ticket is not in flight.
  void Postpone(uint64_t ticket, SteadyTime until);

 private:
  struct Entry {
    SteadyTime deadline;
    SteadyTime wake;  // the earlier of the next resend and the deadline; its key in wakes_
    absl::Duration interval;
  };

  // Moves the item's entry in wakes_. Allocates nothing, so it cannot fail.
  void WakeAt(uint64_t ticket, Entry& entry, SteadyTime wake);

  const RetryOptions options_;
  std::unordered_map<uint64_t, Entry> entries_;
  std::set<std::pair<SteadyTime, uint64_t>> wakes_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_COURIER_RETRY_TRACKER_H_
