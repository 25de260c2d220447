// Which items wait for an answer, when to send one again under the same ticket, and when to give it
// up. Pure: the caller brings the clock, sends, and keeps the items.
//
//   SLIMPS_RETURN_IF_ERROR(tracker.Add(ticket, bytes, now + timeout, now));
//   ... on a reply:    if (!tracker.OnAnswer(ticket)) return;       // a late duplicate
//   ... at NextWake(): RetryTracker::Due due = tracker.TakeDue(now);
#ifndef SLIMPS_PROTO_NET_RETRY_TRACKER_H_
#define SLIMPS_PROTO_NET_RETRY_TRACKER_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace slimps {

struct RetryOptions {
  absl::Duration first_interval = absl::Seconds(1);  // from Add to the first resend
  double backoff = 2.0;                              // each later interval is this much longer
  absl::Duration max_interval = absl::Seconds(30);
  size_t max_items = size_t{1} << 20;
  size_t max_bytes = size_t{4} << 30;
};

// Thread-compatible.
class RetryTracker final {
 public:
  struct Due {
    std::vector<uint64_t> resend;   // still tracked, ascending by time due
    std::vector<uint64_t> expired;  // deadline passed: no longer tracked
  };

  explicit RetryTracker(RetryOptions options = {}) : options_(options) {}

  // ResourceExhausted: too many items or bytes in flight. AlreadyExists: the ticket is in flight.
  [[nodiscard]] absl::Status Add(uint64_t ticket, size_t bytes, SteadyTime deadline,
                                 SteadyTime now);
  // False: not in flight (never was, answered before, or expired).
  bool OnAnswer(uint64_t ticket);
  [[nodiscard]] Due TakeDue(SteadyTime now);
  // It has not been sent: it is due again at `until`, not later than its deadline, and the intervals after that begin with
  // the first. Not in flight: nothing happens.
  void Postpone(uint64_t ticket, SteadyTime until);
  // When TakeDue has something to say. InfiniteFuture: nothing is in flight.
  [[nodiscard]] SteadyTime NextWake() const;

  size_t items_in_flight() const { return entries_.size(); }
  size_t bytes_in_flight() const { return bytes_; }

 private:
  struct Entry {
    size_t bytes = 0;
    SteadyTime deadline;
    SteadyTime wake;  // the earlier of the next resend and the deadline; its place in wakes_
    absl::Duration interval;
  };

  // Allocates nothing.
  void WakeAt(uint64_t ticket, Entry& entry, SteadyTime wake);

  const RetryOptions options_;
  std::unordered_map<uint64_t, Entry> entries_;
  std::set<std::pair<SteadyTime, uint64_t>> wakes_;
  size_t bytes_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_RETRY_TRACKER_H_
