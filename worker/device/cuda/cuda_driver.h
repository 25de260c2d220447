// SPDX-License-Identifier: Apache-2.0
// CudaDriver: the seam to the CUDA driver. LoadCudaDriver() opens the machine's libcuda.so.1 at run
// time, so one binary serves machines with and without a GPU. Tests have a driver of their own
// whose streams are threads (tests/worker/device/cuda/fake_cuda_driver.h).
//
//   SLIMPS_ASSIGN_OR_RETURN(CudaDriver* const driver, LoadCudaDriver());
//   SLIMPS_ASSIGN_OR_RETURN(auto context, CudaContext::Retain(driver, /*ordinal=*/0));
//   const CudaContext::Scope current(*context);      // current on this thread while it lives
//   SLIMPS_ASSIGN_OR_RETURN(void* const stream, driver->CreateStream());
//
// Handles are those of the driver API. What a context, stream or event is for, and which context
// must be current, is as in NVIDIA's "CUDA Driver API". Every error names the driver's call and has
// the driver's words for it:
//   ResourceExhausted: no memory, or none that may be locked.
//   InvalidArgument: a value or a handle that the call does not take.
//   Internal: anything else; often an earlier error of the device that appears late.
// Thread-safe.
#ifndef SLIMPS_WORKER_DEVICE_CUDA_CUDA_DRIVER_H_
#define SLIMPS_WORKER_DEVICE_CUDA_CUDA_DRIVER_H_

#include <unistd.h>

#include <cstddef>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slimps {

class CudaDriver {
 public:
  virtual ~CudaDriver() = default;

  virtual absl::StatusOr<int> DeviceCount() = 0;

  // The primary context of a GPU: the one that torch and the CUDA runtime use.
  virtual absl::StatusOr<void*> RetainPrimaryContext(int ordinal) = 0;
  virtual void ReleasePrimaryContext(int ordinal) = 0;
  // Until PopContext, the thread's calls leave alone what other threads capture into graphs.
  virtual absl::Status PushContext(void* context) = 0;
  virtual void PopContext() = 0;

  // A stream that does not wait for the legacy default stream.
  virtual absl::StatusOr<void*> CreateStream() = 0;
  virtual void DestroyStream(void* stream) = 0;
  // Makes the stream's later work wait for what `event` recorded last.
  virtual absl::Status WaitForEvent(void* stream, void* event) = 0;
  virtual absl::Status SynchronizeStream(void* stream) = 0;
  // True while the stream's calls are recorded into a graph instead of run.
  virtual absl::StatusOr<bool> IsCapturing(void* stream) = 0;

  // An event without timing. SynchronizeEvent sleeps while it waits.
  virtual absl::StatusOr<void*> CreateEvent() = 0;
  virtual void DestroyEvent(void* event) = 0;
  virtual absl::Status RecordEvent(void* event, void* stream) = 0;
  virtual absl::Status SynchronizeEvent(void* event) = 0;

  // Returns the size of the system's pages.
  virtual size_t page_bytes() const { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

  // Lets every GPU reach memory of the host without a copy in between, until Unpin.
  // REQUIRES: the memory begins at a page's start and no page of it is pinned yet.
  virtual absl::Status Pin(void* memory, size_t bytes) = 0;
  virtual void Unpin(void* memory) = 0;

  virtual absl::Status CopyToHost(void* host, const void* device, size_t bytes, void* stream) = 0;
  virtual absl::Status CopyToDevice(void* device, const void* host, size_t bytes, void* stream) = 0;

  // Returns the GPU that memory lies on; nullopt: memory of the host.
  virtual absl::StatusOr<std::optional<int>> GpuOf(const void* memory) = 0;
};

// Returns the machine's driver, opened and initialised by the first call that succeeds. It lives
// until the process ends.
// FailedPrecondition: there is no driver or no GPU, or the driver is older than CUDA 11.0; the
// message says which.
absl::StatusOr<CudaDriver*> LoadCudaDriver();

// Returns the GPU that memory lies on; nullopt: it is memory of the host, or this process does not
// use the CUDA driver, so that it can have no other. Opens and starts nothing, and needs no
// context.
std::optional<int> GpuOfAddress(const void* memory);

// A GPU's primary context, held. Shared by all that needs it: a pinned block may outlive its
// device. Thread-safe.
class CudaContext final {
 public:
  // REQUIRES: `driver` outlives the context.
  // FailedPrecondition: the machine has no GPU of this number.
  static absl::StatusOr<std::shared_ptr<const CudaContext>> Retain(CudaDriver* driver, int ordinal);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  // Makes the context the thread's current one, and restores the framework's own on destruction.
  class [[nodiscard]] Scope final {
   public:
    explicit Scope(const CudaContext& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    // Until this is OK nothing may be called that needs a context.
    const absl::Status& status() const { return status_; }

   private:
    CudaDriver* const driver_;
    const absl::Status status_;
  };

  CudaDriver* driver() const { return driver_; }
  int ordinal() const { return ordinal_; }

 private:
  CudaContext(CudaDriver* driver, int ordinal, void* context)
      : driver_(driver), ordinal_(ordinal), context_(context) {}

  CudaDriver* const driver_;
  const int ordinal_;
  void* const context_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_DEVICE_CUDA_CUDA_DRIVER_H_
