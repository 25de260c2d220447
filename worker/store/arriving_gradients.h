// SPDX-License-Identifier: Apache-2.0
// ArrivingGradients: gradients on their way from a GPU to grad_buf. Their pushes have their place
// among the rounds already; each partition goes on when it has arrived.
//
//   arriving.Start(*tensor, {{device, gradient, place}}, grad_bufs,
//                  {.arrived = [=](size_t partition, absl::StatusOr<float> largest) {...},
//                   .ended = [=] { ... give the gradient back ... }});
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
  // Both run on threads of copies.
  struct Events {
    // A partition is in its grad_buf. `largest` is its largest magnitude (infinity: a value is
    // infinite or NaN), or the first error of its copies.
    std::function<void(size_t partition, absl::StatusOr<float> largest)> arrived;
    // No copy reads a source any more. Called once, after the last `arrived` has returned.
    std::function<void()> ended;
  };

  // A whole gradient in a device's memory.
  struct Source {
    Device* device;
    std::span<const float> gradient;
    Place place;
  };

  // Waits until nothing is on its way.
  ~ArrivingGradients();

  // Starts copying the sources, whose sum, added in their order, `grad_bufs` then hold.
  // ResourceExhausted: no memory for the second source and later ones. Nothing is called.
  // REQUIRES: `tensor` and the sources' memory live until the end, and the memory of each of
  // `grad_bufs` until it has arrived.
  absl::Status Start(const TensorPlan& tensor, std::span<const Source> sources,
                     const GradientBuffers& grad_bufs, Events events);

  // Waits until `ended` has returned for every gradient of this key that was started.
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
