// SPDX-License-Identifier: Apache-2.0
// The CUDA device on this machine's GPU. Where there is none each test is skipped and says why.
// With SLIMPS_GPU_EXPECTED in the environment it fails.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "tests/worker/device/device_test_body.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/device/cuda/libcuda_api.h"

namespace slimps {
namespace {

constexpr int kGpu = 0;

// FailedPrecondition: the machine has no GPU, and none is expected.
absl::StatusOr<std::unique_ptr<Device>> MakeGpu() {
  const absl::StatusOr<CudaDriver*> driver = LoadCudaDriver();
  auto device = driver.ok() ? MakeCudaDevice(*driver, kGpu) : driver.status();
  if (device.ok() || std::getenv("SLIMPS_GPU_EXPECTED") == nullptr) return device;
  return absl::NotFoundError(device.status().ToString());
}

// What a framework calls and this project does not.
struct Framework {
  libcuda::Result (*allocate)(libcuda::DevicePointer* memory, size_t bytes);
  libcuda::Result (*free)(libcuda::DevicePointer memory);
  libcuda::Result (*set)(libcuda::DevicePointer memory, unsigned char value, size_t bytes,
                         libcuda::Handle stream);

  static const Framework& Get() {
    static const Framework found = [] {
      void* const library = dlopen("libcuda.so.1", RTLD_NOW);
      Framework framework;
      const auto find = [&](auto* function, const char* name) {
        *function =
            reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
        EXPECT_NE(*function, nullptr) << name;
      };
      find(&framework.allocate, "cuMemAlloc_v2");
      find(&framework.free, "cuMemFree_v2");
      find(&framework.set, "cuMemsetD8Async");
      return framework;
    }();
    return found;
  }
};

class GpuMemory final : public DeviceMemory {
 public:
  explicit GpuMemory(size_t elements) : elements_(elements) {
    EXPECT_EQ(Framework::Get().allocate(&memory_, elements * sizeof(float)), libcuda::kSuccess);
  }
  ~GpuMemory() override { Framework::Get().free(memory_); }
  std::span<float> span() override { return {reinterpret_cast<float*>(memory_), elements_}; }
  void Set(unsigned char value) {
    EXPECT_EQ(Framework::Get().set(memory_, value, elements_ * sizeof(float), nullptr),
              libcuda::kSuccess);
  }

 private:
  const std::shared_ptr<const CudaContext> context_ =
      CudaContext::Retain(*LoadCudaDriver(), kGpu).value();
  const CudaContext::Scope current_{*context_};
  libcuda::DevicePointer memory_ = 0;
  const size_t elements_;
};

// Returns the fake driver's function that says what was misused; null for a real driver.
const char* (*FindMisuses())() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<const char* (*)()>(dlsym(library, "slimps_fake_misuses"));
}

void CheckMisuses() {
  auto* const misuses = FindMisuses();
  if (misuses == nullptr) return;
  EXPECT_STREQ(misuses(), "");
}

struct GpuFixture {
  static absl::StatusOr<std::unique_ptr<Device>> Make() { return MakeGpu(); }
  static std::unique_ptr<DeviceMemory> Allocate(size_t elements) {
    return std::make_unique<GpuMemory>(elements);
  }
  static void Check() { CheckMisuses(); }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Gpu, DeviceTest, GpuFixture);

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = MakeGpu();
    if (absl::IsFailedPrecondition(device.status())) GTEST_SKIP() << device.status();
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }
  void TearDown() override {
    device_.reset();
    CheckMisuses();
  }
  std::unique_ptr<Device> device_;
};

TEST_F(GpuTest, ACopyWaitsForTheStreamThatMadeItsSource) {
  const size_t elements = FindMisuses() == nullptr ? 32 << 20 : 1 << 12;
  GpuMemory memory(elements);
  auto buffer = *device_->AllocateHost(elements);
  for (unsigned char round = 1; round <= 10; ++round) {
    // There are many passes, so a copy that did not wait would overtake the last one.
    for (int pass = 0; pass < 20; ++pass) memory.Set(pass == 19 ? round : 0x7f);
    Completions completions;
    device_->CopyToHost(1, memory.span(), kDefaultStream, buffer->floats(), completions.Callback());
    ASSERT_TRUE(completions.Await(1).at(1).ok());
    const auto bytes = std::as_bytes(buffer->floats());
    ASSERT_TRUE(std::ranges::all_of(bytes, [&](std::byte b) { return b == std::byte(round); }));
  }
}

TEST_F(GpuTest, AnAddressThatIsNoMemoryFailsByKeyAndTheNextCopyWorks) {
  auto buffer = *device_->AllocateHost(16);
  GpuMemory memory(16);
  Completions completions;
  device_->CopyToHost(1, std::span(static_cast<const float*>(nullptr), 16), kDefaultStream,
                      buffer->floats(), completions.Callback());
  device_->CopyToHost(2, memory.span(), kDefaultStream, buffer->floats(), completions.Callback());
  const auto seen = completions.Await(2);
  EXPECT_FALSE(seen.at(1).ok());
  EXPECT_TRUE(seen.at(2).ok()) << seen.at(2);
}

TEST_F(GpuTest, MemoryIsFoundByItsAddress) {
  CudaDriver* const driver = *LoadCudaDriver();
  GpuMemory memory(16);
  float on_host = 0;
  EXPECT_EQ(driver->GpuOf(memory.span().data() + 3).value(), kGpu);
  EXPECT_EQ(driver->GpuOf(&on_host).value(), std::nullopt);
  EXPECT_EQ(driver->GpuOf((*device_->AllocateHost(16))->floats().data()).value(), std::nullopt);
}

TEST(LoadCudaDriver, AMachineWithoutDriverOrGpuSaysSo) {
  const absl::StatusOr<CudaDriver*> driver = LoadCudaDriver();
  if (driver.ok()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(driver.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(driver.status().message()),
              testing::AnyOf(testing::StartsWith("no CUDA d"),
                             testing::StartsWith("the CUDA driver is too old")));
}

}  // namespace
}  // namespace slimps
