// SPDX-License-Identifier: Apache-2.0
// Devices: the host, and those GPUs of this process that were asked for. A GPU's driver is opened
// when its memory comes first, so a process that uses none needs none.
//
//   SLIMPS_ASSIGN_OR_RETURN(Device* const device, devices.At({.gpu = 0, .stream = stream}));
//
// Thread-safe.
#ifndef SLIMPS_WORKER_DEVICE_DEVICES_H_
#define SLIMPS_WORKER_DEVICE_DEVICES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "worker/device/device.h"
#include "worker/device/place.h"

namespace slimps {

class Devices final {
 public:
  // Makes the GPU of a number.
  using MakeGpu = std::function<absl::StatusOr<std::unique_ptr<Device>>(int ordinal)>;

  Devices(std::unique_ptr<Device> host, MakeGpu make_gpu)
      : host_(std::move(host)), make_gpu_(std::move(make_gpu)) {}

  Device* host() { return host_.get(); }

  // Returns the device of a place, which lives as long as this object. A GPU that could not be made
  // is tried again by the next call.
  // InvalidArgument: a negative number that is not the host's.
  // FailedPrecondition: this machine has no driver, or no such GPU.
  absl::StatusOr<Device*> At(const Place& place);

  // Same, and checks that it reaches `values`.
  // Also the errors of Device::CheckReachable.
  absl::StatusOr<Device*> Find(std::span<const float> values, const Place& place);

  // Bounds each device's pool of host memory from now on (Device::LimitHost): the host's to `bytes`
  // of gradients, and a GPU's to twice that, since what is pulled to it passes through its pool.
  void LimitHost(size_t bytes);

  // Tells every device (Device::NoteRound).
  void NoteRound(uint64_t round);

 private:
  const std::unique_ptr<Device> host_;
  const MakeGpu make_gpu_;
  Mutex mutex_;
  size_t gpu_limit_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<size_t>::max();
  std::map<int, std::unique_ptr<Device>> gpus_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_DEVICE_DEVICES_H_
