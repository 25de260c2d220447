// SPDX-License-Identifier: Apache-2.0
#include "worker/device/devices.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {

absl::StatusOr<Device*> Devices::At(const Place& place) {
  if (place.on_host()) return host_.get();
  if (place.gpu < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "GPU ", place.gpu, ": expected a number from 0, or ", Place::kHost, " for the host"));
  }
  MutexLock lock(&mutex_);
  std::unique_ptr<Device>& gpu = gpus_[place.gpu];
  if (gpu == nullptr) {
    SLIMPS_ASSIGN_OR_RETURN(gpu, make_gpu_(place.gpu));
    gpu->LimitHost(gpu_limit_);
  }
  return gpu.get();
}

absl::StatusOr<Device*> Devices::Find(std::span<const float> values, const Place& place) {
  SLIMPS_ASSIGN_OR_RETURN(Device* const device, At(place));
  SLIMPS_RETURN_IF_ERROR(device->CheckReachable(values, place.stream));
  return device;
}

void Devices::LimitHost(size_t bytes) {
  host_->LimitHost(bytes);
  MutexLock lock(&mutex_);
  gpu_limit_ = bytes > std::numeric_limits<size_t>::max() / 2 ? bytes : 2 * bytes;
  for (const auto& [ordinal, gpu] : gpus_) {
    if (gpu != nullptr) gpu->LimitHost(gpu_limit_);
  }
}

void Devices::NoteRound(uint64_t round) {
  host_->NoteRound(round);
  MutexLock lock(&mutex_);
  for (const auto& [ordinal, gpu] : gpus_) {
    if (gpu != nullptr) gpu->NoteRound(round);
  }
}

}  // namespace slimps
