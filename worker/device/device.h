// SPDX-License-Identifier: Apache-2.0
// Device: the seam between gradients on a device and host memory. The host device copies with
// memcpy before the call returns. The CUDA device (cuda/cuda_device.h) copies on a stream of its
// own into pinned memory and reports each arrival by key.
//
//   device->CopyToHost(key, gradient, stream, grad_buf, [](KeyId key, absl::Status status) {...});
//
// Thread-safe. Copies may complete in any order: the key says which copy has arrived.
#ifndef SLIMPS_WORKER_DEVICE_DEVICE_H_
#define SLIMPS_WORKER_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/key.h"
#include "worker/device/place.h"

namespace slimps {

// How long a buffer's memory is on loan from the caller of a push.
enum class Loan {
  kNone,  // it is not: the buffer's holder may write to it
  kUntilEncoded,
  kUntilAcknowledged,
};

// Host memory that a device can copy to at full speed. Its holder owns it. It returns to its pool,
// or to who has lent it, on destruction.
class HostBuffer {
 public:
  virtual ~HostBuffer() = default;

  // REQUIRES: memory on loan is only read.
  virtual std::span<float> floats() = 0;
  virtual Loan loan() const { return Loan::kNone; }
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

  // Same, for a buffer that is held as long as a model, as loc_buf: its memory does not go back to
  // the pool, and the pool's bound does not count it.
  [[nodiscard]] virtual absl::StatusOr<std::unique_ptr<HostBuffer>> KeepHost(size_t elements) = 0;

  // Bounds the pool from now on: it frees idle memory rather than hold more than `bytes`, lent and
  // idle together. Lent memory, and what lies in one slab with it, may exceed the bound; its
  // borrowers bound it.
  virtual void LimitHost(size_t bytes) = 0;

  // Says that a round of gradients begins, or one above it: the pool frees what no buffer has used
  // for two whole rounds. A round below the highest so far changes nothing.
  virtual void NoteRound(uint64_t round) = 0;

  // Checks that copies between this device and `values` (device memory), which belongs to `stream`,
  // can be started.
  // InvalidArgument: `values` is no memory of this device, or `stream` no stream of it.
  // FailedPrecondition: `stream` is being captured into a CUDA graph.
  virtual absl::Status CheckReachable(std::span<const float> values, StreamHandle stream) = 0;

  // Starts copying `source` (device memory) to `destination` (a host buffer of this device's or
  // another's). The copy begins after all work that `producer` was given before this call. `done`
  // runs once, on any thread, when the copy has arrived or failed.
  // REQUIRES: both memories live until `done` runs, and `done` does not destroy the device.
  // InvalidArgument: the lengths differ. Also the errors of CheckReachable.
  virtual void CopyToHost(KeyId key, std::span<const float> source, StreamHandle producer,
                          std::span<float> destination, CopyDone done) = 0;

  // Copies a gradient as CopyToHost does, also one of halves, and reports the largest magnitude
  // too, so that no caller needs a pass of its own to look for NaN.
  // REQUIRES: `place` is on this device.
  virtual void CopyGradient(KeyId key, std::span<const float> source, const Place& place,
                            std::span<float> destination, GradientDone done) = 0;

  // Starts copying `source` (a host buffer) to `destination` (device memory), with the terms of
  // CopyToHost. The copy begins after all work that `consumer` was given before this call, and what
  // `consumer` is given after it waits for the copy.
  virtual void CopyToDevice(KeyId key, std::span<const float> source, std::span<float> destination,
                            StreamHandle consumer, CopyDone done) = 0;
};

// Returns "key 00..07", as errors name what is copied.
std::string KeyName(KeyId key);

// InvalidArgument: the lengths differ; the message names the key.
absl::Status CheckCopy(KeyId key, std::span<const float> source,
                       std::span<const float> destination);

// Returns the device of a machine without accelerator.
std::unique_ptr<Device> MakeHostDevice();

}  // namespace slimps

#endif  // SLIMPS_WORKER_DEVICE_DEVICE_H_
