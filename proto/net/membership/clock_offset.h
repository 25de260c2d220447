// How far this node's wall clock is ahead of the scheduler's, from requests that the scheduler answers with its time, as NTP
// has it:
//
//      sent                      received      ours       ahead = (sent + received) / 2 - theirs,
//        \                        /                        wrong by at most (received - sent) / 2
//         `------ theirs --------'             the scheduler's
//
// The exchange with the shortest round trip counts. Where nothing speaks against one clock (0 lies within the possible
// error, as always on one machine) the clocks are taken as equal. Thread-compatible. Pure.
#ifndef SLIMPS_PROTO_NET_MEMBERSHIP_CLOCK_OFFSET_H_
#define SLIMPS_PROTO_NET_MEMBERSHIP_CLOCK_OFFSET_H_

#include "absl/time/time.h"

namespace slimps {

class ClockOffset final {
 public:
  // Whether it is the best exchange so far. One that was answered before it was sent is ignored.
  bool Add(absl::Time sent, absl::Time theirs, absl::Time received) {
    const absl::Duration error = (received - sent) / 2;
    if (error < absl::ZeroDuration() || error >= error_) return false;
    error_ = error;
    ahead_ = sent + error - theirs;
    return true;
  }
  absl::Duration ahead() const {
    return absl::AbsDuration(ahead_) <= error_ ? absl::ZeroDuration() : ahead_;
  }
  // Infinite before the first exchange.
  absl::Duration possible_error() const { return error_; }

 private:
  absl::Duration ahead_;
  absl::Duration error_ = absl::InfiniteDuration();
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_MEMBERSHIP_CLOCK_OFFSET_H_
