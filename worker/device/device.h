// The seam between gradients on a device and host memory. The host device copies with memcpy at
// once; the CUDA device (device_cuda.cc, --config=cuda) copies on its own stream into pinned memory
// and reports arrival by key.
//
//   device->CopyToHost(key, gradient_ptr, grad_buf, [](KeyId key, absl::Status status) { ... });
//
// Thread-safe. Completions may come in any order: the key, not its turn, says which copy has
// arrived.
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

// Host memory that a device can copy to at full speed. Owned by whoever holds it; returns to its
// pool on destruction.
class HostBuffer {
 public:
  virtual ~HostBuffer() = default;
  virtual std::span<float> floats() = 0;
};

using CopyDone = std::function<void(KeyId key, absl::Status status)>;
// `largest`: of the magnitudes that have arrived; infinity where one is infinite or NaN.
using GradientDone = std::function<void(KeyId key, absl::StatusOr<float> largest)>;

class Device {
 public:
  virtual ~Device() = default;
  // A buffer of `elements` floats from the device's pool (pinned where that means something).
  [[nodiscard]] virtual absl::StatusOr<std::unique_ptr<HostBuffer>> AllocateHost(
      size_t elements) = 0;
  // From now on the pool frees idle memory rather than hold more than this, lent and idle together. What is lent may exceed
  // it: whoever borrows bounds that.
  virtual void LimitHost(size_t bytes) = 0;
  // Starts copying `source` (device memory) to `destination` (host memory); `done` runs once, on
  // any thread, when it has arrived or failed (InvalidArgument: lengths differ). Both must live
  // until then; `done` must not destroy the device. On CUDA the copy starts after what the legacy
  // default stream has been given before this call: torch's default.
  virtual void CopyToHost(KeyId key, std::span<const float> source, std::span<float> destination,
                          CopyDone done) = 0;
  // The same, and how large the values are, so that nobody looks for NaN in a pass of its own. Unless a device overrides
  // it with something better, what has arrived is read once more before `done` runs.
  virtual void CopyGradient(KeyId key, std::span<const float> source, std::span<float> destination,
                            GradientDone done);
  virtual void CopyToDevice(KeyId key, std::span<const float> source, std::span<float> destination,
                            CopyDone done) = 0;
};

// InvalidArgument: the lengths differ (names the key).
absl::Status CheckCopy(KeyId key, std::span<const float> source,
                       std::span<const float> destination);

std::unique_ptr<Device> MakeHostDevice();
// FailedPrecondition: this build has no CUDA, or the machine no such GPU.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int ordinal);

}  // namespace slimps

#endif  // SLIMPS_WORKER_DEVICE_DEVICE_H_
