// SPDX-License-Identifier: Apache-2.0
// Estimates how far this node's wall clock is ahead of the scheduler's. It uses requests that the
// scheduler answers with its time, as NTP does. Pure. Thread-compatible.
//
//      sent                      received      ours       ahead = (sent + received) / 2 - theirs,
//        \                        /                        wrong by at most (received - sent) / 2
//         `------ theirs --------'             the scheduler's
//
// Only the exchange with the shortest round trip counts. If the clocks may be equal (0 lies within
// the possible error, as it always does on one machine), they are taken as equal.
//
//   if (offset.Add(sent, theirs, received)) ...     // offset.ahead() is better now
#ifndef SLIMPS_PROTO_NET_MEMBERSHIP_CLOCK_OFFSET_H_
#define SLIMPS_PROTO_NET_MEMBERSHIP_CLOCK_OFFSET_H_

#include "absl/time/time.h"

namespace slimps {

class ClockOffset final {
 public:
  // Adds an exchange. Returns true if it is the best one so far. Ignores one that was answered
  // before it was sent.
  bool Add(absl::Time sent, absl::Time theirs, absl::Time received) {
    const absl::Duration error = (received - sent) / 2;
    if (error < absl::ZeroDuration() || error >= error_) return false;
    error_ = error;
    ahead_ = sent + error - theirs;
    return true;
  }
  // Returns by how much our clock is ahead.
  absl::Duration ahead() const {
    return absl::AbsDuration(ahead_) <= error_ ? absl::ZeroDuration() : ahead_;
  }
  // Returns how far ahead() may be wrong. Infinite before the first exchange.
  absl::Duration possible_error() const { return error_; }

 private:
  absl::Duration ahead_;
  absl::Duration error_ = absl::InfiniteDuration();
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_MEMBERSHIP_CLOCK_OFFSET_H_
