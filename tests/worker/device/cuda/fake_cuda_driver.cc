// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/device/cuda/fake_cuda_driver.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "tests/worker/device/cuda/fake_cuda_parts.h"

namespace slimps {
FakeCudaDriver::FakeCudaDriver(const Options& options) : options_(options), random_(options.seed) {}

FakeCudaDriver::~FakeCudaDriver() {
  std::vector<std::unique_ptr<Stream>> streams;
  {
    MutexLock lock(&mutex_);
    for (const auto& stream : streams_) {
      stream->stopping = true;
      stream->changed.NotifyAll();
    }
    streams.swap(streams_);
  }
  for (const auto& stream : streams) {  // one may wait for another: all run to their end first
    MutexLock lock(&mutex_);
    while (stream->finished < stream->submitted) stream->changed.Wait(&mutex_);
  }
}

FakeCudaDriver::Use FakeCudaDriver::Reads(const void* memory, size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(memory);
  return {begin, begin + bytes, /*writes=*/false};
}

FakeCudaDriver::Use FakeCudaDriver::Writes(const void* memory, size_t bytes) {
  Use use = Reads(memory, bytes);
  use.writes = true;
  return use;
}

void FakeCudaDriver::Note(std::string misuse) { misuses_.push_back(std::move(misuse)); }

absl::Duration FakeCudaDriver::Delay() {
  return options_.longest_delay * std::uniform_real_distribution<double>(0, 1)(random_);
}

// ---- what a framework does ----------------------------------------------------------------------

std::span<float> FakeCudaDriver::Allocate(int device, size_t elements) {
  MutexLock lock(&mutex_);
  auto block = std::make_unique<Block>();
  block->owned.reset(static_cast<std::byte*>(std::calloc(std::max<size_t>(elements, 1), 4)));
  block->memory = {block->owned.get(), elements * sizeof(float)};
  block->device = device;
  auto* const begin = reinterpret_cast<float*>(block->owned.get());
  blocks_.push_back(std::move(block));
  return {begin, elements};
}

void FakeCudaDriver::Free(std::span<float> memory) {
  MutexLock lock(&mutex_);
  for (const auto& block : blocks_) {
    if (block->freed || block->begin() != std::as_bytes(memory).data()) continue;
    CheckUnused(*block, "memory of a GPU");
    block->freed = true;
    return;
  }
  Note("memory of a GPU freed twice");
}

void* FakeCudaDriver::MakeStream(int device) {
  MutexLock lock(&mutex_);
  return AddStream(device, /*frameworks=*/true);
}

void FakeCudaDriver::Launch(void* stream, std::span<const float> reads, std::span<float> writes,
                            std::function<void()> kernel, int device_of_null) {
  MutexLock lock(&mutex_);
  std::vector<Use> uses;
  if (!reads.empty()) uses.push_back(Reads(reads.data(), reads.size_bytes()));
  if (!writes.empty()) uses.push_back(Writes(writes.data(), writes.size_bytes()));
  Stream* const found = Find(stream, device_of_null);
  if (found == nullptr) return;
  for (const Use& use : uses) CheckMemory(use, *found, /*on_device=*/true, "a kernel");
  Submit(found, std::move(uses), "a kernel", std::move(kernel));
}

void FakeCudaDriver::SetCapturing(void* stream, bool capturing) {
  MutexLock lock(&mutex_);
  Find(stream, 0)->capturing = capturing;
}

void FakeCudaDriver::Await(void* stream, int device_of_null) {
  MutexLock lock(&mutex_);
  Stream* const found = Find(stream, device_of_null);
  const uint64_t work = found->submitted;
  while (found->finished < work) found->changed.Wait(&mutex_);
  Join(&host_, found->clock);
}

// ---- what a test wants to know or to break ------------------------------------------------------

void FakeCudaDriver::Fail(absl::string_view call, absl::Status why, int successes, int times) {
  MutexLock lock(&mutex_);
  failures_[std::string(call)] = {std::move(why), successes, times};
}

absl::Status FakeCudaDriver::TakeFailure(absl::string_view call) {
  const auto found = failures_.find(std::string(call));
  if (found == failures_.end() || found->second.successes-- > 0) return absl::OkStatus();
  const absl::Status why = found->second.why;
  if (--found->second.times == 0) failures_.erase(found);
  return why;
}

std::vector<std::string> FakeCudaDriver::TakeMisuses() {
  MutexLock lock(&mutex_);
  return std::exchange(misuses_, {});
}

size_t FakeCudaDriver::pinned_bytes() {
  MutexLock lock(&mutex_);
  size_t bytes = 0;
  for (const auto& block : blocks_) {
    if (!block->device.has_value() && !block->freed) bytes += block->memory.size();
  }
  return bytes;
}

int64_t FakeCudaDriver::pins() {
  MutexLock lock(&mutex_);
  return pins_;
}

void FakeCudaDriver::CheckAllGivenBack() {
  MutexLock lock(&mutex_);
  const auto check = [&](const char* what, size_t held) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (held > 0) Note(absl::StrCat(held, " ", what, " never given back"));
  };
  check("streams", std::ranges::count_if(streams_, [](const auto& stream) {
          return !stream->frameworks && !stream->destroyed;
        }));
  check("events",
        std::ranges::count_if(events_, [](const auto& event) { return !event->destroyed; }));
  check("pinned blocks", std::ranges::count_if(blocks_, [](const auto& block) {
          return !block->device.has_value() && !block->freed;
        }));
  for (const auto& [device, count] : retained_) check("primary contexts", count);
}

// ---- checks -------------------------------------------------------------------------------------

FakeCudaDriver::Stream* FakeCudaDriver::AddStream(int device, bool frameworks) {
  streams_.push_back(
      std::make_unique<Stream>(this, device, static_cast<int>(streams_.size()), frameworks));
  return streams_.back().get();
}

FakeCudaDriver::Stream* FakeCudaDriver::Find(void* stream, int device_of_null) {
  if (stream == nullptr) {
    Stream*& found = default_streams_[device_of_null];
    if (found == nullptr) found = AddStream(device_of_null, /*frameworks=*/true);
    return found;
  }
  for (const auto& known : streams_) {
    if (known.get() == stream && !known->destroyed) return known.get();
  }
  Note("a stream that does not exist, or no more");
  return nullptr;
}

FakeCudaDriver::Event* FakeCudaDriver::FindEvent(void* event) {
  for (const auto& known : events_) {
    if (known.get() == event && !known->destroyed) return known.get();
  }
  Note("an event that does not exist, or no more");
  return nullptr;
}

std::optional<int> FakeCudaDriver::CurrentDevice(absl::string_view call) {
  const std::vector<int>& current = current_[ThisThread()];
  if (current.empty()) {
    Note(absl::StrCat(call, " without a current context"));
    return std::nullopt;
  }
  return current.back();
}

absl::StatusOr<FakeCudaDriver::Stream*> FakeCudaDriver::Current(void* stream,
                                                                absl::string_view call) {
  SLIMPS_RETURN_IF_ERROR(TakeFailure(call));
  const std::optional<int> device = CurrentDevice(call);
  if (!device.has_value()) return absl::InternalError("no current context");
  Stream* const found = Find(stream, *device);
  if (found == nullptr) return absl::InvalidArgumentError(absl::StrCat(call, ": no such stream"));
  if (found->device != *device) {
    Note(absl::StrCat(call, " on ", found->name(), " in the context of GPU ", *device));
    return absl::InvalidArgumentError(absl::StrCat(call, ": a stream of another context"));
  }
  return found;
}

void FakeCudaDriver::CheckMemory(const Use& use, const Stream& stream, bool on_device,
                                 absl::string_view what) {
  for (const auto& block : blocks_) {
    // The host's allocator may have given what was pinned once to a device.
    if (block->device.has_value() != on_device) continue;
    if (use.begin < block->begin() || use.end > block->end()) continue;
    if (block->freed) return Note(absl::StrCat(what, " uses memory that was freed"));
    if (on_device && *block->device != stream.device) {
      Note(absl::StrCat(what, " on ", stream.name(), " uses memory of GPU ", *block->device));
    }
    return;
  }
  Note(absl::StrCat(
      what, on_device ? " uses memory that is not a GPU's" : " uses pageable memory of the host"));
}

void FakeCudaDriver::CheckUnused(const Block& block, absl::string_view what) {
  for (const Access& access : accesses_) {
    if (access.use.begin < block.end() && block.begin() < access.use.end &&
        host_[access.stream] < access.work) {
      return Note(absl::StrCat(what, " freed while ", access.what, " may still use it"));
    }
  }
}

void FakeCudaDriver::Submit(Stream* stream, std::vector<Use> uses, std::string what,
                            std::function<void()> run) {
  std::erase_if(accesses_, [&](const Access& access) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return host_[access.stream] >= access.work;
  });
  Join(&stream->clock, host_);
  bool races = false;
  for (const Use& use : uses) {
    for (const Access& access : accesses_) {
      if (access.stream == stream->number || !(access.use.writes || use.writes) ||
          access.use.end <= use.begin || use.end <= access.use.begin ||
          stream->clock[access.stream] >= access.work) {
        continue;
      }
      Note(absl::StrCat(what, " on ", stream->name(), use.writes ? " writes" : " reads", " what ",
                        access.what, " on stream ", access.stream,
                        access.use.writes ? " writes" : " reads",
                        ", and waits for no event of it"));
      races = true;
    }
  }
  stream->clock[stream->number] = ++stream->submitted;
  for (const Use& use : uses) {
    accesses_.push_back({use, stream->number, stream->submitted, what});
  }
  // What races is noted and left undone, so that a thread sanitizer has nothing to find.
  stream->works.push_back(races ? [] {} : std::move(run));
  stream->changed.NotifyAll();
}

}  // namespace slimps
