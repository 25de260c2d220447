// SPDX-License-Identifier: Apache-2.0
// A partition that ONEBIT_ADAM steps: when it takes gradients, when momenta, and what it answers.
#include <cmath>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/round/partition.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kRate = 0.5, kBeta1 = 0.5, kBeta2 = 0.75;

wire::OptimizerSpec Spec(uint64_t freeze_after) {
  wire::OptimizerSpec spec;
  spec.set_kind(wire::OptimizerSpec::ONEBIT_ADAM);
  spec.set_learning_rate(kRate);
  spec.set_beta1(kBeta1);
  spec.set_beta2(kBeta2);
  spec.set_epsilon(1e-8);
  spec.set_rescale_grad(1);
  spec.set_average(true);
  spec.set_freeze_after(freeze_after);
  return spec;
}

std::unique_ptr<Partition> Make(const wire::OptimizerSpec& optimizer, uint32_t workers = 1) {
  PartitionSpec spec;
  spec.key = Key("w").id();
  spec.name = "s:w";
  spec.elements = 2;
  spec.num_workers = workers;
  return Partition::Create(spec, Raw({0, 0}), MakeOptimizer(optimizer)).value();
}

absl::Status Push(Partition& partition, uint64_t round, const std::vector<float>& values,
                  PushedAs pushed_as, const std::vector<uint32_t>& unmasked = {}) {
  const auto verdict = partition.Push(round, 0, 2, Raw(values), /*change=*/nullptr, std::nullopt,
                                      pushed_as, unmasked);
  while (partition.HasCompleteRound()) partition.ApplyNextRound();
  return verdict.status();
}

std::vector<float> State(const Partition& partition, uint32_t number) {
  wire::OptimizerState state;
  state.set_tensor(number);
  return Floats(partition.ShareState(&state).payload);
}

TEST(Momenta, AFrozenVarianceIsCorrectedForItsBiasAndStays) {
  auto partition = Make(Spec(1));
  ASSERT_TRUE(Push(*partition, 1, {2, -4}, PushedAs::kGradient).ok());
  EXPECT_THAT(State(*partition, 1), ElementsAre(1, -2));  // (1 - beta1) g
  EXPECT_THAT(State(*partition, 2), ElementsAre(4, 16));  // g^2
  EXPECT_THAT(State(*partition, 3), ElementsAre(0, 0));
  const std::vector<float> before(partition->weights().begin(), partition->weights().end());
  ASSERT_TRUE(Push(*partition, 2, {3, 8}, PushedAs::kMomentum).ok());
  EXPECT_THAT(State(*partition, 1), ElementsAre(3, 8)) << "what came is the momentum";
  EXPECT_THAT(State(*partition, 2), ElementsAre(4, 16));
  const double step = kRate / (1 - kBeta1 * kBeta1);
  EXPECT_NEAR(partition->weights()[0], before[0] - step * 3 / 2, 1e-6);
  EXPECT_NEAR(partition->weights()[1], before[1] - step * 8 / 4, 1e-6);
}

// What a codec sends for an element without a gradient is noise.
TEST(Momenta, AnElementThatTheWarmUpDidNotReachStaysUntilAWorkerUnmasksIt) {
  auto partition = Make(Spec(1));
  ASSERT_TRUE(Push(*partition, 1, {2, 0}, PushedAs::kGradient).ok());
  ASSERT_TRUE(Push(*partition, 2, {3, 8}, PushedAs::kMomentum).ok());
  EXPECT_EQ(partition->weights()[1], 0);
  EXPECT_THAT(State(*partition, 1), ElementsAre(3, 0));
  ASSERT_TRUE(Push(*partition, 3, {3, 8}, PushedAs::kMomentum, {1, 1}).ok());
  EXPECT_THAT(State(*partition, 2), ElementsAre(4, 256)) << "(8 / (1 - beta1))^2";
  EXPECT_THAT(State(*partition, 1), ElementsAre(3, 8));
  EXPECT_THAT(partition->MomentumOf(3)->unmasked(), ElementsAre(1, 1));
  EXPECT_NEAR(partition->weights()[1], -kRate / (1 - std::pow(kBeta1, 3)) * 8 / 16, 1e-6);
  ASSERT_TRUE(Push(*partition, 4, {3, 8}, PushedAs::kMomentum).ok());
  EXPECT_THAT(State(*partition, 2), ElementsAre(4, 256));
  EXPECT_TRUE(partition->MomentumOf(4)->unmasked().empty());
}

TEST(Momenta, RunsThatAreNoneAreRefusedAndChangeNothing) {
  auto partition = Make(Spec(1));
  EXPECT_EQ(Push(*partition, 1, {2, 0}, PushedAs::kGradient, {1, 1}).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(Push(*partition, 1, {2, 0}, PushedAs::kGradient).ok());
  for (const std::vector<uint32_t>& runs :
       {std::vector<uint32_t>{1}, {2, 1}, {1, 2}, {0, 0}, {1, 0xffffffff}, {1, 1, 0, 1}}) {
    const absl::Status refused = Push(*partition, 2, {3, 8}, PushedAs::kMomentum, runs);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << runs.size();
    EXPECT_THAT(refused.message(), HasSubstr("expected a momentum with rising runs"));
  }
  EXPECT_EQ(partition->version(), 1u);
}

TEST(Momenta, AnswersSayWhenTheNextPushIsAMomentum) {
  auto partition = Make(Spec(2));
  ASSERT_TRUE(Push(*partition, 1, {1, 1}, PushedAs::kGradient).ok());
  EXPECT_FALSE(partition->MomentumOf(1).has_value());
  ASSERT_TRUE(Push(*partition, 2, {1, 1}, PushedAs::kGradient).ok());
  ASSERT_TRUE(partition->MomentumOf(2).has_value());
  EXPECT_EQ(partition->MomentumOf(2)->beta1(), kBeta1);
  EXPECT_FALSE(partition->MomentumOf(1).has_value()) << "an old version";
}

TEST(Momenta, WhatTheStageDoesNotTakeIsRefusedAndChangesNothing) {
  auto partition = Make(Spec(1));
  const absl::Status early = Push(*partition, 1, {1, 1}, PushedAs::kMomentum);
  EXPECT_EQ(early.code(), absl::StatusCode::kFailedPrecondition) << early;
  EXPECT_THAT(early.message(), HasSubstr("expects a gradient"));
  const absl::Status ahead = Push(*partition, 2, {1, 1}, PushedAs::kGradient);
  EXPECT_EQ(ahead.code(), absl::StatusCode::kResourceExhausted) << ahead;
  EXPECT_EQ(partition->version(), 0u);
  ASSERT_TRUE(Push(*partition, 1, {1, 1}, PushedAs::kGradient).ok());
  const absl::Status late = Push(*partition, 2, {1, 1}, PushedAs::kGradient);
  EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition) << late;
  EXPECT_THAT(late.message(), HasSubstr("expects a momentum"));
  EXPECT_TRUE(Push(*partition, 1, {1, 1}, PushedAs::kGradient).ok()) << "a repeat";
  auto sgd = Make(SgdSpec(0.1));
  EXPECT_EQ(Push(*sgd, 1, {1, 1}, PushedAs::kMomentum).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(Momenta, WithoutANumberOnlyTheOptimizerSetAgainFreezes) {
  auto partition = Make(Spec(0));
  for (uint64_t round = 1; round <= 3; ++round) {
    ASSERT_TRUE(Push(*partition, round, {1, 1}, PushedAs::kGradient).ok());
    EXPECT_FALSE(partition->MomentumOf(round).has_value());
  }
  partition->SetOptimizer(MakeOptimizer(Spec(4)));
  ASSERT_TRUE(Push(*partition, 4, {1, 1}, PushedAs::kGradient).ok());
  EXPECT_TRUE(partition->MomentumOf(4).has_value());
}

}  // namespace
}  // namespace slimps
