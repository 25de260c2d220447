// SPDX-License-Identifier: Apache-2.0
#include "worker/device/copy_between.h"

#include <memory>
#include <utility>

#include "proto/base/awaited.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr KeyId kNoKey = 0;

CopyDone DoneOf(Awaited* awaited) {
  return [done = awaited->Callback()](KeyId, absl::Status status) { done(std::move(status)); };
}

absl::Status ToHost(Device* device, std::span<const float> from, StreamHandle stream,
                    std::span<float> to) {
  Awaited copied;
  device->CopyToHost(kNoKey, from, stream, to, DoneOf(&copied));
  return copied.Await();
}

absl::Status FromHost(Device* device, std::span<const float> from, std::span<float> to,
                      StreamHandle stream) {
  Awaited copied;
  device->CopyToDevice(kNoKey, from, to, stream, DoneOf(&copied));
  return copied.Await();
}

}  // namespace

absl::Status CopyBetween(Devices* devices, std::span<const float> from, const Place& from_place,
                         std::span<float> to, const Place& to_place) {
  SLIMPS_RETURN_IF_ERROR(CheckCopy(kNoKey, from, to));
  if (from.empty()) return absl::OkStatus();
  SLIMPS_ASSIGN_OR_RETURN(Device* const source, devices->Find(from, from_place));
  SLIMPS_ASSIGN_OR_RETURN(Device* const target, devices->Find(to, to_place));
  if (source == devices->host() && target == devices->host()) {
    return FromHost(target, from, to, nullptr);
  }
  // Every GPU copies to and from the host buffers of any.
  Device* const gpu = source == devices->host() ? target : source;
  SLIMPS_ASSIGN_OR_RETURN(const std::unique_ptr<HostBuffer> buffer, gpu->AllocateHost(from.size()));
  const std::span<float> between = buffer->floats();
  SLIMPS_RETURN_IF_ERROR(ToHost(source, from, from_place.stream, between));
  return FromHost(target, between, to, to_place.stream);
}

}  // namespace slimps
