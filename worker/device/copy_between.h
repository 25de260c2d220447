// SPDX-License-Identifier: Apache-2.0
// CopyBetween: for calls that take arrays of the host alone, as Init and rows.
//
//   SLIMPS_RETURN_IF_ERROR(CopyBetween(&devices, on_gpu, {.gpu = 0, .stream = stream}, values,
//                                      /*to_place=*/{}));
#ifndef SLIMPS_WORKER_DEVICE_COPY_BETWEEN_H_
#define SLIMPS_WORKER_DEVICE_COPY_BETWEEN_H_

#include <span>

#include "absl/status/status.h"
#include "worker/device/devices.h"
#include "worker/device/place.h"

namespace slimps {

// Copies values from one place to another, after the work that both streams have been given, and
// waits for the copy. What lies on a GPU passes through its device's host buffers. Thread-safe.
// InvalidArgument: the lengths differ.
// ResourceExhausted: no memory for a host buffer.
// Also the errors of Devices::Find.
absl::Status CopyBetween(Devices* devices, std::span<const float> from, const Place& from_place,
                         std::span<float> to, const Place& to_place);

}  // namespace slimps

#endif  // SLIMPS_WORKER_DEVICE_COPY_BETWEEN_H_
