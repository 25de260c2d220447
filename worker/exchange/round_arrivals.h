// SPDX-License-Identifier: Apache-2.0
// RoundArrivals: counts the tensors of one round as they arrive on background threads.
//
//   auto arrivals = std::make_shared<RoundArrivals>(tensors);
//   store->PullAsync(key, out, priority, [arrivals](absl::Status s) { arrivals->Arrived(s); });
//   status = arrivals->Wait(deadline);    // the first error, or DeadlineExceeded
//
// Thread-safe.
#ifndef SLIMPS_WORKER_EXCHANGE_ROUND_ARRIVALS_H_
#define SLIMPS_WORKER_EXCHANGE_ROUND_ARRIVALS_H_

#include <algorithm>
#include <cstddef>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace slimps {

class RoundArrivals final {
 public:
  RoundArrivals(size_t expected, const Clock* clock) : clock_(clock), missing_(expected) {}

  // Notes one arrival. Reads the clock before it wakes the waiter, so that last_arrival() lies
  // within the wait.
  void Arrived(const absl::Status& status) {
    MutexLock lock(&mutex_);
    if (status_.ok()) status_ = status;
    --missing_;
    last_arrival_ = clock_->Now();
    if (missing_ == 0) all_here_.NotifyAll();
  }

  // Waits until all tensors are here, and returns the first error.
  // DeadlineExceeded: some are missing at `deadline`, and there was no error before.
  [[nodiscard]] absl::Status Wait(SteadyTime deadline) {
    MutexLock lock(&mutex_);
    while (missing_ > 0) {
      const absl::Duration left = deadline - clock_->Now();
      if (left <= absl::ZeroDuration()) {
        if (!status_.ok()) return status_;
        return absl::DeadlineExceededError(
            absl::StrCat("weights of a round: ", missing_, " tensors have not arrived in time"));
      }
      all_here_.WaitFor(&mutex_, left);
    }
    return status_;
  }

  // Returns the time of the last arrival; InfinitePast before the first one.
  SteadyTime last_arrival() const {
    MutexLock lock(&mutex_);
    return last_arrival_;
  }

 private:
  const Clock* const clock_;
  mutable Mutex mutex_;
  CondVar all_here_;  // signalled when missing_ == 0
  size_t missing_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  SteadyTime last_arrival_ ABSL_GUARDED_BY(mutex_) = SteadyTime::InfinitePast();
};

// Returns the part of a round's communication during which the training thread did not wait.
inline absl::Duration OverlapOf(SteadyTime first_push, SteadyTime last_arrival,
                                absl::Duration waited) {
  if (first_push == SteadyTime::InfiniteFuture() || last_arrival <= first_push) {
    return absl::ZeroDuration();
  }
  return std::max(absl::ZeroDuration(), last_arrival - first_push - waited);
}

}  // namespace slimps

#endif  // SLIMPS_WORKER_EXCHANGE_ROUND_ARRIVALS_H_
