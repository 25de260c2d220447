// SPDX-License-Identifier: Apache-2.0
// The fake driver's CudaDriver: what the code under test calls.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "tests/worker/device/cuda/fake_cuda_driver.h"
#include "tests/worker/device/cuda/fake_cuda_parts.h"

namespace slimps {

absl::StatusOr<int> FakeCudaDriver::DeviceCount() { return options_.devices; }

absl::StatusOr<void*> FakeCudaDriver::RetainPrimaryContext(int ordinal) {
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(TakeFailure("RetainPrimaryContext"));
  ++retained_[ordinal];
  return ContextOf(ordinal);
}

void FakeCudaDriver::ReleasePrimaryContext(int ordinal) {
  MutexLock lock(&mutex_);
  if (--retained_[ordinal] < 0) Note("a primary context released more often than retained");
}

absl::Status FakeCudaDriver::PushContext(void* context) {
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(TakeFailure("PushContext"));
  const int device = static_cast<int>(reinterpret_cast<uintptr_t>(context) - kContexts);
  if (retained_[device] <= 0) Note("a context made current that is not retained");
  current_[ThisThread()].push_back(device);
  return absl::OkStatus();
}

void FakeCudaDriver::PopContext() {
  MutexLock lock(&mutex_);
  if (CurrentDevice("PopContext").has_value()) current_[ThisThread()].pop_back();
}

absl::StatusOr<void*> FakeCudaDriver::CreateStream() {
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(TakeFailure("CreateStream"));
  const std::optional<int> device = CurrentDevice("CreateStream");
  if (!device.has_value()) return absl::InternalError("no current context");
  return AddStream(*device, /*frameworks=*/false);
}

void FakeCudaDriver::DestroyStream(void* stream) {
  MutexLock lock(&mutex_);
  (void)CurrentDevice("DestroyStream");
  if (Stream* const found = Find(stream, 0)) found->destroyed = true;
}

absl::Status FakeCudaDriver::WaitForEvent(void* stream, void* event) {
  MutexLock lock(&mutex_);
  SLIMPS_ASSIGN_OR_RETURN(Stream* const waiting, Current(stream, "WaitForEvent"));
  const Event* const found = FindEvent(event);
  if (found == nullptr) return absl::InvalidArgumentError("WaitForEvent: no such event");
  if (found->stream == nullptr) return absl::OkStatus();
  Join(&waiting->clock, found->clock);
  Submit(waiting, {}, "a wait", [this, other = found->stream, work = found->work] {
    MutexLock wait(&mutex_);
    while (other->finished < work) other->changed.Wait(&mutex_);
  });
  return absl::OkStatus();
}

absl::Status FakeCudaDriver::SynchronizeStream(void* stream) {
  MutexLock lock(&mutex_);
  SLIMPS_ASSIGN_OR_RETURN(Stream* const found, Current(stream, "SynchronizeStream"));
  const uint64_t work = found->submitted;
  while (found->finished < work) found->changed.Wait(&mutex_);
  Join(&host_, found->clock);
  return absl::OkStatus();
}

absl::StatusOr<bool> FakeCudaDriver::IsCapturing(void* stream) {
  MutexLock lock(&mutex_);
  SLIMPS_ASSIGN_OR_RETURN(const Stream* const found, Current(stream, "IsCapturing"));
  return found->capturing;
}

absl::StatusOr<void*> FakeCudaDriver::CreateEvent() {
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(TakeFailure("CreateEvent"));
  const std::optional<int> device = CurrentDevice("CreateEvent");
  if (!device.has_value()) return absl::InternalError("no current context");
  events_.push_back(std::make_unique<Event>());
  events_.back()->device = *device;
  return events_.back().get();
}

void FakeCudaDriver::DestroyEvent(void* event) {
  MutexLock lock(&mutex_);
  (void)CurrentDevice("DestroyEvent");
  if (Event* const found = FindEvent(event)) found->destroyed = true;
}

absl::Status FakeCudaDriver::RecordEvent(void* event, void* stream) {
  MutexLock lock(&mutex_);
  SLIMPS_ASSIGN_OR_RETURN(Stream* const found, Current(stream, "RecordEvent"));
  Event* const recorded = FindEvent(event);
  if (recorded == nullptr) return absl::InvalidArgumentError("RecordEvent: no such event");
  if (recorded->device != found->device) {
    Note(absl::StrCat("an event of GPU ", recorded->device, " recorded on ", found->name()));
    return absl::InvalidArgumentError("RecordEvent: a stream of another context");
  }
  recorded->stream = found;
  recorded->work = found->submitted;
  recorded->clock = found->clock;
  return absl::OkStatus();
}

absl::Status FakeCudaDriver::SynchronizeEvent(void* event) {
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(TakeFailure("SynchronizeEvent"));
  (void)CurrentDevice("SynchronizeEvent");
  const Event* const found = FindEvent(event);
  if (found == nullptr) return absl::InvalidArgumentError("SynchronizeEvent: no such event");
  if (found->stream == nullptr) return absl::OkStatus();
  const Event waited = *found;
  while (waited.stream->finished < waited.work) waited.stream->changed.Wait(&mutex_);
  Join(&host_, waited.clock);
  return absl::OkStatus();
}

absl::Status FakeCudaDriver::Pin(void* memory, size_t bytes) {
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(TakeFailure("Pin"));
  (void)CurrentDevice("Pin");
  const auto page_of = [this](const std::byte* address) {
    return reinterpret_cast<uintptr_t>(address) / options_.page_bytes;
  };
  auto block = std::make_unique<Block>();
  block->memory = {static_cast<const std::byte*>(memory), bytes};
  if (reinterpret_cast<uintptr_t>(memory) % options_.page_bytes != 0) {
    Note("pinned memory does not begin at a page's start");
  }
  const auto shares_a_page = [&](const std::unique_ptr<Block>& other) {
    return !other->device.has_value() && page_of(block->end() - 1) >= page_of(other->begin()) &&
           page_of(other->end() - 1) >= page_of(block->begin());
  };
  std::erase_if(blocks_, [&](const auto& other) { return other->freed && shares_a_page(other); });
  if (std::ranges::any_of(blocks_, shares_a_page)) {
    Note("a page pinned twice");
    return absl::InternalError("Pin: already pinned");
  }
  blocks_.push_back(std::move(block));
  ++pins_;
  return absl::OkStatus();
}

void FakeCudaDriver::Unpin(void* memory) {
  MutexLock lock(&mutex_);
  (void)CurrentDevice("Unpin");
  for (const auto& block : blocks_) {
    if (block->device.has_value() || block->freed || block->begin() != memory) continue;
    CheckUnused(*block, "pinned memory");
    block->freed = true;
    return;
  }
  Note("memory unpinned that is not pinned");
}

absl::Status FakeCudaDriver::Copy(const Use& device, const Use& host, void* stream,
                                  absl::string_view call) {
  MutexLock lock(&mutex_);
  SLIMPS_ASSIGN_OR_RETURN(Stream* const found, Current(stream, call));
  if (device.begin == nullptr || host.begin == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(call, ": no memory"));
  }
  CheckMemory(device, *found, /*on_device=*/true, call);
  CheckMemory(host, *found, /*on_device=*/false, call);
  const Use& from = device.writes ? host : device;
  const Use& to = device.writes ? device : host;
  Submit(found, {device, host}, std::string(call), [from, to] {
    std::memcpy(const_cast<std::byte*>(to.begin), from.begin,
                static_cast<size_t>(from.end - from.begin));
  });
  return absl::OkStatus();
}

absl::Status FakeCudaDriver::CopyToHost(void* host, const void* device, size_t bytes,
                                        void* stream) {
  return Copy(Reads(device, bytes), Writes(host, bytes), stream, "CopyToHost");
}

absl::Status FakeCudaDriver::CopyToDevice(void* device, const void* host, size_t bytes,
                                          void* stream) {
  return Copy(Writes(device, bytes), Reads(host, bytes), stream, "CopyToDevice");
}

absl::StatusOr<std::optional<int>> FakeCudaDriver::GpuOf(const void* memory) {
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(TakeFailure("GpuOf"));
  for (const auto& block : blocks_) {
    if (!block->freed && memory >= block->begin() && memory < block->end()) return block->device;
  }
  return std::nullopt;
}

}  // namespace slimps
