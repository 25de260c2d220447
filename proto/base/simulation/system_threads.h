// SPDX-License-Identifier: Apache-2.0
// The mutex and the condition variable below those of proto/base/mutex.h: the system's, or those of
// a simulation.
#ifndef SLIMPS_PROTO_BASE_SIMULATION_SYSTEM_THREADS_H_
#define SLIMPS_PROTO_BASE_SIMULATION_SYSTEM_THREADS_H_

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/time/time.h"
#include "proto/base/simulation/mutant.h"
#include "proto/base/simulation/simulation.h"

#ifdef SLIMPS_SIMULATION
namespace slimps::simulation {

// As std::mutex. Thread-safe.
class Mutex final {
 public:
  void lock() { Active() ? Lock(&owner_) : system_.lock(); }
  bool try_lock() { return Active() ? TryLock(&owner_) : system_.try_lock(); }
  void unlock() { Active() ? Unlock(&owner_) : system_.unlock(); }

 private:
  friend class Condition;
  std::mutex system_;  // of threads outside of a run
  int owner_ = 0;
};

// As std::condition_variable. Thread-safe.
class Condition final {
 public:
  void wait(std::unique_lock<Mutex>& lock) {
    Active() ? (void)WaitUntil(lock, absl::InfiniteDuration()) : system_.wait(lock);
  }
  std::cv_status wait_for(std::unique_lock<Mutex>& lock, std::chrono::nanoseconds timeout) {
    if (!Active()) return system_.wait_for(lock, timeout);
    const absl::Duration until = Now() + absl::FromChrono(timeout);
    return WaitUntil(lock, until) ? std::cv_status::no_timeout : std::cv_status::timeout;
  }
  void notify_one() { Active() ? Notify(&WakeOne) : system_.notify_one(); }
  void notify_all() { Active() ? Notify(&WakeAll) : system_.notify_all(); }

 private:
  bool WaitUntil(std::unique_lock<Mutex>& lock, absl::Duration until) {
    // No choice lies between the two: nobody can notify who does not wait yet.
    lock.mutex()->owner_ = 0;
    WakeAll(&lock.mutex()->owner_);
    const bool for_no_reason = Random() % 128 == 0;
    const bool woken = Block(this, "a condition", for_no_reason ? Now() : until) || for_no_reason;
    lock.mutex()->lock();
    return woken;
  }
  void Notify(void (*wake)(const void*)) {
    if (Is(Mutant::kNotificationLost) && Random() % 64 == 0) return;
    wake(this);
    Choose("notifies");
  }

  std::condition_variable_any system_;  // of threads outside of a run
};

}  // namespace slimps::simulation

namespace slimps {
using SystemMutex = simulation::Mutex;
using SystemCondition = simulation::Condition;
}  // namespace slimps
#else
namespace slimps {
using SystemMutex = std::mutex;
using SystemCondition = std::condition_variable;
}  // namespace slimps
#endif

#endif  // SLIMPS_PROTO_BASE_SIMULATION_SYSTEM_THREADS_H_
