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
  static void Check() {}
};

INSTANTIATE_TYPED_TEST_SUITE_P(Host, DeviceTest, HostFixture);

}  // namespace
}  // namespace slimps
