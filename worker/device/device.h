// SPDX-License-Identifier: Apache-2.0
// Device: the seam between gradients on a device and host memory. The host device copies with
// memcpy before the call returns. The CUDA device (device_cuda.cc, --config=cuda) copies on its own
// stream into pinned memory and reports each arrival by key.
//
//   device->CopyToHost(key, gradient_ptr, grad_buf, [](KeyId key, absl::Status status) { ... });
//
// Thread-safe. Copies may complete in any order: the key says which copy has arrived.
#ifndef SLIMPS_WORKER_DEVICE_DEVICE_H_
#define SLIMPS_WORKER_DEVICE_DEVICE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/key.h"

namespace slimps {

// Host memory that a device can copy to at full speed. Its holder owns it. It returns to its pool
// on destruction.
class HostBuffer {
 public:
  virtual ~HostBuffer() = default;
  virtual std::span<float> floats() = 0;
};

using CopyDone = std::function<void(KeyId key, absl::Status status)>;
// `largest` is the largest magnitude that has arrived; infinity if a value is infinite or NaN.
using GradientDone = std::function<void(KeyId key, absl::StatusOr<float> largest)>;

class Device {
 public:
  virtual ~Device() = default;

  // Returns a buffer of `elements` floats from the device's pool. The CUDA device's buffers are
  // pinned.
  [[nodiscard]] virtual absl::StatusOr<std::unique_ptr<HostBuffer>> AllocateHost(
      size_t elements) = 0;

  // Bounds the pool from now on: it frees idle memory rather than hold more than `bytes`, lent and
  // idle together. Lent memory alone may exceed the bound; its borrowers bound it.
  virtual void LimitHost(size_t bytes) = 0;

  // Starts copying `source` (device memory) to `destination` (host memory). `done` runs once, on
  // any thread, when the copy has arrived or failed. On CUDA the copy starts after all work that
  // the legacy default stream, torch's default, was given before this call.
  // REQUIRES: both memories live until `done` runs, and `done` does not destroy the device.
  // InvalidArgument: the lengths differ.
  virtual void CopyToHost(KeyId key, std::span<const float> source, std::span<float> destination,
                          CopyDone done) = 0;

  // Copies as CopyToHost does, and reports the largest magnitude too, so that no caller needs a
  // pass of its own to look for NaN. This default reads the arrived values once more before `done`
  // runs; a device may override it with something better.
  virtual void CopyGradient(KeyId key, std::span<const float> source, std::span<float> destination,
                            GradientDone done);

  // Copies `source` (host memory) to `destination` (device memory), with the terms of CopyToHost.
  virtual void CopyToDevice(KeyId key, std::span<const float> source, std::span<float> destination,
                            CopyDone done) = 0;
};

// InvalidArgument: the lengths differ; the message names the key.
absl::Status CheckCopy(KeyId key, std::span<const float> source,
                       std::span<const float> destination);

// Returns the device of a machine without accelerator.
std::unique_ptr<Device> MakeHostDevice();

// Returns the GPU with this number.
// FailedPrecondition: this build has no CUDA, or the machine has no GPU of this number.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int ordinal);

}  // namespace slimps

#endif  // SLIMPS_WORKER_DEVICE_DEVICE_H_
