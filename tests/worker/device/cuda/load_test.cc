// SPDX-License-Identifier: Apache-2.0
// The making of a GPU that fails at first, on a libcuda.so.1 of the tests'.
#include <gtest/gtest.h>

#include <cstdlib>

#include "worker/device/cuda/cuda_device.h"
#include "worker/device/devices.h"

namespace slimps {
namespace {

TEST(LoadCudaDriver, AFailureIsNamedAndTheNextCallTriesAgain) {
  Devices devices(MakeHostDevice(), GpusOf(/*driver=*/nullptr));
  setenv("SLIMPS_FAKE_CUDA_VERSION", "10020", /*overwrite=*/1);
  EXPECT_EQ(devices.At({.gpu = 0}).status(),
            absl::FailedPreconditionError("the CUDA driver is too old: libcuda.so.1 is of CUDA "
                                          "10.2, expected 11.0 or later"));
  setenv("SLIMPS_FAKE_CUDA_VERSION", "11000", /*overwrite=*/1);
  const auto gpu = devices.At({.gpu = 0});
  EXPECT_TRUE(gpu.ok()) << gpu.status();
}

}  // namespace
}  // namespace slimps
