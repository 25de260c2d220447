// SPDX-License-Identifier: Apache-2.0
#include "proto/base/buffer.h"
#include "tests/worker/device/device_test_body.h"

namespace slimps {
namespace {

class PlainMemory final : public DeviceMemory {
 public:
  explicit PlainMemory(size_t elements) : values_(elements) {}
  std::span<float> span() override { return values_; }

 private:
  std::vector<float> values_;
};

struct HostFixture {
  static absl::StatusOr<std::unique_ptr<Device>> Make() { return MakeHostDevice(); }
  static std::unique_ptr<DeviceMemory> Allocate(size_t elements) {
    return std::make_unique<PlainMemory>(elements);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Host, DeviceTest, HostFixture);

TEST(CudaDevice, WithoutAGpuOrWithoutCudaTheFactorySaysSo) {
  auto device = MakeCudaDevice(1 << 20);  // no machine has that many GPUs
  EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(device.status().message().find("CUDA"), absl::string_view::npos) << device.status();
}

}  // namespace
}  // namespace slimps
