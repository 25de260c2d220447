// Time as a dependency, so that state machines are tested under a clock that the test moves.
#ifndef SLIMPS_PROTO_BASE_CLOCK_H_
#define SLIMPS_PROTO_BASE_CLOCK_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace slimps {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

class RealClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

// Thread-compatible: moved by the test alone.
class FakeClock final : public Clock {
 public:
  absl::Time Now() const override { return now_; }
  void Advance(absl::Duration by) { now_ += by; }

 private:
  absl::Time now_ = absl::UnixEpoch();
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_CLOCK_H_
