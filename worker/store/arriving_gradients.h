// SPDX-License-Identifier: Apache-2.0
// ArrivingGradients: gradients on their way from a GPU to grad_buf. Their pushes have their place
// among the rounds already; they go on when the last partition has arrived.
//
//   arriving.Start(*tensor, {{device, gradient, stream}}, grad_bufs,
//                  [=](absl::StatusOr<float> largest) { ... submit the push ... });
//   SLIMPS_RETURN_IF_ERROR(arriving.AwaitAll(timeout));
//
// Thread-safe. Its owner makes sure that the devices outlive it.
#ifndef SLIMPS_WORKER_STORE_ARRIVING_GRADIENTS_H_
#define SLIMPS_WORKER_STORE_ARRIVING_GRADIENTS_H_

#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/mutex.h"
#include "worker/device/device.h"
#include "worker/push/staging.h"
#include "worker/push/unacknowledged_pushes.h"
#include "worker/tensor/key_table.h"

namespace slimps {

class ArrivingGradients final {
 public:
  // Gets the largest magnitude of the gradient (infinity: a value is infinite or NaN), or the first
  // error of its copies. Runs on the thread of the last copy.
  using Arrived = std::function<void(absl::StatusOr<float> largest)>;

  // A whole gradient in a device's memory, which belongs to a stream.
  struct Source {
    Device* device;
    std::span<const float> gradient;
    StreamHandle producer;
  };

  // Waits until nothing is on its way.
  ~ArrivingGradients();

  // Starts copying the sources, whose sum, added in their order, `grad_bufs` then hold. Calls
  // `arrived` once, when no copy reads a source any more.
  // ResourceExhausted: no memory for the second source and later ones. `arrived` is not called.
  // REQUIRES: `tensor`, the sources' memory and that of `grad_bufs` live until then.
  absl::Status Start(const TensorPlan& tensor, std::span<const Source> sources,
                     const GradientBuffers& grad_bufs, Arrived arrived);

  // Waits until `arrived` has returned for every gradient of this key that was started.
  // DeadlineExceeded: it has not within `timeout`; the message names the key.
  // The error of Fail, once it was called.
  [[nodiscard]] absl::Status Await(const TensorPlan& tensor, absl::Duration timeout);

  // Same, for all keys.
  [[nodiscard]] absl::Status AwaitAll(absl::Duration timeout);

  // Calls `then` when Await would return: at once, or on the thread of the last copy or of Fail.
  void When(const TensorPlan& tensor, std::function<void()> then);

  // Ends every wait, now and later, with the first `why`. Copies go on.
  void Fail(const absl::Status& why);

  // Waits until nothing is on its way, also after Fail.
  void AwaitEnd();

 private:
  class Copies;

  void End(KeyId key, uint64_t turn);

  Mutex mutex_;
  CondVar changed_;
  UnacknowledgedPushes on_their_way_ ABSL_GUARDED_BY(mutex_);  // one partition a gradient
  int ending_ ABSL_GUARDED_BY(mutex_) = 0;  // threads that tell waiters of a gradient that arrived
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_ARRIVING_GRADIENTS_H_
