// SPDX-License-Identifier: Apache-2.0
#include "worker/tensor/value_check.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(CheckFinite, NamesKeyElementAndValue) {
  EXPECT_TRUE(CheckFinite("w", {}, 1, "push").ok());
  EXPECT_TRUE(CheckFinite("w", std::vector<float>{0, -1, 3e38f}, 1, "push").ok());
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    const absl::Status status = CheckFinite("w", std::vector<float>{1, 2, bad, bad}, 1, "push");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.ToString(), HasSubstr("push of key s:w: element 2 is "));
  }
}

TEST(CheckFinite, TheScaleCounts) {
  const std::vector<float> large = {1, 1e38f};
  EXPECT_TRUE(CheckFinite(5, large, 1, "push").ok());
  EXPECT_THAT(CheckFinite(5, large, 10, "push").ToString(),
              AllOf(HasSubstr("key i:5: element 1 is 1e+38"), HasSubstr("times 10 not finite")));
}

TEST(CheckLength, NamesWhatWasExpected) {
  const TensorPlan tensor{.key = Key("w"), .info = {}, .elements = 6, .partitions = {}};
  EXPECT_TRUE(CheckLength(tensor, 6, "push").ok());
  EXPECT_EQ(CheckLength(tensor, 5, "push"),
            absl::InvalidArgumentError("push of key s:w: expected 6 elements, got 5"));
}

TEST(SumDevices, AddsInOrderWithTheScale) {
  const std::vector<float> a = {1, 1e8f}, b = {2, 1}, c = {3, -1e8f};
  const std::vector<std::span<const float>> devices = {a, b, c};
  std::vector<float> sum(2);
  SumDevices(devices, sum);
  EXPECT_THAT(sum, ElementsAre(6, 0)) << "1e8 + 1 - 1e8, left to right in fp32";
  SumDevices(devices, sum, 0.5f);
  EXPECT_THAT(sum, ElementsAre(3, 0));
}

}  // namespace
}  // namespace slimps
