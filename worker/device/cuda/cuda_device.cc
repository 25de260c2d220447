// SPDX-License-Identifier: Apache-2.0
#include "worker/device/cuda/cuda_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "compress/kernels/kernels.h"
#include "proto/base/buffer.h"
#include "proto/base/mutex.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/base/thread.h"
#include "worker/device/gradient_checks.h"
#include "worker/device/host_pool.h"
#include "worker/device/slab_pool.h"

namespace slimps {
namespace {

using Context = std::shared_ptr<const CudaContext>;

// Where halves arrive: the last bytes of the memory that their fp32 values will fill.
std::span<std::byte> HalvesIn(std::span<float> values) {
  return std::as_writable_bytes(values).last(2 * values.size());
}

// Arrived gradients are read by so many threads, so that a core's speed does not bound the copies.
constexpr int kCheckThreads = 4;

// GradientChecks::Largest. Halves are copied out block by block, so that the fp32 values, which end
// where the halves do, never reach those that are still to be read.
float MakeFloats(std::span<float> values, ElementType type) {
  const RawKernels& kernels = BestKernels().raw;
  if (type == ElementType::kFloat32) return kernels.largest(values.data(), values.size());
  const auto decode = type == ElementType::kFloat16 ? kernels.decode_f16 : kernels.decode_bf16;
  const std::span<std::byte> halves = HalvesIn(values);
  std::array<std::byte, 2048> block;
  float largest = 0;
  for (size_t begin = 0; begin < values.size(); begin += block.size() / 2) {
    const size_t count = std::min(block.size() / 2, values.size() - begin);
    std::ranges::copy(halves.subspan(2 * begin, 2 * count), block.begin());
    decode(block.data(), count, &values[begin]);
    largest = std::max(largest, kernels.largest(&values[begin], count));
  }
  return largest;
}

// Returns the error of a call about a stream that was given.
absl::Status OfStream(const CudaContext& context, const absl::Status& status) {
  return Prefixed(status,
                  absl::StrCat("the given stream, expected one of GPU ", context.ordinal()));
}

// CU_STREAM_PER_THREAD: whose stream it is depends on the thread that asks.
bool IsPerThread(StreamHandle stream) { return reinterpret_cast<uintptr_t>(stream) == 2; }

// REQUIRES: the context is current.
absl::Status CheckStream(const CudaContext& context, StreamHandle stream) {
  if (IsPerThread(stream)) {
    return absl::InvalidArgumentError(
        "stream 2 is each thread's own default stream: expected one that is the same for all "
        "threads");
  }
  const absl::StatusOr<bool> capturing = context.driver()->IsCapturing(stream);
  SLIMPS_RETURN_IF_ERROR(OfStream(context, capturing.status()));
  if (!*capturing) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the stream is being captured into a CUDA graph: a graph cannot hold what goes to the "
      "servers; push and pull outside of the capture");
}

// A CUDA event. Its holder owns and may move it, while the context is held and current.
// Thread-compatible.
class Event final {
 public:
  Event() = default;
  Event(Event&& other) noexcept { *this = std::move(other); }
  Event& operator=(Event&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (event_ != nullptr) driver_->DestroyEvent(event_);
  }
  static absl::StatusOr<Event> Create(CudaDriver* driver) {
    Event event;
    SLIMPS_ASSIGN_OR_RETURN(event.event_, driver->CreateEvent());
    event.driver_ = driver;
    return event;
  }
  void* get() const { return event_; }

 private:
  CudaDriver* driver_ = nullptr;
  void* event_ = nullptr;
};

// Payload memory, pinned: the copy engine reaches it without a copy in between, in every GPU's
// context, and other processes of the machine read it where it lies, if this process shares any.
class PinnedSlab final : public HostBlock {
 public:
  // Returns whole pages of at least so many bytes.
  static absl::StatusOr<std::unique_ptr<HostBlock>> Make(const Context& context, size_t bytes) {
    const auto make = [&]() -> absl::StatusOr<std::unique_ptr<PinnedSlab>> {
      return std::make_unique<PinnedSlab>(context, bytes);
    };
    const std::string what = absl::StrCat(bytes, " bytes of pinned memory");
    SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<PinnedSlab> slab, OrOutOfMemory(make, what));
    SLIMPS_RETURN_IF_ERROR(Prefixed(slab->Pin(), what));
    return slab;
  }
  PinnedSlab(Context context, size_t bytes) : context_(std::move(context)) {
    const size_t page = context_->driver()->page_bytes();
    bytes = (bytes + page - 1) / page * page;
    buffer_ = AlignedBuffer(bytes + page, BufferUse::kPayload);
    void* begin = buffer_.bytes().data();
    size_t room = buffer_.size();
    bytes_ = {static_cast<std::byte*>(std::align(page, bytes, begin, room)), bytes};
  }
  ~PinnedSlab() override {
    if (!pinned_) return;
    const CudaContext::Scope current(*context_);
    if (current.status().ok()) context_->driver()->Unpin(bytes_.data());
    madvise(bytes_.data(), bytes_.size(), MADV_DOFORK);
  }
  std::span<std::byte> bytes() override { return bytes_; }

 private:
  absl::Status Pin() {
    const CudaContext::Scope current(*context_);
    SLIMPS_RETURN_IF_ERROR(current.status());
    SLIMPS_RETURN_IF_ERROR(context_->driver()->Pin(bytes_.data(), bytes_.size()));
    pinned_ = true;
    // A child that is forked must not part the pages of the GPU from those of this process.
    if (madvise(bytes_.data(), bytes_.size(), MADV_DONTFORK) == 0) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, "cannot be kept from forked children (madvise)");
  }

  const Context context_;
  AlignedBuffer buffer_;
  std::span<std::byte> bytes_;  // of the buffer's, from a page's start
  bool pinned_ = false;
};

enum class Direction { kToHost, kToDevice };

// Runs the copies of one direction, in order, on a stream of its own. Thread-safe.
class CopyLane final {
 public:
  static absl::StatusOr<std::unique_ptr<CopyLane>> Create(const Context& context,
                                                          Direction direction) {
    const CudaContext::Scope current(*context);
    SLIMPS_RETURN_IF_ERROR(current.status());
    SLIMPS_ASSIGN_OR_RETURN(void* const stream, context->driver()->CreateStream());
    return std::unique_ptr<CopyLane>(new CopyLane(context, direction, stream));
  }

  // Completes the copies that were started, then joins the thread.
  ~CopyLane() {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    completion_thread_.Join();
    const CudaContext::Scope current(*context_);
    if (!current.status().ok()) return;
    driver_->DestroyStream(stream_);
    MutexLock lock(&mutex_);
    spare_events_.clear();
  }

  // Copies between `host` and as many bytes at `device`. `theirs` is the stream that `device`
  // belongs to.
  void Copy(KeyId key, std::span<std::byte> host, void* device, StreamHandle theirs,
            CopyDone done) {
    if (host.empty()) return done(key, absl::OkStatus());
    const absl::Status started = Start(key, host, device, theirs, done);
    if (!started.ok()) done(key, Prefixed(started, KeyName(key)));
  }

 private:
  struct Pending {
    KeyId key = 0;
    Event arrived;
    CopyDone done;
  };

  CopyLane(Context context, Direction direction, void* stream)
      : context_(std::move(context)),
        driver_(context_->driver()),
        direction_(direction),
        stream_(stream),
        completion_thread_("cuda-copies", [this] { Run(); }) {}

  // Starts a copy. After an error nothing is under way, and the caller still has to call `done`.
  absl::Status Start(KeyId key, std::span<std::byte> host, void* device, StreamHandle theirs,
                     CopyDone& done) {
    const CudaContext::Scope current(*context_);
    SLIMPS_RETURN_IF_ERROR(current.status());
    SLIMPS_RETURN_IF_ERROR(CheckStream(*context_, theirs));
    // The lock makes the order of the queue that of the stream.
    MutexLock lock(&mutex_);
    SLIMPS_ASSIGN_OR_RETURN(Event ready, TakeEvent());
    SLIMPS_ASSIGN_OR_RETURN(Event arrived, TakeEvent());
    SLIMPS_RETURN_IF_ERROR(OfStream(*context_, driver_->RecordEvent(ready.get(), theirs)));
    SLIMPS_RETURN_IF_ERROR(driver_->WaitForEvent(stream_, ready.get()));
    spare_events_.push_back(std::move(ready));  // the stream has noted what it waits for
    SLIMPS_RETURN_IF_ERROR(direction_ == Direction::kToHost
                               ? driver_->CopyToHost(host.data(), device, host.size(), stream_)
                               : driver_->CopyToDevice(device, host.data(), host.size(), stream_));
    absl::Status ordered = driver_->RecordEvent(arrived.get(), stream_);
    if (ordered.ok() && direction_ == Direction::kToDevice) {
      ordered = driver_->WaitForEvent(theirs, arrived.get());
    }
    if (!ordered.ok()) {
      // The copy may be running: it must end before the caller may give its memory back.
      (void)driver_->SynchronizeStream(stream_);
      return ordered;
    }
    pending_.push_back({key, std::move(arrived), std::move(done)});
    changed_.NotifyAll();
    return absl::OkStatus();
  }

  absl::StatusOr<Event> TakeEvent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (spare_events_.empty()) return Event::Create(driver_);
    Event event = std::move(spare_events_.back());
    spare_events_.pop_back();
    return event;
  }

  // Runs on the completion thread. Its waits end when the lane stops, or when the GPU has finished
  // or failed.
  void Run() {
    const CudaContext::Scope current(*context_);
    while (true) {
      Pending next;
      {
        MutexLock lock(&mutex_);
        while (pending_.empty() && !stopping_) changed_.Wait(&mutex_);
        if (pending_.empty()) return;
        next = std::move(pending_.front());
        pending_.pop_front();
      }
      absl::Status status = current.status();
      if (status.ok()) status = driver_->SynchronizeEvent(next.arrived.get());
      // The copy may still be running: it must end before `done` gives its memory back.
      if (!status.ok()) (void)driver_->SynchronizeStream(stream_);
      {
        MutexLock lock(&mutex_);
        spare_events_.push_back(std::move(next.arrived));
      }
      next.done(next.key, Prefixed(status, KeyName(next.key)));
    }
  }

  const Context context_;
  CudaDriver* const driver_;
  const Direction direction_;
  void* const stream_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Pending> pending_ ABSL_GUARDED_BY(mutex_);
  std::vector<Event> spare_events_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  Thread completion_thread_;  // the last member, since it uses all others
};

// Thread-safe.
class CudaDevice final : public Device {
 public:
  CudaDevice(const Context& context, std::unique_ptr<CopyLane> to_host,
             std::unique_ptr<CopyLane> to_device)
      : context_(context),
        pool_(SlabPool::Create(Slabs(), SlabPool::IdleSlabs::kWait)),
        kept_(SlabPool::Create(Slabs(), SlabPool::IdleSlabs::kAreFreed)),
        checks_(kCheckThreads, MakeFloats),
        to_host_(std::move(to_host)),
        to_device_(std::move(to_device)) {}

  absl::StatusOr<std::unique_ptr<HostBuffer>> AllocateHost(size_t elements) override {
    return pool_->Acquire(elements);
  }
  absl::StatusOr<std::unique_ptr<HostBuffer>> KeepHost(size_t elements) override {
    absl::StatusOr<std::unique_ptr<HostBuffer>> kept = kept_->Acquire(elements);
    if (!absl::IsResourceExhausted(kept.status())) return kept;
    pool_->FreeIdle();
    return kept_->Acquire(elements);
  }
  void LimitHost(size_t bytes) override { pool_->Limit(bytes); }
  void NoteRound(uint64_t round) override { pool_->NoteRound(round); }

  absl::Status CheckReachable(std::span<const float> values, StreamHandle stream) override {
    const CudaContext::Scope current(*context_);
    SLIMPS_RETURN_IF_ERROR(current.status());
    SLIMPS_ASSIGN_OR_RETURN(const std::optional<int> gpu, context_->driver()->GpuOf(values.data()));
    if (gpu != context_->ordinal()) {
      return absl::InvalidArgumentError(
          absl::StrCat("memory of ", gpu.has_value() ? absl::StrCat("GPU ", *gpu) : "the host",
                       ", expected memory of GPU ", context_->ordinal()));
    }
    return CheckStream(*context_, stream);
  }

  void CopyToHost(KeyId key, std::span<const float> source, StreamHandle producer,
                  std::span<float> destination, CopyDone done) override {
    absl::Status status = CheckCopy(key, source, destination);
    if (!status.ok()) return done(key, std::move(status));
    StartToHost(key, source, producer, std::as_writable_bytes(destination), std::move(done));
  }

  void CopyGradient(KeyId key, std::span<const float> source, const Place& place,
                    std::span<float> destination, GradientDone done) override {
    const absl::Status status = CheckCopy(key, source, destination);
    if (!status.ok()) return done(key, status);
    const auto gradient = std::make_shared<GradientChecks::Node>();
    gradient->push_back(
        {.key = key, .values = destination, .type = place.type, .done = std::move(done)});
    StartToHost(key, source, place.stream,
                place.type == ElementType::kFloat32 ? std::as_writable_bytes(destination)
                                                    : HalvesIn(destination),
                [this, gradient](KeyId, absl::Status arrived) {
                  gradient->front().arrived = std::move(arrived);
                  checks_.Add(gradient.get());
                });
  }

  void CopyToDevice(KeyId key, std::span<const float> source, std::span<float> destination,
                    StreamHandle consumer, CopyDone done) override {
    absl::Status status = CheckCopy(key, source, destination);
    if (!status.ok()) return done(key, std::move(status));
    // The lane only reads what is on the host.
    const std::span<float> host = {const_cast<float*>(source.data()), source.size()};
    to_device_->Copy(key, std::as_writable_bytes(host), destination.data(), consumer,
                     std::move(done));
  }

 private:
  void StartToHost(KeyId key, std::span<const float> source, StreamHandle producer,
                   std::span<std::byte> destination, CopyDone done) {
    // The lane only reads what is on the device.
    to_host_->Copy(key, destination, const_cast<float*>(source.data()), producer, std::move(done));
  }

  HostPool::MakeBlock Slabs() const {
    return [context = context_](size_t bytes) { return PinnedSlab::Make(context, bytes); };
  }

  const Context context_;
  const std::shared_ptr<SlabPool> pool_;
  const std::shared_ptr<SlabPool> kept_;  // for buffers that are held as long as a model
  GradientChecks checks_;                 // ends after the lanes, whose copies it reports
  const std::unique_ptr<CopyLane> to_host_;
  const std::unique_ptr<CopyLane> to_device_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(CudaDriver* driver, int ordinal) {
  SLIMPS_ASSIGN_OR_RETURN(const Context context, CudaContext::Retain(driver, ordinal));
  SLIMPS_ASSIGN_OR_RETURN(auto to_host, CopyLane::Create(context, Direction::kToHost));
  SLIMPS_ASSIGN_OR_RETURN(auto to_device, CopyLane::Create(context, Direction::kToDevice));
  return std::make_unique<CudaDevice>(context, std::move(to_host), std::move(to_device));
}

Devices::MakeGpu GpusOf(CudaDriver* driver) {
  return [given = driver](int ordinal) -> absl::StatusOr<std::unique_ptr<Device>> {
    if (given != nullptr) return MakeCudaDevice(given, ordinal);
    SLIMPS_ASSIGN_OR_RETURN(CudaDriver* const machines, LoadCudaDriver());
    return MakeCudaDevice(machines, ordinal);
  };
}

}  // namespace slimps
