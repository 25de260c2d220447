// SPDX-License-Identifier: Apache-2.0
// The CUDA device. No other file knows CUDA. It uses the runtime API only, so the host compiler
// builds it.
//
//   caller                              lane (one per direction)
//   record `ready` on the default  -->  stream: wait(ready), cudaMemcpyAsync, record `arrived`
//   stream                              thread: cudaEventSynchronize(arrived), done(key, status)
//
// Each direction has its own non-blocking stream. So gradients going down and weights coming up use
// both copy engines. A copy waits only for the framework's kernels that made its source, and delays
// none of them.
#include <cuda_runtime_api.h>

#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"
#include "proto/base/thread.h"
#include "worker/device/device.h"
#include "worker/device/host_pool.h"

namespace slimps {
namespace {

absl::Status FromCuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  // Clears the error, so that the framework does not find it on this thread.
  cudaGetLastError();
  const std::string message =
      absl::StrCat(call, ": ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")");
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(message);
    case cudaErrorInvalidValue:
      return absl::InvalidArgumentError(message);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDevice:
      return absl::FailedPreconditionError(message);
    default:
      return absl::InternalError(message);
  }
}

// Makes a GPU the calling thread's current one, and restores the framework's own choice on
// destruction.
class OnDevice final {
 public:
  explicit OnDevice(int ordinal) {
    if (cudaGetDevice(&previous_) != cudaSuccess) previous_ = ordinal;
    status_ = FromCuda(cudaSetDevice(ordinal), "cudaSetDevice");
  }
  ~OnDevice() { cudaSetDevice(previous_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  const absl::Status& status() const { return status_; }

 private:
  int previous_ = 0;
  absl::Status status_;
};

// A CUDA event without timing; waiting for it sleeps. Its holder owns and may move it.
// Thread-compatible.
class Event final {
 public:
  Event() = default;
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  static absl::StatusOr<Event> Create() {
    Event event;
    SLIMPS_RETURN_IF_ERROR(FromCuda(
        cudaEventCreateWithFlags(&event.event_, cudaEventDisableTiming | cudaEventBlockingSync),
        "cudaEventCreateWithFlags"));
    return event;
  }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Pinned memory, which the copy engine reaches without an intermediate copy. Portable: valid in
// every GPU's context.
class PinnedBlock final : public HostBlock {
 public:
  explicit PinnedBlock(std::span<std::byte> bytes) : bytes_(bytes) {}
  ~PinnedBlock() override {
    if (!bytes_.empty()) cudaFreeHost(bytes_.data());
  }
  std::span<std::byte> bytes() override { return bytes_; }

 private:
  const std::span<std::byte> bytes_;
};

absl::StatusOr<std::unique_ptr<HostBlock>> MakePinnedBlock(int ordinal, size_t bytes) {
  if (bytes == 0) return std::make_unique<PinnedBlock>(std::span<std::byte>());
  const OnDevice on_device(ordinal);
  SLIMPS_RETURN_IF_ERROR(on_device.status());
  void* data = nullptr;
  SLIMPS_RETURN_IF_ERROR(
      FromCuda(cudaHostAlloc(&data, bytes, cudaHostAllocPortable), "cudaHostAlloc"));
  return std::make_unique<PinnedBlock>(std::span(static_cast<std::byte*>(data), bytes));
}

// Runs the copies of one direction, in order, on a stream of its own. Thread-safe.
class CopyLane final {
 public:
  static absl::StatusOr<std::unique_ptr<CopyLane>> Create(int ordinal, cudaMemcpyKind kind) {
    const OnDevice on_device(ordinal);
    SLIMPS_RETURN_IF_ERROR(on_device.status());
    cudaStream_t stream = nullptr;
    SLIMPS_RETURN_IF_ERROR(FromCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                    "cudaStreamCreateWithFlags"));
    return std::unique_ptr<CopyLane>(new CopyLane(ordinal, kind, stream));
  }

  // Completes the copies that were started, then joins the thread.
  ~CopyLane() {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    completion_thread_.Join();
    cudaStreamDestroy(stream_);
  }

  void Copy(KeyId key, std::span<const float> source, std::span<float> destination, CopyDone done) {
    absl::Status status = CheckCopy(key, source, destination);
    if (status.ok()) status = Start(key, source, destination, done);
    if (!status.ok()) done(key, std::move(status));
  }

 private:
  struct Pending {
    KeyId key = 0;
    Event arrived;
    CopyDone done;
  };

  CopyLane(int ordinal, cudaMemcpyKind kind, cudaStream_t stream)
      : ordinal_(ordinal),
        kind_(kind),
        stream_(stream),
        completion_thread_("cuda-copies", [this] { Run(); }) {}

  // Starts a copy. After an error nothing is queued, and the caller still has to call `done`.
  absl::Status Start(KeyId key, std::span<const float> source, std::span<float> destination,
                     CopyDone& done) {
    const OnDevice on_device(ordinal_);
    SLIMPS_RETURN_IF_ERROR(on_device.status());
    // The lock makes the order of the queue that of the stream.
    MutexLock lock(&mutex_);
    SLIMPS_ASSIGN_OR_RETURN(Event ready, TakeEvent());
    SLIMPS_ASSIGN_OR_RETURN(Event arrived, TakeEvent());
    SLIMPS_RETURN_IF_ERROR(FromCuda(cudaEventRecord(ready.get(), cudaStreamLegacy),
                                    "cudaEventRecord on the default stream"));
    SLIMPS_RETURN_IF_ERROR(
        FromCuda(cudaStreamWaitEvent(stream_, ready.get(), 0), "cudaStreamWaitEvent"));
    SLIMPS_RETURN_IF_ERROR(FromCuda(
        cudaMemcpyAsync(destination.data(), source.data(), source.size_bytes(), kind_, stream_),
        "cudaMemcpyAsync"));
    const absl::Status recorded =
        FromCuda(cudaEventRecord(arrived.get(), stream_), "cudaEventRecord");
    if (!recorded.ok()) {
      // The copy may be running: it must end before the caller may give its memory back.
      cudaStreamSynchronize(stream_);
      return recorded;
    }
    spare_events_.push_back(std::move(ready));  // the stream has recorded the wait already
    pending_.push_back({key, std::move(arrived), std::move(done)});
    changed_.NotifyAll();
    return absl::OkStatus();
  }

  absl::StatusOr<Event> TakeEvent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (spare_events_.empty()) return Event::Create();
    Event event = std::move(spare_events_.back());
    spare_events_.pop_back();
    return event;
  }

  // Runs on the completion thread. Its waits end when the lane stops, or when the GPU has finished
  // or failed.
  void Run() {
    cudaSetDevice(ordinal_);
    while (true) {
      Pending next;
      {
        MutexLock lock(&mutex_);
        while (pending_.empty() && !stopping_) changed_.Wait(&mutex_);
        if (pending_.empty()) return;
        next = std::move(pending_.front());
        pending_.pop_front();
      }
      absl::Status status =
          FromCuda(cudaEventSynchronize(next.arrived.get()), "cudaEventSynchronize");
      {
        MutexLock lock(&mutex_);
        spare_events_.push_back(std::move(next.arrived));
      }
      next.done(next.key, std::move(status));
    }
  }

  const int ordinal_;
  const cudaMemcpyKind kind_;
  const cudaStream_t stream_;

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
  CudaDevice(int ordinal, std::unique_ptr<CopyLane> to_host, std::unique_ptr<CopyLane> to_device)
      : pool_(
            HostPool::Create([ordinal](size_t bytes) { return MakePinnedBlock(ordinal, bytes); })),
        to_host_(std::move(to_host)),
        to_device_(std::move(to_device)) {}

  absl::StatusOr<std::unique_ptr<HostBuffer>> AllocateHost(size_t elements) override {
    return pool_->Acquire(elements);
  }
  void LimitHost(size_t bytes) override { pool_->Limit(bytes); }
  void CopyToHost(KeyId key, std::span<const float> source, std::span<float> destination,
                  CopyDone done) override {
    to_host_->Copy(key, source, destination, std::move(done));
  }
  void CopyToDevice(KeyId key, std::span<const float> source, std::span<float> destination,
                    CopyDone done) override {
    to_device_->Copy(key, source, destination, std::move(done));
  }

 private:
  const std::shared_ptr<HostPool> pool_;
  const std::unique_ptr<CopyLane> to_host_;
  const std::unique_ptr<CopyLane> to_device_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int ordinal) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return absl::FailedPreconditionError(
        absl::StrCat("no CUDA device on this machine: ", cudaGetErrorString(error)));
  }
  if (ordinal < 0 || ordinal >= count) {
    return absl::FailedPreconditionError(
        absl::StrCat("CUDA device ", ordinal, " asked for, this machine has ", count));
  }
  SLIMPS_ASSIGN_OR_RETURN(auto to_host, CopyLane::Create(ordinal, cudaMemcpyDeviceToHost));
  SLIMPS_ASSIGN_OR_RETURN(auto to_device, CopyLane::Create(ordinal, cudaMemcpyHostToDevice));
  return std::make_unique<CudaDevice>(ordinal, std::move(to_host), std::move(to_device));
}

}  // namespace slimps
