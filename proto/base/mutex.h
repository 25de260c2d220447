// SPDX-License-Identifier: Apache-2.0
// A mutex that both clang's thread-safety analysis and ThreadSanitizer understand.
//
// std::mutex carries no annotations. absl::Mutex does, but Debian's Abseil is not built for
// ThreadSanitizer. ThreadSanitizer then cannot see its locking and reports false races. Hence this
// thin wrapper.
//
//   MutexLock lock(&mutex_);
//   while (queue_.empty()) ready_.Wait(&mutex_);
//
// The three classes are thread-safe.
#ifndef SLIMPS_PROTO_BASE_MUTEX_H_
#define SLIMPS_PROTO_BASE_MUTEX_H_

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/simulation/system_threads.h"

namespace slimps {

class ABSL_LOCKABLE Mutex final {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }

  // Takes the lock if it is free, without waiting. Returns true if it did.
  // REQUIRES: this thread does not hold it.
  [[nodiscard]] bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }

  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  SystemMutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock final {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// Wake-ups may be spurious, so wait in a loop that tests the condition.
class CondVar final {
 public:
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<SystemMutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // Waits for a notification. Returns false if `timeout` has passed in steady time, so a step of
  // the wall clock changes nothing. A timeout over a day, also an infinite one, counts as a day:
  // wait in a loop.
  bool WaitFor(Mutex* mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    // Callers loop, so a day is as good as for ever, and no clock overflows on it.
    const absl::Duration bounded = std::min(timeout, absl::Hours(24));
    std::unique_lock<SystemMutex> lock(mutex->mutex_, std::adopt_lock);
    const std::cv_status status = condition_.wait_for(lock, absl::ToChronoNanoseconds(bounded));
    lock.release();
    return status == std::cv_status::no_timeout;
  }

  // Waits until `condition()` is true. Returns false if it is not within `timeout`.
  template <typename Predicate>
  bool Await(Mutex* mutex, absl::Duration timeout, Predicate condition)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const SteadyTime deadline = MachineClock()->Now() + timeout;
    while (!condition()) {
      const absl::Duration left = deadline - MachineClock()->Now();
      if (left <= absl::ZeroDuration()) return false;
      WaitFor(mutex, left);
    }
    return true;
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  SystemCondition condition_;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_MUTEX_H_
