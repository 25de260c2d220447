// SPDX-License-Identifier: Apache-2.0
#include "server/round/optimizer.h"

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/learning_rate.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

wire::OptimizerSpec AdamSpec(wire::OptimizerSpec::Kind kind) {
  wire::OptimizerSpec spec;
  spec.set_kind(kind);
  spec.set_learning_rate(0.01);
  spec.set_beta1(0.9);
  spec.set_beta2(0.999);
  spec.set_epsilon(1e-8);
  return spec;
}

// Returns the weights after stepping with each gradient in turn, from {0.5, -1, 2}.
std::vector<float> Train(const wire::OptimizerSpec& spec,
                         const std::vector<std::vector<float>>& gradients,
                         uint32_t contributors = 1) {
  const auto optimizer = MakeOptimizer(spec);
  std::vector<float> weights = {0.5f, -1.0f, 2.0f};
  std::vector<float> state0(3, 0.0f), state1(3, 0.0f);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Optimizer::Step step =
        optimizer->PlanStep({.round = i + 1, .updates = i, .contributors = contributors});
    ApplyBlock(*optimizer, step, weights, gradients[i], weights, state0, state1);
  }
  return weights;
}

const std::vector<std::vector<float>> kGradients = {
    {0.1f, -0.2f, 0.3f}, {0.3f, 0.1f, -0.4f}, {-0.5f, 0.25f, 0.05f}};

// The expected numbers come from libtorch 1.13.1 with the same options and gradients. Nine digits
// determine all bits of an fp32.
TEST(Optimizer, SgdWithWeightDecayStepsAsTorch) {
  wire::OptimizerSpec spec = SgdSpec(0.1);
  spec.set_weight_decay(0.01);
  EXPECT_THAT(Train(spec, kGradients), ElementsAre(0.508551478f, -1.01203299f, 1.99902594f));
}

TEST(Optimizer, MomentumStepsAsTorch) {
  wire::OptimizerSpec spec = SgdSpec(0.1, 0.9);
  spec.set_weight_decay(0.01);
  EXPECT_THAT(Train(spec, kGradients), ElementsAre(0.463165373f, -0.984260738f, 1.97856367f));
}

TEST(Optimizer, NesterovStepsAsTorch) {
  wire::OptimizerSpec spec = SgdSpec(0.1, 0.9);
  spec.set_nesterov(true);
  EXPECT_THAT(Train(spec, kGradients), ElementsAre(0.479309976f, -1.00582004f, 1.99572992f));
}

TEST(Optimizer, AdamStepsAsTorch) {
  wire::OptimizerSpec spec = AdamSpec(wire::OptimizerSpec::ADAM);
  spec.set_weight_decay(0.1);
  EXPECT_THAT(Train(spec, kGradients), ElementsAre(0.480695009f, -0.981604397f, 1.9814676f));
}

TEST(Optimizer, AdamwStepsAsTorch) {
  wire::OptimizerSpec spec = AdamSpec(wire::OptimizerSpec::ADAMW);
  spec.set_weight_decay(0.1);
  EXPECT_THAT(Train(spec, kGradients), ElementsAre(0.480962038f, -0.987753868f, 1.98681164f));
}

TEST(Optimizer, NoneKeepsTheSumAndTestAddsIt) {
  wire::OptimizerSpec spec;
  EXPECT_THAT(Train(spec, {{1, 2, 3}, {4, 5, 6}}), ElementsAre(4, 5, 6));
  spec.set_kind(wire::OptimizerSpec::TEST);
  spec.set_rescale_grad(0.5);
  EXPECT_THAT(Train(spec, {{1, 2, 3}}), ElementsAre(1, 0, 3.5));
}

TEST(Optimizer, ClipsEachElementAfterRescaling) {
  wire::OptimizerSpec spec;
  spec.set_rescale_grad(2);
  spec.set_clip_gradient(1.5);
  EXPECT_THAT(Train(spec, {{0.5f, 1.0f, -100.0f}}), ElementsAre(1, 1.5, -1.5));
}

TEST(Optimizer, AverageDividesByTheContributors) {
  wire::OptimizerSpec spec = SgdSpec(1);
  spec.set_average(true);
  EXPECT_THAT(Train(spec, {{4, 4, 4}}, 4), ElementsAre(-0.5, -2, 1));
}

TEST(Optimizer, NotANumberIsNotHiddenByClipping) {
  wire::OptimizerSpec spec;
  spec.set_clip_gradient(1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(Train(spec, {{nan, 0, 0}})[0]));
}

TEST(Optimizer, BlockwiseStepsGiveTheBitsOfOneLongStep) {
  const auto optimizer = MakeOptimizer(AdamSpec(wire::OptimizerSpec::ADAM));
  const size_t n = 1000;
  const std::vector<float> before = RandomValues(n, 1), sum = RandomValues(n, 2);
  const Optimizer::Step step = optimizer->PlanStep({});
  std::vector<float> whole(n), parts(n), m(n), v(n), m2(n), v2(n);
  ApplyBlock(*optimizer, step, before, sum, whole, m, v);
  for (size_t first = 0, length = 1; first < n; first += length, length = length * 2 + 1) {
    length = std::min(length, n - first);
    ApplyBlock(*optimizer, step, std::span(before).subspan(first, length),
               std::span(sum).subspan(first, length), std::span(parts).subspan(first, length),
               std::span(m2).subspan(first, length), std::span(v2).subspan(first, length));
  }
  EXPECT_EQ(whole, parts);
  EXPECT_EQ(v, v2);
}

TEST(Optimizer, HyperparametersOfAStepTakeThePlaceOfItsOwn) {
  wire::OptimizerSpec spec = AdamSpec(wire::OptimizerSpec::ADAMW);
  spec.set_weight_decay(0.5);
  wire::OptimizerSpec other = spec;
  other.set_learning_rate(0.25);
  other.set_weight_decay(0.125);
  other.set_beta1(0.75);
  wire::Hyper hyper;
  hyper.set_learning_rate(0.25);
  hyper.set_weight_decay(0.125);
  hyper.set_momentum(0.75);
  const auto plan = [](const wire::OptimizerSpec& of, std::optional<wire::Hyper> with) {
    const Optimizer::Step step =
        MakeOptimizer(of)->PlanStep({.round = 3, .updates = 2, .hyper = std::move(with)});
    return std::vector<float>{step.learning_rate, step.weight_decay, step.adam_step, step.shrink,
                              step.beta1};
  };
  EXPECT_EQ(plan(spec, hyper), plan(other, std::nullopt));
  EXPECT_NE(plan(spec, std::nullopt), plan(other, std::nullopt));
}

struct BadSpec {
  const char* field;
  std::function<void(wire::OptimizerSpec&)> spoil;
};

TEST(Optimizer, BadOptionsAreRefusedByName) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<BadSpec> bad = {
      {"learning_rate", [](auto& s) { s.set_learning_rate(-1); }},
      {"learning_rate", [](auto& s) { s.set_learning_rate(1e60); }},
      {"learning_rate", [](auto& s) { s.set_learning_rate(std::nan("")); }},
      {"momentum", [](auto& s) { s.set_momentum(1.5); }},
      {"weight_decay", [](auto& s) { s.set_weight_decay(-0.1); }},
      {"clip_gradient", [](auto& s) { s.set_clip_gradient(-0.1); }},
      {"rescale_grad", [inf](auto& s) { s.set_rescale_grad(inf); }},
      {"nesterov", [](auto& s) { s.set_nesterov(true); }},
      {"beta1", [](auto& s) { s.set_beta1(1); }},
      {"beta2", [](auto& s) { s.set_beta2(-0.5); }},
      {"epsilon", [](auto& s) { s.set_epsilon(0); }},
      {"kind", [](auto& s) { s.set_kind(static_cast<wire::OptimizerSpec::Kind>(77)); }},
      {"schedule.every",
       [](auto& s) { s.mutable_schedule()->set_kind(wire::LearningRateSchedule::STEP); }},
      {"schedule.total_rounds",
       [](auto& s) { s.mutable_schedule()->set_kind(wire::LearningRateSchedule::COSINE); }},
      {"schedule.begin_round",
       [](auto& s) { s.mutable_schedule()->set_begin_round((uint64_t{1} << 53) + 1); }},
      {"schedule.power", [](auto& s) { s.mutable_schedule()->set_power(std::nan("")); }},
      {"schedule.power", [](auto& s) { s.mutable_schedule()->set_power(-1); }},
      {"schedule.power: only a LINEAR", [](auto& s) { s.mutable_schedule()->set_power(2); }},
  };
  ASSERT_TRUE(Optimizer::Create(AdamSpec(wire::OptimizerSpec::ADAM)).ok());
  for (const BadSpec& one : bad) {
    wire::OptimizerSpec spec = AdamSpec(wire::OptimizerSpec::ADAM);
    one.spoil(spec);
    const absl::Status status = Optimizer::Create(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << one.field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.field));
  }
}

TEST(LearningRate, WarmsUpLinearlyThenHolds) {
  wire::LearningRateSchedule schedule;
  schedule.set_warmup_rounds(4);
  EXPECT_DOUBLE_EQ(LearningRateAt(1, schedule, 1), 0.25);
  EXPECT_DOUBLE_EQ(LearningRateAt(1, schedule, 4), 1);
  EXPECT_DOUBLE_EQ(LearningRateAt(1, schedule, 100), 1);
}

TEST(LearningRate, StepsFallEverySoManyRoundsAfterTheWarmUp) {
  wire::LearningRateSchedule schedule;
  schedule.set_kind(wire::LearningRateSchedule::STEP);
  schedule.set_warmup_rounds(1);
  schedule.set_every(10);
  schedule.set_factor(0.5);
  EXPECT_DOUBLE_EQ(LearningRateAt(8, schedule, 11), 8);
  EXPECT_DOUBLE_EQ(LearningRateAt(8, schedule, 12), 4);
  EXPECT_DOUBLE_EQ(LearningRateAt(8, schedule, 22), 2);
}

TEST(LearningRate, CosineAndLinearEndAtTheFinalRateAndStayThere) {
  wire::LearningRateSchedule schedule;
  schedule.set_total_rounds(10);
  schedule.set_final_lr(0.2);
  for (const auto kind : {wire::LearningRateSchedule::COSINE, wire::LearningRateSchedule::LINEAR}) {
    schedule.set_kind(kind);
    EXPECT_DOUBLE_EQ(LearningRateAt(1, schedule, 1), 1);
    EXPECT_NEAR(LearningRateAt(1, schedule, 6), 0.6, 1e-12);  // half-way
    EXPECT_NEAR(LearningRateAt(1, schedule, 11), 0.2, 1e-12);
    EXPECT_NEAR(LearningRateAt(1, schedule, 1000), 0.2, 1e-12);
  }
}

TEST(LearningRate, ACurveByItsPowerEndsAtTheFinalRateToo) {
  wire::LearningRateSchedule schedule;
  schedule.set_kind(wire::LearningRateSchedule::LINEAR);
  schedule.set_total_rounds(4);
  schedule.set_final_lr(0.2);
  schedule.set_power(2);
  EXPECT_DOUBLE_EQ(LearningRateAt(1, schedule, 1), 1);
  EXPECT_DOUBLE_EQ(LearningRateAt(1, schedule, 3), 0.2 + 0.8 * 0.25);  // half-way
  EXPECT_DOUBLE_EQ(LearningRateAt(1, schedule, 5), 0.2);
  EXPECT_DOUBLE_EQ(LearningRateAt(1, schedule, 100), 0.2);
  wire::LearningRateSchedule straight = schedule;
  straight.clear_power();
  schedule.set_power(1);
  for (uint64_t round = 1; round < 7; ++round) {
    EXPECT_EQ(LearningRateAt(0.3, straight, round), LearningRateAt(0.3, schedule, round)) << round;
  }
}

TEST(LearningRate, ARunThatGoesOnBeginsWhereTheEarlierOneEnded) {
  for (const auto kind : {wire::LearningRateSchedule::CONSTANT, wire::LearningRateSchedule::STEP,
                          wire::LearningRateSchedule::COSINE, wire::LearningRateSchedule::LINEAR}) {
    wire::LearningRateSchedule whole;
    whole.set_kind(kind);
    whole.set_warmup_rounds(3);
    whole.set_every(2);
    whole.set_factor(0.5);
    whole.set_total_rounds(8);
    for (const uint64_t done : {1, 3, 5, 20}) {
      wire::LearningRateSchedule rest = whole;
      rest.set_begin_round(done);
      ASSERT_TRUE(ValidateSchedule(rest).ok());
      for (uint64_t round = 1; round < 12; ++round) {
        EXPECT_EQ(LearningRateAt(0.7, rest, round), LearningRateAt(0.7, whole, done + round))
            << wire::LearningRateSchedule::Kind_Name(kind) << " round " << done << " + " << round;
      }
    }
  }
}

TEST(LearningRate, ScheduleDecidesTheStepOfEachRound) {
  wire::OptimizerSpec spec = SgdSpec(1);
  spec.mutable_schedule()->set_kind(wire::LearningRateSchedule::STEP);
  spec.mutable_schedule()->set_every(1);
  spec.mutable_schedule()->set_factor(0.5);
  EXPECT_THAT(Train(spec, {{1, 0, 0}, {1, 0, 0}, {1, 0, 0}}), ElementsAre(-1.25, -1, 2));
}

}  // namespace
}  // namespace slimps
