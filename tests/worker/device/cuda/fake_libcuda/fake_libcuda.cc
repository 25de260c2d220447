// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 for tests: FakeCudaDriver behind the C functions that this project calls, and
// those that a test calls in a framework's place. A process finds it by LD_LIBRARY_PATH. It has two
// GPUs.
//
// It has no compiler: it takes any module that declares the kernels of tools/bench/gpu, and
// computes them on the host.
//
// It is of CUDA 12.9, or of what SLIMPS_FAKE_CUDA_VERSION says: 9020 is 9.2.
//
// Beside the driver's functions it exports
//   const char* slimps_fake_misuses(void)    what was misused since the last call, a line each
//   size_t slimps_fake_pinned_bytes(void)    host memory that is pinned
//   void slimps_fake_allocate_on(int gpu)    where a framework's next arrays lie; 0 at first
//   void slimps_fake_hold(void)              gives GPU 0's legacy default stream work that goes on
//   void slimps_fake_release(void)           until here
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <semaphore>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/tools/bench/gpu/host_kernels.h"
#include "tests/worker/device/cuda/fake_cuda_driver.h"
#include "worker/device/cuda/libcuda_api.h"

namespace slimps::libcuda {
namespace {

constexpr int kNotFound = 500;  // CUDA_ERROR_NOT_FOUND
constexpr int kUnknown = 999;   // CUDA_ERROR_UNKNOWN
constexpr char kVersionVariable[] = "SLIMPS_FAKE_CUDA_VERSION";

FakeCudaDriver& Driver() {
  static FakeCudaDriver& driver =
      *new FakeCudaDriver({.devices = 2, .longest_delay = absl::Microseconds(500)});
  return driver;
}

Result ToResult(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kSuccess;
    case absl::StatusCode::kInvalidArgument:
      return kInvalidValue;
    case absl::StatusCode::kResourceExhausted:
      return kOutOfMemory;
    default:
      return kUnknown;
  }
}

template <typename T>
Result Give(absl::StatusOr<T> made, T* out) {
  if (made.ok()) *out = *made;
  return ToResult(made.status());
}

thread_local int capture_mode = 0;  // CU_STREAM_CAPTURE_MODE_GLOBAL

// Notes a call that would break a capture of another thread.
void CheckCaptureMode(const char* call) {
  if (capture_mode == kCaptureModeRelaxed) return;
  Driver().NoteMisuse(std::string(call) + " outside of the relaxed capture mode");
}

std::counting_semaphore<> released(0);

std::atomic<int> frameworks_gpu{0};  // publishes nothing else

float* At(DevicePointer memory) { return reinterpret_cast<float*>(memory); }

// Returns the GPU that memory lies on; 0 for any other memory.
int GpuOf(DevicePointer memory) {
  const absl::StatusOr<std::optional<int>> gpu = Driver().GpuOf(At(memory));
  return gpu.ok() ? gpu->value_or(0) : 0;
}

struct Kernel {
  std::string_view name;
  void (*compute)(unsigned blocks, void** parameters);
};

template <typename T>
T Parameter(void** parameters, size_t place) {
  return *static_cast<T*>(parameters[place]);
}

void Encode1Bit(unsigned blocks, void** p) {
  Encode1BitOnHost(blocks, Parameter<const float*>(p, 0), Parameter<float*>(p, 1),
                   Parameter<float>(p, 2), Parameter<uint32_t>(p, 3), Parameter<uint8_t*>(p, 4));
}

void Encode2Bit(unsigned blocks, void** p) {
  Encode2BitOnHost(blocks, Parameter<const float*>(p, 0), Parameter<float*>(p, 1),
                   Parameter<float>(p, 2), Parameter<float>(p, 3), Parameter<uint32_t>(p, 4),
                   Parameter<uint8_t*>(p, 5));
}

constexpr Kernel kKernels[] = {{"slimps_encode_1bit", Encode1Bit},
                               {"slimps_encode_2bit", Encode2Bit}};

}  // namespace

extern "C" {

#define EXPORT __attribute__((visibility("default")))

EXPORT Result cuGetErrorName(Result error, const char** name) {
  *name = error == kInvalidValue  ? "CUDA_ERROR_INVALID_VALUE"
          : error == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
                                  : "CUDA_ERROR_UNKNOWN";
  return kSuccess;
}
EXPORT Result cuGetErrorString(Result, const char** text) {
  *text = "said by the fake driver";
  return kSuccess;
}
EXPORT Result cuInit(unsigned) { return kSuccess; }
EXPORT Result cuDriverGetVersion(int* version) {
  const char* const wanted = std::getenv(kVersionVariable);
  *version = wanted == nullptr ? 12090 : std::atoi(wanted);
  return kSuccess;
}
EXPORT Result cuDeviceGetCount(int* count) { return Give(Driver().DeviceCount(), count); }
EXPORT Result cuDeviceGet(Device* device, int ordinal) {
  *device = ordinal;
  return kSuccess;
}
EXPORT Result cuDevicePrimaryCtxRetain(Handle* context, Device device) {
  return Give(Driver().RetainPrimaryContext(device), context);
}
EXPORT Result cuDevicePrimaryCtxRelease_v2(Device device) {
  Driver().ReleasePrimaryContext(device);
  return kSuccess;
}
EXPORT Result cuCtxPushCurrent_v2(Handle context) {
  return ToResult(Driver().PushContext(context));
}
EXPORT Result cuCtxPopCurrent_v2(Handle*) {
  Driver().PopContext();
  return kSuccess;
}
EXPORT Result cuStreamCreate(Handle* stream, unsigned) {
  return Give(Driver().CreateStream(), stream);
}
EXPORT Result cuStreamDestroy_v2(Handle stream) {
  Driver().DestroyStream(stream);
  return kSuccess;
}
EXPORT Result cuStreamWaitEvent(Handle stream, Handle event, unsigned) {
  return ToResult(Driver().WaitForEvent(stream, event));
}
EXPORT Result cuStreamSynchronize(Handle stream) {
  return ToResult(Driver().SynchronizeStream(stream));
}
EXPORT Result cuStreamIsCapturing(Handle stream, int* status) {
  bool capturing = false;
  const Result asked = Give(Driver().IsCapturing(stream), &capturing);
  *status = capturing ? 1 : kCaptureStatusNone;
  return asked;
}
EXPORT Result cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return kSuccess;
}
EXPORT Result cuEventCreate(Handle* event, unsigned) { return Give(Driver().CreateEvent(), event); }
EXPORT Result cuEventDestroy_v2(Handle event) {
  Driver().DestroyEvent(event);
  return kSuccess;
}
EXPORT Result cuEventRecord(Handle event, Handle stream) {
  return ToResult(Driver().RecordEvent(event, stream));
}
EXPORT Result cuEventSynchronize(Handle event) {
  return ToResult(Driver().SynchronizeEvent(event));
}
EXPORT Result cuMemHostRegister_v2(void* memory, size_t bytes, unsigned) {
  CheckCaptureMode("cuMemHostRegister");
  return ToResult(Driver().Pin(memory, bytes));
}
EXPORT Result cuMemHostUnregister(void* memory) {
  CheckCaptureMode("cuMemHostUnregister");
  Driver().Unpin(memory);
  return kSuccess;
}
EXPORT Result cuMemcpyDtoHAsync_v2(void* host, DevicePointer device, size_t bytes, Handle stream) {
  return ToResult(Driver().CopyToHost(host, At(device), bytes, stream));
}
EXPORT Result cuMemcpyHtoDAsync_v2(DevicePointer device, const void* host, size_t bytes,
                                   Handle stream) {
  return ToResult(Driver().CopyToDevice(At(device), host, bytes, stream));
}
EXPORT Result cuPointerGetAttribute(void* value, int attribute, DevicePointer pointer) {
  std::optional<int> gpu;
  if (Give(Driver().GpuOf(At(pointer)), &gpu) != kSuccess) return kUnknown;
  if (!gpu.has_value()) return kInvalidValue;
  if (attribute == kMemoryTypeAttribute) {
    *static_cast<unsigned*>(value) = kMemoryTypeDevice;
  } else {
    *static_cast<int*>(value) = *gpu;
  }
  return kSuccess;
}

// ---- what a test calls in a framework's place: the legacy default stream of the memory's GPU ---

EXPORT Result cuMemAlloc_v2(DevicePointer* memory, size_t bytes) {
  *memory = reinterpret_cast<DevicePointer>(
      Driver().Allocate(frameworks_gpu, bytes / sizeof(float)).data());
  return kSuccess;
}
EXPORT Result cuMemFree_v2(DevicePointer memory) {
  Driver().Free({At(memory), 0});
  return kSuccess;
}
EXPORT Result cuMemsetD8Async(DevicePointer memory, unsigned char value, size_t bytes,
                              Handle stream) {
  const std::span<float> to(At(memory), bytes / sizeof(float));
  Driver().Launch(stream, {}, to, [=] {
    const std::span<std::byte> all = std::as_writable_bytes(to);
    std::fill(all.begin(), all.end(), std::byte(value));
  });
  return kSuccess;
}
// Copies after what the default stream was given, and waits. The host's memory may be pageable.
EXPORT Result cuMemcpyHtoD_v2(DevicePointer device, const void* host, size_t bytes) {
  const std::span<float> to(At(device), bytes / sizeof(float));
  const int gpu = GpuOf(device);
  Driver().Launch(
      nullptr, {}, to, [=] { std::copy_n(static_cast<const float*>(host), to.size(), to.begin()); },
      gpu);
  Driver().Await(nullptr, gpu);
  return kSuccess;
}
EXPORT Result cuMemcpyDtoH_v2(void* host, DevicePointer device, size_t bytes) {
  const std::span<const float> from(At(device), bytes / sizeof(float));
  const int gpu = GpuOf(device);
  Driver().Launch(
      nullptr, from, {}, [=] { std::copy(from.begin(), from.end(), static_cast<float*>(host)); },
      gpu);
  Driver().Await(nullptr, gpu);
  return kSuccess;
}

// ---- kernels, which read and write the host's memory before the call returns -------------------

EXPORT Result cuModuleLoadData(Handle* module, const void* ptx) {
  *module = new std::string(static_cast<const char*>(ptx));  // lives as long as the process
  return kSuccess;
}
EXPORT Result cuModuleGetFunction(Handle* function, Handle module, const char* name) {
  const std::string& ptx = *static_cast<const std::string*>(module);
  for (const Kernel& kernel : kKernels) {
    if (kernel.name == name && absl::StrContains(ptx, absl::StrCat(".entry ", name, "("))) {
      *function = const_cast<Kernel*>(&kernel);
      return kSuccess;
    }
  }
  return kNotFound;
}
EXPORT Result cuLaunchKernel(Handle function, unsigned blocks, unsigned blocks_y, unsigned blocks_z,
                             unsigned threads, unsigned threads_y, unsigned threads_z,
                             unsigned /*shared_bytes*/, Handle /*stream*/, void** parameters,
                             void** /*extra*/) {
  if (threads != kHostKernelThreads || threads_y * threads_z * blocks_y * blocks_z != 1) {
    return kInvalidValue;
  }
  static_cast<const Kernel*>(function)->compute(blocks, parameters);
  return kSuccess;
}

EXPORT size_t slimps_fake_pinned_bytes() { return Driver().pinned_bytes(); }

EXPORT void slimps_fake_allocate_on(int gpu) { frameworks_gpu = gpu; }

EXPORT void slimps_fake_hold() {
  Driver().Launch(nullptr, {}, {}, [] { released.acquire(); });
}
EXPORT void slimps_fake_release() { released.release(); }

EXPORT const char* slimps_fake_misuses() {
  static std::string& said = *new std::string;
  said = absl::StrJoin(Driver().TakeMisuses(), "\n");
  return said.c_str();
}

}  // extern "C"
}  // namespace slimps::libcuda
