// SPDX-License-Identifier: Apache-2.0
// LoadCudaDriver of cuda_driver.h: the driver that the machine has.
#include <dlfcn.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"
#include "worker/device/cuda/cuda_driver.h"
#include "worker/device/cuda/libcuda_api.h"

namespace slimps {
namespace {

using libcuda::Api;
using libcuda::DevicePointer;
using libcuda::Result;

constexpr char kLibrary[] = "libcuda.so.1";

DevicePointer ToDevicePointer(const void* memory) {
  return reinterpret_cast<DevicePointer>(memory);
}

// Finds the library's functions one by one, and remembers the first that is missing.
class Resolver final {
 public:
  explicit Resolver(void* library) : library_(library) {}

  template <typename Function>
  void Find(Function** function, const char* name) {
    *function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (*function == nullptr && missing_.empty()) missing_ = name;
  }
  absl::string_view missing() const { return missing_; }

 private:
  void* const library_;
  absl::string_view missing_;
};

// Returns the name of a function that the library lacks; "" if it has all.
absl::string_view Resolve(void* library, Api* api) {
  Resolver functions(library);
  functions.Find(&api->GetErrorName, "cuGetErrorName");
  functions.Find(&api->GetErrorString, "cuGetErrorString");
  functions.Find(&api->Init, "cuInit");
  functions.Find(&api->DriverGetVersion, "cuDriverGetVersion");
  functions.Find(&api->DeviceGetCount, "cuDeviceGetCount");
  functions.Find(&api->DeviceGet, "cuDeviceGet");
  functions.Find(&api->DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  functions.Find(&api->DevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease_v2");
  functions.Find(&api->CtxPushCurrent_v2, "cuCtxPushCurrent_v2");
  functions.Find(&api->CtxPopCurrent_v2, "cuCtxPopCurrent_v2");
  functions.Find(&api->StreamCreate, "cuStreamCreate");
  functions.Find(&api->StreamDestroy_v2, "cuStreamDestroy_v2");
  functions.Find(&api->StreamWaitEvent, "cuStreamWaitEvent");
  functions.Find(&api->StreamSynchronize, "cuStreamSynchronize");
  functions.Find(&api->StreamIsCapturing, "cuStreamIsCapturing");
  functions.Find(&api->ThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
  functions.Find(&api->EventCreate, "cuEventCreate");
  functions.Find(&api->EventDestroy_v2, "cuEventDestroy_v2");
  functions.Find(&api->EventRecord, "cuEventRecord");
  functions.Find(&api->EventSynchronize, "cuEventSynchronize");
  functions.Find(&api->MemHostRegister_v2, "cuMemHostRegister_v2");
  functions.Find(&api->MemHostUnregister, "cuMemHostUnregister");
  functions.Find(&api->MemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync_v2");
  functions.Find(&api->MemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync_v2");
  functions.Find(&api->PointerGetAttribute, "cuPointerGetAttribute");
  return functions.missing();
}

// Returns what the thread's mode was before each context that it has pushed.
std::vector<int>& CaptureModes() {
  thread_local std::vector<int> modes;
  return modes;
}

// Thread-safe.
class Libcuda final : public CudaDriver {
 public:
  explicit Libcuda(const Api& api) : api_(api) {}

  absl::Status Init() {
    const absl::Status started = ToStatus(api_.Init(0), "cuInit");
    if (started.ok()) return started;
    return absl::FailedPreconditionError(
        absl::StrCat("no CUDA device on this machine: ", started.message()));
  }

  absl::StatusOr<int> DeviceCount() override {
    int count = 0;
    SLIMPS_RETURN_IF_ERROR(ToStatus(api_.DeviceGetCount(&count), "cuDeviceGetCount"));
    return count;
  }

  absl::StatusOr<void*> RetainPrimaryContext(int ordinal) override {
    libcuda::Device device = 0;
    SLIMPS_RETURN_IF_ERROR(ToStatus(api_.DeviceGet(&device, ordinal), "cuDeviceGet"));
    void* context = nullptr;
    SLIMPS_RETURN_IF_ERROR(
        ToStatus(api_.DevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain"));
    return context;
  }
  void ReleasePrimaryContext(int ordinal) override {
    libcuda::Device device = 0;
    if (api_.DeviceGet(&device, ordinal) == libcuda::kSuccess) {
      api_.DevicePrimaryCtxRelease_v2(device);
    }
  }
  absl::Status PushContext(void* context) override {
    SLIMPS_RETURN_IF_ERROR(ToStatus(api_.CtxPushCurrent_v2(context), "cuCtxPushCurrent"));
    // In other modes, to pin memory breaks a capture of any thread.
    int mode = libcuda::kCaptureModeRelaxed;
    api_.ThreadExchangeStreamCaptureMode(&mode);
    CaptureModes().push_back(mode);
    return absl::OkStatus();
  }
  void PopContext() override {
    api_.ThreadExchangeStreamCaptureMode(&CaptureModes().back());
    CaptureModes().pop_back();
    void* context = nullptr;
    api_.CtxPopCurrent_v2(&context);
  }

  absl::StatusOr<void*> CreateStream() override {
    void* stream = nullptr;
    SLIMPS_RETURN_IF_ERROR(
        ToStatus(api_.StreamCreate(&stream, libcuda::kStreamNonBlocking), "cuStreamCreate"));
    return stream;
  }
  void DestroyStream(void* stream) override { api_.StreamDestroy_v2(stream); }
  absl::Status WaitForEvent(void* stream, void* event) override {
    return ToStatus(api_.StreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
  }
  absl::Status SynchronizeStream(void* stream) override {
    return ToStatus(api_.StreamSynchronize(stream), "cuStreamSynchronize");
  }
  absl::StatusOr<bool> IsCapturing(void* stream) override {
    int status = libcuda::kCaptureStatusNone;
    SLIMPS_RETURN_IF_ERROR(
        ToStatus(api_.StreamIsCapturing(stream, &status), "cuStreamIsCapturing"));
    return status != libcuda::kCaptureStatusNone;
  }

  absl::StatusOr<void*> CreateEvent() override {
    void* event = nullptr;
    constexpr unsigned kFlags = libcuda::kEventBlockingSync | libcuda::kEventDisableTiming;
    SLIMPS_RETURN_IF_ERROR(ToStatus(api_.EventCreate(&event, kFlags), "cuEventCreate"));
    return event;
  }
  void DestroyEvent(void* event) override { api_.EventDestroy_v2(event); }
  absl::Status RecordEvent(void* event, void* stream) override {
    return ToStatus(api_.EventRecord(event, stream), "cuEventRecord");
  }
  absl::Status SynchronizeEvent(void* event) override {
    return ToStatus(api_.EventSynchronize(event), "cuEventSynchronize");
  }

  absl::Status Pin(void* memory, size_t bytes) override {
    return ToStatus(api_.MemHostRegister_v2(memory, bytes, libcuda::kHostRegisterPortable),
                    "cuMemHostRegister");
  }
  void Unpin(void* memory) override { api_.MemHostUnregister(memory); }

  absl::Status CopyToHost(void* host, const void* device, size_t bytes, void* stream) override {
    return ToStatus(api_.MemcpyDtoHAsync_v2(host, ToDevicePointer(device), bytes, stream),
                    "cuMemcpyDtoHAsync");
  }
  absl::Status CopyToDevice(void* device, const void* host, size_t bytes, void* stream) override {
    return ToStatus(api_.MemcpyHtoDAsync_v2(ToDevicePointer(device), host, bytes, stream),
                    "cuMemcpyHtoDAsync");
  }

  absl::StatusOr<std::optional<int>> GpuOf(const void* memory) override {
    unsigned type = 0;
    const Result known =
        api_.PointerGetAttribute(&type, libcuda::kMemoryTypeAttribute, ToDevicePointer(memory));
    // The driver has not heard of it: memory that the host's allocator gave.
    if (known == libcuda::kInvalidValue) return std::nullopt;
    SLIMPS_RETURN_IF_ERROR(ToStatus(known, "cuPointerGetAttribute"));
    if (type != libcuda::kMemoryTypeDevice) return std::nullopt;
    int ordinal = 0;
    SLIMPS_RETURN_IF_ERROR(
        ToStatus(api_.PointerGetAttribute(&ordinal, libcuda::kDeviceOrdinalAttribute,
                                          ToDevicePointer(memory)),
                 "cuPointerGetAttribute"));
    return ordinal;
  }

 private:
  absl::Status ToStatus(Result result, absl::string_view call) const {
    if (result == libcuda::kSuccess) return absl::OkStatus();
    const char* name = nullptr;
    const char* text = nullptr;
    if (api_.GetErrorName(result, &name) != libcuda::kSuccess) name = "an unknown error";
    if (api_.GetErrorString(result, &text) != libcuda::kSuccess) text = "no text";
    const std::string message = absl::StrCat(call, ": ", name, " (", text, ")");
    switch (result) {
      case libcuda::kOutOfMemory:
        return absl::ResourceExhaustedError(message);
      case libcuda::kInvalidValue:
      case libcuda::kInvalidHandle:
        return absl::InvalidArgumentError(message);
      default:
        return absl::InternalError(message);
    }
  }

  const Api api_;
};

// Returns a driver's number in words.
std::string VersionName(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

absl::StatusOr<CudaDriver*> Load() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("no CUDA driver on this machine: ", dlerror()));
  }
  Api api = {};
  const absl::string_view missing = Resolve(library, &api);
  int version = 0;
  if (api.DriverGetVersion != nullptr) api.DriverGetVersion(&version);
  if (!missing.empty() || version < libcuda::kOldestDriver) {
    return absl::FailedPreconditionError(
        absl::StrCat("the CUDA driver is too old: ", kLibrary, " is of CUDA ", VersionName(version),
                     missing.empty() ? "" : absl::StrCat(" and lacks ", missing), ", expected ",
                     VersionName(libcuda::kOldestDriver), " or later"));
  }
  auto driver = std::make_unique<Libcuda>(api);
  SLIMPS_RETURN_IF_ERROR(driver->Init());
  // Neither is freed: torch may use the driver until the process ends.
  return driver.release();
}

}  // namespace

absl::StatusOr<CudaDriver*> LoadCudaDriver() {
  static Mutex& mutex = *new Mutex;
  static CudaDriver* loaded = nullptr;  // guarded by `mutex`
  MutexLock lock(&mutex);
  // A failure is not kept: the GPU may come later.
  if (loaded == nullptr) {
    SLIMPS_ASSIGN_OR_RETURN(loaded, Load());
  }
  return loaded;
}

}  // namespace slimps
