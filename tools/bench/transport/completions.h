// SPDX-License-Identifier: Apache-2.0
// A queue of pulls that have ended, from the store's threads to the loop that pushes.
//
//   store->PullAsync(key, out, 0, [&](absl::Status status) { completions.Add(7, status); });
//   SLIMPS_ASSIGN_OR_RETURN(const size_t index, completions.Take());   // 7
#ifndef SLIMPS_TOOLS_BENCH_TRANSPORT_COMPLETIONS_H_
#define SLIMPS_TOOLS_BENCH_TRANSPORT_COMPLETIONS_H_

#include <cstddef>
#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"

namespace slimps {

// Thread-safe.
class Completions final {
 public:
  void Add(size_t index, absl::Status status) {
    MutexLock lock(&mutex_);
    ended_.push_back({index, std::move(status)});
    changed_.NotifyOne();
  }

  // Waits for the next pull that has ended and returns its index, or its error. No timeout is
  // needed: the store ends every pull within its deadline.
  [[nodiscard]] absl::StatusOr<size_t> Take() {
    MutexLock lock(&mutex_);
    while (ended_.empty()) changed_.Wait(&mutex_);
    const std::pair<size_t, absl::Status> next = std::move(ended_.front());
    ended_.pop_front();
    if (!next.second.ok()) return next.second;
    return next.first;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::pair<size_t, absl::Status>> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_TRANSPORT_COMPLETIONS_H_
