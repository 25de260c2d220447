// SPDX-License-Identifier: Apache-2.0
#include "worker/tensor/shared_momentum.h"

#include <cmath>
#include <span>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

std::span<const std::byte> Bytes(const std::vector<float>& values) {
  return std::as_bytes(std::span<const float>(values));
}

class SharedMomentumTest : public ::testing::Test {
 protected:
  // An answer with version `version`, after which pushes are momenta.
  static wire::PullReplyItem Answer(uint64_t version) {
    wire::PullReplyItem answer;
    answer.set_version(version);
    answer.set_elements(2);
    answer.set_format(wire::RAW_F32);
    answer.mutable_momentum()->set_beta1(0.75);
    answer.mutable_momentum()->set_unscale(2);
    answer.mutable_momentum()->set_scale(0.5);
    answer.mutable_momentum()->set_step(0.25);
    answer.mutable_momentum()->set_epsilon(1e-8);
    answer.mutable_momentum()->set_shrink(1);
    return answer;
  }

  absl::Status Put(uint64_t version, uint32_t number, const std::vector<float>& values) {
    wire::PullReplyItem answer = Answer(version);
    answer.mutable_state()->set_kind(wire::OptimizerSpec::ONEBIT_ADAM);
    answer.mutable_state()->set_tensor(number);
    return momentum_.Put(tensor_, 0, answer, Bytes(values));
  }

  const TensorPlan tensor_ = {.key = Key("w"),
                              .info = {},
                              .elements = 2,
                              .partitions = {{.server = 0, .offset = 0, .elements = 2}}};
  SharedMomentum momentum_;
  std::vector<uint32_t> unmasked_;
};

TEST_F(SharedMomentumTest, PushesStayGradientsUntilTheStateIsPut) {
  std::vector<float> gradient = {1, 2};
  const auto made = momentum_.Make({.tensor = &tensor_, .round = 1}, gradient, &unmasked_);
  ASSERT_TRUE(made.ok());
  EXPECT_FALSE(*made);
  EXPECT_THAT(gradient, ElementsAre(1, 2));
  EXPECT_FALSE(momentum_.CoversAny());
  wire::PullReplyItem plain;
  EXPECT_FALSE(momentum_.Lacks(tensor_, 0, plain));
  EXPECT_TRUE(momentum_.Lacks(tensor_, 0, Answer(4)));
}

TEST_F(SharedMomentumTest, AGradientBecomesAMomentumInTheUnitsOfPushes) {
  ASSERT_TRUE(Put(4, 1, {8, -8}).ok());
  EXPECT_TRUE(momentum_.Lacks(tensor_, 0, Answer(4))) << "the variance";
  ASSERT_TRUE(Put(4, 2, {4, 16}).ok());
  EXPECT_FALSE(momentum_.Lacks(tensor_, 0, Answer(4)));
  EXPECT_TRUE(momentum_.Lacks(tensor_, 0, Answer(5))) << "a momentum of another version";
  std::vector<float> gradient = {1, 2};
  const auto made =
      momentum_.Make({.tensor = &tensor_, .round = 5, .grad_scale = 4}, gradient, &unmasked_);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(*made);
  EXPECT_THAT(gradient, ElementsAre(0.75f * 2 * 8 + 0.25f * 4 * 1, 0.75f * 2 * -8 + 0.25f * 4 * 2));
  const auto early = momentum_.Make({.tensor = &tensor_, .round = 6}, gradient, &unmasked_);
  EXPECT_EQ(early.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(early.status().message(), HasSubstr("pull that first, version 4"));
}

TEST_F(SharedMomentumTest, AStepIsTheServers) {
  ASSERT_TRUE(Put(4, 1, {8, -8}).ok());
  ASSERT_TRUE(Put(4, 2, {4, 16}).ok());
  std::vector<float> weights = {1, 1};
  wire::PullReplyItem answer = Answer(5);
  answer.set_is_change(true);
  answer.set_base_version(4);
  ASSERT_TRUE(momentum_.Step(tensor_, 0, answer, Bytes({2, -4}), weights).ok());
  // m = 0.5 * payload; w -= 0.25 * m / sqrt(v)
  EXPECT_THAT(weights, ElementsAre(FloatEq(1 - 0.25f * 1 / 2), FloatEq(1 + 0.25f * 2 / 4)));
  std::vector<float> zero = {0, 0};
  ASSERT_TRUE(momentum_.Make({.tensor = &tensor_, .round = 6}, zero, &unmasked_).ok());
  EXPECT_THAT(zero, ElementsAre(0.75f * 2 * 1, 0.75f * 2 * -2));
}

TEST_F(SharedMomentumTest, AMaskedElementMovesOnceItIsUnmasked) {
  ASSERT_TRUE(Put(4, 1, {8, 0}).ok());
  ASSERT_TRUE(Put(4, 2, {4, 0}).ok());
  std::vector<float> gradient = {1, 2};
  ASSERT_TRUE(momentum_.Make({.tensor = &tensor_, .round = 5}, gradient, &unmasked_).ok());
  EXPECT_THAT(unmasked_, ElementsAre(1, 1));
  std::vector<float> weights = {1, 1};
  wire::PullReplyItem answer = Answer(5);
  answer.set_is_change(true);
  answer.set_base_version(4);
  ASSERT_TRUE(momentum_.Step(tensor_, 0, answer, Bytes({2, -4}), weights).ok());
  EXPECT_THAT(weights, ElementsAre(FloatEq(1 - 0.25f * 1 / 2), 1)) << "the answer unmasks nothing";
  answer.set_version(6);
  answer.set_base_version(5);
  answer.mutable_momentum()->add_unmasked(1);
  answer.mutable_momentum()->add_unmasked(1);
  ASSERT_TRUE(momentum_.Step(tensor_, 0, answer, Bytes({0, -4}), weights).ok());
  // m = -2 shows a gradient of -2 / (1 - beta1) = -8.
  EXPECT_FLOAT_EQ(weights[1], 1 + 0.25f * 2 / 8);
  ASSERT_TRUE(momentum_.Make({.tensor = &tensor_, .round = 7}, gradient, &unmasked_).ok());
  EXPECT_TRUE(unmasked_.empty());
  answer.mutable_momentum()->add_unmasked(1);
  EXPECT_EQ(momentum_.Step(tensor_, 0, answer, Bytes({0, -4}), weights).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(SharedMomentumTest, WhatDoesNotFitIsRefused) {
  std::vector<float> weights = {1, 1};
  EXPECT_EQ(momentum_.Step(tensor_, 0, Answer(5), Bytes({2, -4}), weights).code(),
            absl::StatusCode::kFailedPrecondition)
      << "no state";
  EXPECT_EQ(Put(4, 3, {1, 1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Put(4, 1, {1}).code(), absl::StatusCode::kDataLoss);
  wire::PullReplyItem plain = Answer(4);
  plain.clear_momentum();
  EXPECT_EQ(momentum_.Put(tensor_, 0, plain, Bytes({1, 1})).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(momentum_.CoversAny());
  ASSERT_TRUE(Put(4, 1, {1, 1}).ok());
  EXPECT_EQ(momentum_.Step(tensor_, 0, Answer(5), Bytes({2, -4}), weights).code(),
            absl::StatusCode::kFailedPrecondition)
      << "no variance";
  EXPECT_THAT(weights, ElementsAre(1, 1));
}

}  // namespace
}  // namespace slimps
