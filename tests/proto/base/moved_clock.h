// SPDX-License-Identifier: Apache-2.0
// A clock that a test moves while other threads read it.
//
//   MovedClock clock;
//   clock.Advance(timeout);
//   ASSERT_TRUE(clock.AwaitReadings(1));   // some thread has seen the new time
#ifndef SLIMPS_TESTS_PROTO_BASE_MOVED_CLOCK_H_
#define SLIMPS_TESTS_PROTO_BASE_MOVED_CLOCK_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace slimps {

// Thread-safe.
class MovedClock final : public Clock {
 public:
  SteadyTime Now() const override {
    MutexLock lock(&mutex_);
    ++readings_;
    read_.NotifyAll();
    return now_;
  }
  absl::Time WallNow() const override { return absl::UnixEpoch(); }
  void Advance(absl::Duration by) {
    MutexLock lock(&mutex_);
    now_ += by;
  }

  // Waits until Now() has been called `count` times more. Returns false if that takes too long.
  bool AwaitReadings(uint64_t count) const {
    MutexLock lock(&mutex_);
    const uint64_t until = readings_ + count;
    return read_.Await(&mutex_, absl::Seconds(30),
                       [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return readings_ >= until; });
  }

 private:
  mutable Mutex mutex_;
  mutable CondVar read_;
  mutable uint64_t readings_ ABSL_GUARDED_BY(mutex_) = 0;
  SteadyTime now_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_BASE_MOVED_CLOCK_H_
