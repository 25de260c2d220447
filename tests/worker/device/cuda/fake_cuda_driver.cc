// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/device/cuda/fake_cuda_driver.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/thread.h"

namespace slimps {
namespace {

constexpr uintptr_t kContexts = 0x1000;  // a context's handle is this and its device

void* ContextOf(int device) {
  return reinterpret_cast<void*>(kContexts + static_cast<uintptr_t>(device));
}

uint64_t ThisThread() {
  static std::atomic<uint64_t> next{1};
  thread_local const uint64_t number = next.fetch_add(1);
  return number;
}

void Join(std::map<int, uint64_t>* clock, const std::map<int, uint64_t>& other) {
  for (const auto& [stream, work] : other) {
    uint64_t& known = (*clock)[stream];
    known = std::max(known, work);
  }
}

}  // namespace

struct FakeCudaDriver::Block {
  std::unique_ptr<std::byte, decltype(&std::free)> memory{nullptr, &std::free};
  size_t bytes = 0;
  std::optional<int> device;  // nullopt: pinned
  bool freed = false;
  const std::byte* begin() const { return memory.get(); }
  const std::byte* end() const { return begin() + bytes; }
};

struct FakeCudaDriver::Event {
  int device = 0;
  Stream* stream = nullptr;  // null: never recorded, so nothing to wait for
  uint64_t work = 0;
  Clock clock;
  bool destroyed = false;
};

// Runs its works one after another on a thread.
class FakeCudaDriver::Stream final {
 public:
  Stream(FakeCudaDriver* driver, int device, int number, bool frameworks)
      : device(device),
        number(number),
        frameworks(frameworks),
        driver_(driver),
        thread_(absl::StrCat("fake-stream-", number), [this] { Run(); }) {}
  ~Stream() { thread_.Join(); }

  std::string name() const { return absl::StrCat("stream ", number, " of GPU ", device); }

  const int device;
  const int number;
  const bool frameworks;

  // Guarded by the driver's mutex.
  bool destroyed = false;
  bool capturing = false;
  bool stopping = false;
  uint64_t submitted = 0, finished = 0;
  Clock clock;
  std::deque<std::function<void()>> works;
  CondVar changed;

 private:
  void Run() {
    for (;;) {
      std::function<void()> work;
      absl::Duration delay;
      {
        MutexLock lock(&driver_->mutex_);
        while (works.empty() && !stopping) changed.Wait(&driver_->mutex_);
        if (works.empty()) return;
        work = std::move(works.front());
        works.pop_front();
        delay = driver_->Delay();
      }
      absl::SleepFor(delay);
      work();
      MutexLock lock(&driver_->mutex_);
      ++finished;
      // Who waits for this work does so at this stream.
      changed.NotifyAll();
    }
  }

  FakeCudaDriver* const driver_;
  Thread thread_;  // the last member, since it uses all others
};

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
  block->bytes = elements * sizeof(float);
  block->memory.reset(static_cast<std::byte*>(std::calloc(std::max<size_t>(elements, 1), 4)));
  block->device = device;
  auto* const begin = reinterpret_cast<float*>(block->memory.get());
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

void FakeCudaDriver::Await(void* stream) {
  MutexLock lock(&mutex_);
  Stream* const found = Find(stream, 0);
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
    if (use.begin < block->begin() || use.end > block->end()) continue;
    if (block->device.has_value() != on_device) break;
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
    }
  }
  stream->clock[stream->number] = ++stream->submitted;
  for (const Use& use : uses) {
    accesses_.push_back({use, stream->number, stream->submitted, what});
  }
  stream->works.push_back(std::move(run));
  stream->changed.NotifyAll();
}

// ---- CudaDriver ---------------------------------------------------------------------------------

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

absl::StatusOr<void*> FakeCudaDriver::AllocatePinned(size_t bytes) {
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(TakeFailure("AllocatePinned"));
  (void)CurrentDevice("AllocatePinned");
  auto block = std::make_unique<Block>();
  block->bytes = bytes;
  constexpr size_t kAlignment = 4096;
  block->memory.reset(static_cast<std::byte*>(
      std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment)));
  void* const memory = block->memory.get();
  blocks_.push_back(std::move(block));
  return memory;
}

void FakeCudaDriver::FreePinned(void* memory) {
  MutexLock lock(&mutex_);
  (void)CurrentDevice("FreePinned");
  for (const auto& block : blocks_) {
    if (block->freed || block->begin() != memory) continue;
    CheckUnused(*block, "pinned memory");
    block->freed = true;
    return;
  }
  Note("pinned memory freed that is none");
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
