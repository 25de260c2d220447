// SPDX-License-Identifier: Apache-2.0
// Records which version of every tensor has arrived, and when.
//
//   arrivals.Arrived(tensor, 7);                         // any thread
//   auto when = arrivals.Wait(tensor, 7, timeout);       // the time of arrival, maybe long ago
//
// Thread-safe.
#ifndef SLIMPS_TOOLS_BENCH_CLUSTER_ARRIVALS_H_
#define SLIMPS_TOOLS_BENCH_CLUSTER_ARRIVALS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace slimps {

class Arrivals final {
 public:
  // Begins with version `first` of every tensor.
  Arrivals(size_t tensors, int64_t first) : newest_(tensors, {first, SteadyTime::InfinitePast()}) {}

  void Arrived(size_t tensor, int64_t version) {
    MutexLock lock(&mutex_);
    newest_[tensor] = {version, MachineClock()->Now()};
    changed_.NotifyAll();
  }

  // Makes every Wait return `why` from now on. If called again, the first error stays.
  void Fail(const absl::Status& why) {
    MutexLock lock(&mutex_);
    failed_.Update(why);
    changed_.NotifyAll();
  }

  // Waits until that version or a newer one is there, and returns when the newest one arrived.
  // DeadlineExceeded: it did not arrive within `timeout`.
  // The error of Fail, if it was called.
  [[nodiscard]] absl::StatusOr<SteadyTime> Wait(size_t tensor, int64_t version,
                                                absl::Duration timeout) {
    MutexLock lock(&mutex_);
    const bool came = changed_.Await(&mutex_, timeout, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !failed_.ok() || newest_[tensor].version >= version;
    });
    if (!failed_.ok()) return failed_;
    if (came) return newest_[tensor].at;
    return absl::DeadlineExceededError(absl::StrCat("tensor ", tensor, ": waited for version ",
                                                    version, ", has ", newest_[tensor].version));
  }

 private:
  struct Newest {
    int64_t version = 0;
    SteadyTime at;
  };

  Mutex mutex_;
  CondVar changed_;
  std::vector<Newest> newest_ ABSL_GUARDED_BY(mutex_);
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CLUSTER_ARRIVALS_H_
