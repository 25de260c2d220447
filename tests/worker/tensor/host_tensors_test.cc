// SPDX-License-Identifier: Apache-2.0
#include "worker/tensor/host_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

#include "tests/worker/device/cuda/fake_cuda_driver.h"
#include "worker/device/cuda/cuda_device.h"

namespace slimps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class HostTensorsTest : public testing::Test {
 protected:
  ~HostTensorsTest() override { EXPECT_THAT(driver_.TakeMisuses(), IsEmpty()); }

  // Returns a tensor on a GPU whose values count from `first`.
  InitTensor OnGpu(int gpu, size_t elements, float first) {
    const Place place{.gpu = gpu, .stream = driver_.MakeStream(gpu)};
    const std::span<float> values = driver_.Allocate(gpu, elements);
    driver_.Launch(place.stream, {}, values,
                   [=] { std::iota(values.begin(), values.end(), first); });
    return {.key = Key(static_cast<int64_t>(elements)),
            .shape = {static_cast<int64_t>(elements)},
            .value = values,
            .place = place};
  }

  FakeCudaDriver driver_{{.devices = 2}};
  Devices devices_{MakeHostDevice(), GpusOf(&driver_)};
};

TEST_F(HostTensorsTest, TensorsOfTheHostAreNotCopied) {
  const std::vector<float> value = {1, 2};
  const std::vector<InitTensor> given = {{.key = Key("w"), .shape = {2}, .value = value}};
  const auto found = HostTensors::Of(/*devices=*/nullptr, given);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(&found->all(), &given);
}

TEST_F(HostTensorsTest, AModelIsNotPinnedAtOnce) {
  driver_.Fail("Pin", absl::ResourceExhaustedError("no more"), /*successes=*/1,
               std::numeric_limits<int>::max());
  const std::vector<float> on_host = {7};
  const std::vector<InitTensor> given = {
      OnGpu(0, 3, 1), {.key = Key("w"), .shape = {1}, .value = on_host}, OnGpu(1, 2, 5)};
  const auto found = HostTensors::Of(&devices_, given);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->all()[0].value, ElementsAre(1, 2, 3));
  EXPECT_EQ(found->all()[1].value.data(), on_host.data());
  EXPECT_THAT(found->all()[2].value, ElementsAre(5, 6));
  for (const InitTensor& tensor : found->all()) EXPECT_TRUE(tensor.place.on_host());
  EXPECT_EQ(driver_.pinned_bytes(), 0u);
}

TEST_F(HostTensorsTest, ATensorLargerThanTheBufferComesInParts) {
  const size_t elements = HostTensors::kMaxPinnedElements + 5;
  const std::vector<InitTensor> given = {OnGpu(0, elements, 0)};
  const auto found = HostTensors::Of(&devices_, given);
  ASSERT_TRUE(found.ok()) << found.status();
  std::vector<float> expected(elements);
  std::iota(expected.begin(), expected.end(), 0.f);
  EXPECT_TRUE(std::ranges::equal(found->all()[0].value, expected));
}

}  // namespace
}  // namespace slimps
