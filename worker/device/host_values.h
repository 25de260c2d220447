// SPDX-License-Identifier: Apache-2.0
// HostValues: values where the CPU reads them, for calls that compute on them at once, as Init and
// rows.
//
//   SLIMPS_ASSIGN_OR_RETURN(const HostValues values, HostValues::Of(&devices, given, place));
//   ... read values.span() ...
#ifndef SLIMPS_WORKER_DEVICE_HOST_VALUES_H_
#define SLIMPS_WORKER_DEVICE_HOST_VALUES_H_

#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "worker/device/devices.h"
#include "worker/device/place.h"

namespace slimps {

// The caller's own values, if they lie on the host, or a copy of a GPU's. Thread-compatible.
class HostValues final {
 public:
  // Copies what lies on a GPU into a host buffer of its device, after the work that its stream has
  // been given, and waits for the copy.
  // REQUIRES: `given` outlives this object if it lies on the host.
  // FailedPrecondition: `devices` is null, since the store knows of no GPU.
  // ResourceExhausted: no memory for the host buffer.
  // Also the errors of Devices::Find.
  static absl::StatusOr<HostValues> Of(Devices* devices, std::span<const float> given,
                                       const Place& place);

  std::span<const float> span() const { return values_; }

 private:
  HostValues(std::span<const float> values, std::unique_ptr<HostBuffer> copy)
      : values_(values), copy_(std::move(copy)) {}

  std::span<const float> values_;
  std::unique_ptr<HostBuffer> copy_;  // null: the values are the caller's
};

// Returns the device of `place`, which can reach `values`.
// FailedPrecondition: `devices` is null.
// Also the errors of Devices::Find.
absl::StatusOr<Device*> FindDevice(Devices* devices, std::span<const float> values,
                                   const Place& place);

}  // namespace slimps

#endif  // SLIMPS_WORKER_DEVICE_HOST_VALUES_H_
