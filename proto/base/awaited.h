// SPDX-License-Identifier: Apache-2.0
// Awaited: hands a callback's status to the caller that waits for it.
//
//   Awaited pulled;
//   SubmitPull(key, {.out = out, .done = pulled.Callback()});
//   return pulled.Await();
//
// Thread-safe.
#ifndef SLIMPS_PROTO_BASE_AWAITED_H_
#define SLIMPS_PROTO_BASE_AWAITED_H_

#include <functional>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "proto/base/mutex.h"

namespace slimps {

class Awaited final {
 public:
  std::function<void(absl::Status)> Callback() {
    return [this](absl::Status status) {
      MutexLock lock(&mutex_);
      result_ = std::move(status);
      answered_.NotifyAll();
    };
  }
  absl::Status Await() {
    MutexLock lock(&mutex_);
    // The wait ends: every item of a pull is answered within the courier's deadline.
    while (!result_.has_value()) answered_.Wait(&mutex_);
    return *result_;
  }

 private:
  Mutex mutex_;
  CondVar answered_;
  std::optional<absl::Status> result_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_AWAITED_H_
