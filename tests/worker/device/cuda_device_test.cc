// SPDX-License-Identifier: Apache-2.0
// Runs on a machine with a GPU: bazel test --config=cuda //tests/worker/device:cuda_device_test.
// Elsewhere each test is skipped and says why.
#include "tests/worker/device/device_test_body.h"

#ifdef SLIMPS_TEST_CUDA
#include <cuda_runtime_api.h>
#endif

namespace slimps {
namespace {

#ifdef SLIMPS_TEST_CUDA
class GpuMemory final : public DeviceMemory {
 public:
  explicit GpuMemory(size_t elements) : elements_(elements) {
    EXPECT_EQ(cudaMalloc(&data_, elements * sizeof(float)), cudaSuccess);
  }
  ~GpuMemory() override { cudaFree(data_); }
  std::span<float> span() override { return {static_cast<float*>(data_), elements_}; }

 private:
  void* data_ = nullptr;
  const size_t elements_;
};
#endif

struct CudaFixture {
  static absl::StatusOr<std::unique_ptr<Device>> Make() { return MakeCudaDevice(0); }
  static std::unique_ptr<DeviceMemory> Allocate(size_t elements) {
#ifdef SLIMPS_TEST_CUDA
    return std::make_unique<GpuMemory>(elements);
#else
    ADD_FAILURE() << "a CUDA device in a build without CUDA, for " << elements << " elements";
    return nullptr;
#endif
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, DeviceTest, CudaFixture);

#ifdef SLIMPS_TEST_CUDA
TEST(CudaDevice, ACopyWaitsForTheDefaultStreamThatMadeItsSource) {
  auto device = MakeCudaDevice(0);
  if (absl::IsFailedPrecondition(device.status())) GTEST_SKIP() << device.status();
  ASSERT_TRUE(device.ok()) << device.status();
  constexpr size_t kElements = 32 << 20;
  GpuMemory memory(kElements);
  auto buffer = *(*device)->AllocateHost(kElements);
  for (int round = 1; round <= 10; ++round) {
    // There are many passes, so a copy that did not wait would overtake the last one.
    for (int pass = 0; pass < 20; ++pass) {
      ASSERT_EQ(cudaMemsetAsync(memory.span().data(), pass == 19 ? round : 0x7f,
                                memory.span().size_bytes(), cudaStreamLegacy),
                cudaSuccess);
    }
    Completions completions;
    (*device)->CopyToHost(1, memory.span(), buffer->floats(), completions.Callback());
    ASSERT_TRUE(completions.Await(1).at(1).ok());
    const auto bytes = std::as_bytes(buffer->floats());
    ASSERT_TRUE(std::ranges::all_of(bytes, [&](std::byte b) { return b == std::byte(round); }));
  }
}

TEST(CudaDevice, AnAddressThatIsNoMemoryFailsByKeyAndTheNextCopyWorks) {
  auto device = MakeCudaDevice(0);
  if (absl::IsFailedPrecondition(device.status())) GTEST_SKIP() << device.status();
  ASSERT_TRUE(device.ok()) << device.status();
  auto buffer = *(*device)->AllocateHost(16);
  GpuMemory memory(16);
  Completions completions;
  (*device)->CopyToHost(1, std::span(static_cast<const float*>(nullptr), 16), buffer->floats(),
                        completions.Callback());
  (*device)->CopyToHost(2, memory.span(), buffer->floats(), completions.Callback());
  const auto seen = completions.Await(2);
  EXPECT_FALSE(seen.at(1).ok());
  EXPECT_TRUE(seen.at(2).ok()) << seen.at(2);
}
#endif

}  // namespace
}  // namespace slimps
