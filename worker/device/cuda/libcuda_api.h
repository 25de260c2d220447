// SPDX-License-Identifier: Apache-2.0
// What of the CUDA driver's C interface (libcuda.so.1) this project calls. The names of the members
// are those that the library exports, without "cu". No toolkit is needed to build: a test under
// --config=cuda compares these declarations with the toolkit's cuda.h.
#ifndef SLIMPS_WORKER_DEVICE_CUDA_LIBCUDA_API_H_
#define SLIMPS_WORKER_DEVICE_CUDA_LIBCUDA_API_H_

#include <cstddef>

namespace slimps::libcuda {

using Result = int;                        // CUresult
using Device = int;                        // CUdevice
using DevicePointer = unsigned long long;  // CUdeviceptr; NOLINT(google-runtime-int): as in cuda.h
using Handle = void*;                      // CUcontext, CUstream, CUevent

// CUresult
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidHandle = 400;

inline constexpr unsigned kStreamNonBlocking = 1;     // CU_STREAM_NON_BLOCKING
inline constexpr unsigned kEventBlockingSync = 1;     // CU_EVENT_BLOCKING_SYNC
inline constexpr unsigned kEventDisableTiming = 2;    // CU_EVENT_DISABLE_TIMING
inline constexpr unsigned kHostRegisterPortable = 1;  // CU_MEMHOSTREGISTER_PORTABLE
inline constexpr int kMemoryTypeAttribute = 2;        // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
inline constexpr int kDeviceOrdinalAttribute = 9;     // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
inline constexpr unsigned kMemoryTypeDevice = 2;      // CU_MEMORYTYPE_DEVICE
inline constexpr int kCaptureStatusNone = 0;          // CU_STREAM_CAPTURE_STATUS_NONE
inline constexpr int kCaptureModeRelaxed = 2;         // CU_STREAM_CAPTURE_MODE_RELAXED
inline constexpr int kOldestDriver = 11000;           // CUDA 11.0, which has all that is below

struct Api {
  Result (*GetErrorName)(Result error, const char** name);
  Result (*GetErrorString)(Result error, const char** text);
  Result (*Init)(unsigned flags);
  Result (*DriverGetVersion)(int* version);
  Result (*DeviceGetCount)(int* count);
  Result (*DeviceGet)(Device* device, int ordinal);
  Result (*DevicePrimaryCtxRetain)(Handle* context, Device device);
  Result (*DevicePrimaryCtxRelease_v2)(Device device);
  Result (*CtxPushCurrent_v2)(Handle context);
  Result (*CtxPopCurrent_v2)(Handle* context);
  Result (*StreamCreate)(Handle* stream, unsigned flags);
  Result (*StreamDestroy_v2)(Handle stream);
  Result (*StreamWaitEvent)(Handle stream, Handle event, unsigned flags);
  Result (*StreamSynchronize)(Handle stream);
  Result (*StreamIsCapturing)(Handle stream, int* status);
  Result (*ThreadExchangeStreamCaptureMode)(int* mode);
  Result (*EventCreate)(Handle* event, unsigned flags);
  Result (*EventDestroy_v2)(Handle event);
  Result (*EventRecord)(Handle event, Handle stream);
  Result (*EventSynchronize)(Handle event);
  Result (*MemHostRegister_v2)(void* memory, size_t bytes, unsigned flags);
  Result (*MemHostUnregister)(void* memory);
  Result (*MemcpyDtoHAsync_v2)(void* host, DevicePointer device, size_t bytes, Handle stream);
  Result (*MemcpyHtoDAsync_v2)(DevicePointer device, const void* host, size_t bytes, Handle stream);
  Result (*PointerGetAttribute)(void* value, int attribute, DevicePointer pointer);
};

}  // namespace slimps::libcuda

#endif  // SLIMPS_WORKER_DEVICE_CUDA_LIBCUDA_API_H_
