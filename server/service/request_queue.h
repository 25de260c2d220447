// SPDX-License-Identifier: Apache-2.0
// Requests that wait for one thread, in order.
//
//   RequestQueue<Request> queue("requests of a snapshot");
//   while (auto requests = queue.AwaitUntil(due, &clock)) { ... }       // the thread
//   SLIMPS_RETURN_IF_ERROR(queue.Put(request));                    // others
//   queue.Stop(why);
//   thread.Join();
//   for (Request& request : queue.TakeRest()) ...                  // answer: why
#ifndef SLIMPS_SERVER_SERVICE_REQUEST_QUEUE_H_
#define SLIMPS_SERVER_SERVICE_REQUEST_QUEUE_H_

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/status_copy.h"

namespace slimps {

// Thread-safe.
template <typename Request>
class RequestQueue final {
 public:
  static constexpr size_t kMaxWaiting = 1024;

  // `what`: the requests' name in errors. REQUIRES: it outlives the object.
  explicit RequestQueue(const char* what) : what_(what) {}

  // Adds a request, and calls `start` if it is the first ever: before Stop, or never.
  // ResourceExhausted: kMaxWaiting of them wait. Stop's `why` after Stop.
  [[nodiscard]] absl::Status Put(
      Request request, absl::FunctionRef<void()> start = [] {}) {
    MutexLock lock(&mutex_);
    if (stopped_) return CopyUnshared(why_);
    if (waiting_.size() >= kMaxWaiting) {
      return absl::ResourceExhaustedError(absl::StrCat(
          waiting_.size(), " ", what_, " wait already, at most ", kMaxWaiting, " may"));
    }
    waiting_.push_back(std::move(request));
    if (!std::exchange(used_, true)) start();
    changed_.NotifyAll();
    return absl::OkStatus();
  }

  // Waits until there is a request, or Stop. Returns the requests and has none any more; nullopt
  // after Stop.
  std::optional<std::vector<Request>> Await() {
    MutexLock lock(&mutex_);
    while (!stopped_ && waiting_.empty()) changed_.Wait(&mutex_);
    if (stopped_) return std::nullopt;
    return std::exchange(waiting_, {});
  }

  // As Await, and ends when it is `due`, with the requests that there are.
  std::optional<std::vector<Request>> AwaitUntil(SteadyTime due, const Clock* clock) {
    MutexLock lock(&mutex_);
    while (!stopped_ && waiting_.empty() && clock->Now() < due) {
      changed_.WaitFor(&mutex_, due - clock->Now());
    }
    if (stopped_) return std::nullopt;
    return std::exchange(waiting_, {});
  }

  // Refuses requests from now on, and ends Await. The first `why` holds.
  void Stop(const absl::Status& why) {
    MutexLock lock(&mutex_);
    if (!stopped_) why_ = CopyUnshared(why);
    stopped_ = true;
    changed_.NotifyAll();
  }

  bool stopped() const {
    MutexLock lock(&mutex_);
    return stopped_;
  }

  // Stop's `why`. OK before.
  absl::Status why() const {
    MutexLock lock(&mutex_);
    return CopyUnshared(why_);
  }

  // Returns what Await did not, and has none any more.
  std::vector<Request> TakeRest() {
    MutexLock lock(&mutex_);
    return std::exchange(waiting_, {});
  }

 private:
  const char* const what_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Request> waiting_ ABSL_GUARDED_BY(mutex_);
  bool used_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SERVICE_REQUEST_QUEUE_H_
