// SPDX-License-Identifier: Apache-2.0
// The machine's clock, which holds up threads that read it: so a test knows that several of them
// are at work at the same time.
//
//   clock.Arm(2);             // the next two readings wait
//   EXPECT_TRUE(clock.AwaitAll());
//   clock.Release();
#ifndef SLIMPS_TESTS_PROTO_BASE_HOLDING_CLOCK_H_
#define SLIMPS_TESTS_PROTO_BASE_HOLDING_CLOCK_H_

#include <pthread.h>

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace slimps {

// Thread-safe.
class HoldingClock final : public Clock {
 public:
  // Holds up threads of that name only.
  explicit HoldingClock(std::string_view thread) : thread_(thread) {}

  SteadyTime Now() const override {
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof(name));
    MutexLock lock(&mutex_);
    if (thread_ == name && to_hold_ > 0) {
      --to_hold_;
      changed_.NotifyAll();
      changed_.Await(&mutex_, absl::Seconds(30), [this] { return released_; });
    }
    return MachineClock()->Now();
  }
  absl::Time WallNow() const override { return MachineClock()->WallNow(); }

  void Arm(int readings) {
    MutexLock lock(&mutex_);
    to_hold_ = readings;
  }
  // Returns false if fewer readings than it was armed for have begun in the end.
  bool AwaitAll() {
    MutexLock lock(&mutex_);
    return changed_.Await(&mutex_, absl::Seconds(20), [this] { return to_hold_ == 0; });
  }
  void Release() {
    MutexLock lock(&mutex_);
    released_ = true;
    changed_.NotifyAll();
  }

 private:
  const std::string thread_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  mutable int to_hold_ = 0;
  bool released_ = false;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_BASE_HOLDING_CLOCK_H_
