// SPDX-License-Identifier: Apache-2.0
// Compares libcuda_api.h with the toolkit's cuda.h under --config=cuda. It needs the header alone,
// no GPU.
#include <gtest/gtest.h>

#ifdef SLIMPS_TEST_CUDA
#include <cuda.h>

#include <type_traits>

#include "worker/device/cuda/libcuda_api.h"

namespace slimps {
namespace {

using libcuda::Api;

// True if a C function that takes or returns an A is called as one with a B: pointers are alike,
// and so are numbers of one size and kind.
template <typename A, typename B>
constexpr bool kAlike = sizeof(A) == sizeof(B) &&
                        ((std::is_pointer_v<A> && std::is_pointer_v<B>) ||
                         (!std::is_pointer_v<A> && !std::is_pointer_v<B> && !std::is_class_v<A> &&
                          !std::is_class_v<B>));

template <typename A, typename B>
struct SameCall : std::false_type {};
template <typename ResultA, typename... A, typename ResultB, typename... B>
requires(sizeof...(A) == sizeof...(B)) struct SameCall<ResultA (*)(A...), ResultB (*)(B...)>
    : std::bool_constant<kAlike<ResultA, ResultB> && (kAlike<A, B> && ...)> {
};

#define SAME(name) static_assert(SameCall<decltype(Api::name), decltype(&cu##name)>::value)
SAME(GetErrorName);
SAME(GetErrorString);
SAME(Init);
SAME(DriverGetVersion);
SAME(DeviceGetCount);
SAME(DeviceGet);
SAME(DevicePrimaryCtxRetain);
SAME(DevicePrimaryCtxRelease_v2);
SAME(CtxPushCurrent_v2);
SAME(CtxPopCurrent_v2);
SAME(StreamCreate);
SAME(StreamDestroy_v2);
SAME(StreamWaitEvent);
SAME(StreamSynchronize);
SAME(StreamIsCapturing);
SAME(ThreadExchangeStreamCaptureMode);
SAME(EventCreate);
SAME(EventDestroy_v2);
SAME(EventRecord);
SAME(EventSynchronize);
SAME(MemHostRegister_v2);
SAME(MemHostUnregister);
SAME(MemcpyDtoHAsync_v2);
SAME(MemcpyHtoDAsync_v2);
SAME(PointerGetAttribute);
#undef SAME

TEST(LibcudaApi, ConstantsAreTheToolkits) {
  EXPECT_EQ(libcuda::kSuccess, CUDA_SUCCESS);
  EXPECT_EQ(libcuda::kInvalidValue, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(libcuda::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(libcuda::kInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(libcuda::kStreamNonBlocking, unsigned{CU_STREAM_NON_BLOCKING});
  EXPECT_EQ(libcuda::kEventBlockingSync, unsigned{CU_EVENT_BLOCKING_SYNC});
  EXPECT_EQ(libcuda::kEventDisableTiming, unsigned{CU_EVENT_DISABLE_TIMING});
  EXPECT_EQ(libcuda::kHostRegisterPortable, unsigned{CU_MEMHOSTREGISTER_PORTABLE});
  EXPECT_EQ(libcuda::kMemoryTypeAttribute, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  EXPECT_EQ(libcuda::kDeviceOrdinalAttribute, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  EXPECT_EQ(libcuda::kMemoryTypeDevice, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(libcuda::kCaptureStatusNone, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(libcuda::kCaptureModeRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
}

}  // namespace
}  // namespace slimps

#else

TEST(LibcudaApi, IsComparedWithTheToolkit) {
  GTEST_SKIP() << "needs --config=cuda and the toolkit's header";
}

#endif
