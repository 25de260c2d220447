// SPDX-License-Identifier: Apache-2.0
#include "worker/device/host_values.h"

#include "absl/strings/str_cat.h"
#include "proto/base/awaited.h"
#include "proto/base/status_macros.h"

namespace slimps {

absl::StatusOr<Device*> FindDevice(Devices* devices, std::span<const float> values,
                                   const Place& place) {
  if (devices != nullptr) return devices->Find(values, place);
  return absl::FailedPreconditionError(
      absl::StrCat("this store takes memory of the host alone, got memory of GPU ", place.gpu));
}

absl::StatusOr<HostValues> HostValues::Of(Devices* devices, std::span<const float> given,
                                          const Place& place) {
  if (place.on_host() || given.empty()) return HostValues(given, nullptr);
  SLIMPS_ASSIGN_OR_RETURN(Device* const device, FindDevice(devices, given, place));
  SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<HostBuffer> copy, device->AllocateHost(given.size()));
  Awaited copied;
  device->CopyGradient(/*key=*/0, given, place, copy->floats(),
                       [done = copied.Callback()](KeyId, const absl::StatusOr<float>& largest) {
                         done(largest.status());
                       });
  SLIMPS_RETURN_IF_ERROR(copied.Await());
  const std::span<const float> values = copy->floats();
  return HostValues(values, std::move(copy));
}

}  // namespace slimps
