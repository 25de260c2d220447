// SPDX-License-Identifier: Apache-2.0
// The seam of time. Steady time decides: deadlines, liveness, measurements. Wall time is for logs
// and traces, which people and other machines read. It may step at any moment, so nothing is
// decided by it.
//
//   const SteadyTime deadline = clock->Now() + timeout;
//   while (!done() && clock->Now() < deadline) changed.WaitFor(&mutex, deadline - clock->Now());
//
// A SteadyTime is a type of its own, so comparing one with a wall time (absl::Time) does not
// compile. Nothing else reads a clock (tests/repo checks this). Clocks are passed in, so that a
// test or a simulation can move them.
#ifndef SLIMPS_PROTO_BASE_CLOCK_H_
#define SLIMPS_PROTO_BASE_CLOCK_H_

#include <compare>
#include <ostream>

#include "absl/time/time.h"

namespace slimps {

// A moment on a clock of one machine that never steps. Only differences have a meaning: the epoch
// is arbitrary (the machine's start). So a SteadyTime is never sent to another machine nor kept for
// another run. Thread-compatible.
class SteadyTime final {
 public:
  constexpr SteadyTime() = default;  // the epoch
  static constexpr SteadyTime AtEpochPlus(absl::Duration since_epoch) {
    return SteadyTime(since_epoch);
  }
  // They stay the same whatever is added, as in Abseil.
  static constexpr SteadyTime InfiniteFuture() { return SteadyTime(absl::InfiniteDuration()); }
  static constexpr SteadyTime InfinitePast() { return SteadyTime(-absl::InfiniteDuration()); }

  SteadyTime& operator+=(absl::Duration by) {
    since_epoch_ += by;
    return *this;
  }
  SteadyTime& operator-=(absl::Duration by) {
    since_epoch_ -= by;
    return *this;
  }
  friend SteadyTime operator+(SteadyTime time, absl::Duration by) { return time += by; }
  friend SteadyTime operator+(absl::Duration by, SteadyTime time) { return time += by; }
  friend SteadyTime operator-(SteadyTime time, absl::Duration by) { return time -= by; }
  friend absl::Duration operator-(SteadyTime a, SteadyTime b) {
    return a.since_epoch_ - b.since_epoch_;
  }
  friend constexpr bool operator==(SteadyTime a, SteadyTime b) {
    return a.since_epoch_ == b.since_epoch_;
  }
  friend constexpr std::strong_ordering operator<=>(SteadyTime a, SteadyTime b) {
    if (a.since_epoch_ < b.since_epoch_) return std::strong_ordering::less;
    return a.since_epoch_ == b.since_epoch_ ? std::strong_ordering::equal
                                            : std::strong_ordering::greater;
  }
  friend std::ostream& operator<<(std::ostream& out, SteadyTime time) {
    return out << "steady " << time.since_epoch_;
  }

 private:
  explicit constexpr SteadyTime(absl::Duration since_epoch) : since_epoch_(since_epoch) {}

  absl::Duration since_epoch_;
};

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual SteadyTime Now() const = 0;
  virtual absl::Time WallNow() const = 0;
};

// The machine's clocks: CLOCK_MONOTONIC and CLOCK_REALTIME. Thread-safe.
class RealClock final : public Clock {
 public:
  SteadyTime Now() const override;
  absl::Time WallNow() const override;
};

// Returns the clock to use where no other is passed in: the default of options, programs and tests.
// Never destroyed.
const Clock* MachineClock();

// Converts steady times to wall times by one reading of both clocks. A later step of the wall clock
// does not show.
struct WallAnchor {
  SteadyTime steady;
  absl::Time wall;

  absl::Time At(SteadyTime time) const { return wall + (time - steady); }
};

WallAnchor ReadAnchor(const Clock& clock);

// A clock that only a test moves. Thread-compatible.
class FakeClock final : public Clock {
 public:
  SteadyTime Now() const override { return now_; }
  absl::Time WallNow() const override { return wall_; }
  // Lets time go by on both clocks.
  void Advance(absl::Duration by) {
    now_ += by;
    wall_ += by;
  }
  // Sets the wall clock forward or back.
  void StepWall(absl::Duration by) { wall_ += by; }

 private:
  SteadyTime now_;
  absl::Time wall_ = absl::UnixEpoch();
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_CLOCK_H_
