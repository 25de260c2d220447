// SPDX-License-Identifier: Apache-2.0
// What a round's step depends on, and whether a round steps at all: hyperparameters that pushes
// bring, and rounds without a gradient.
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/round/partition.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

wire::OptimizerSpec SpecOf(wire::OptimizerSpec::Kind kind, double learning_rate,
                           double weight_decay) {
  wire::OptimizerSpec spec = SgdSpec(learning_rate, kind == wire::OptimizerSpec::SGD ? 0.9 : 0);
  spec.set_kind(kind);
  spec.set_weight_decay(weight_decay);
  spec.set_beta1(0.9);
  spec.set_beta2(0.999);
  spec.set_epsilon(1e-8);
  return spec;
}

wire::Hyper HyperOf(double learning_rate, double weight_decay = 0) {
  wire::Hyper hyper;
  hyper.set_learning_rate(learning_rate);
  hyper.set_weight_decay(weight_decay);
  return hyper;
}

std::unique_ptr<Partition> Make(const wire::OptimizerSpec& optimizer, uint32_t workers,
                                const std::vector<float>& initial,
                                wire::StoreMode mode = wire::DIST_SYNC,
                                Combine combine = Combine::kSum) {
  PartitionSpec spec;
  spec.name = "s:w";
  spec.elements = initial.size();
  spec.num_workers = workers;
  spec.mode = mode;
  spec.combine = combine;
  spec.staleness = 100;
  return Partition::Create(spec, Raw(initial), MakeOptimizer(optimizer)).value();
}

// Pushes a gradient of one element, or none.
absl::StatusOr<PushVerdict> Push(Partition& partition, uint64_t round, uint32_t worker,
                                 std::optional<float> gradient,
                                 std::optional<wire::Hyper> hyper = std::nullopt) {
  ClaimedPayload payload;
  if (gradient.has_value()) payload = Raw({*gradient});
  auto verdict = partition.Push(round, worker, 1, std::move(payload), nullptr, std::move(hyper));
  while (partition.HasCompleteRound()) partition.ApplyNextRound();
  return verdict;
}

std::vector<float> WeightsOf(const Partition& partition) {
  return {partition.weights().begin(), partition.weights().end()};
}

// Returns all that an optimizer keeps: its tensors, and how often they were updated.
std::pair<std::vector<std::vector<float>>, uint64_t> StateOf(const Partition& partition) {
  std::pair<std::vector<std::vector<float>>, uint64_t> all;
  for (uint32_t tensor = 1; tensor <= 2; ++tensor) {
    wire::OptimizerState state;
    state.set_tensor(tensor);
    const Payload payload = partition.ShareState(&state).payload;
    if (!payload.empty()) all.first.push_back(Floats(payload));
    all.second = state.updates();
  }
  return all;
}

TEST(RoundStep, TheLowestRankThatBringsHyperparametersCountsInAnyOrderOfArrival) {
  using Push3 = std::vector<std::pair<uint32_t, std::optional<wire::Hyper>>>;
  const auto weight_after = [](const Push3& pushes) {
    auto partition = Make(SgdSpec(1), 3, {0});
    for (const auto& [worker, hyper] : pushes) {
      EXPECT_TRUE(Push(*partition, 1, worker, 1, hyper).ok());
    }
    return WeightsOf(*partition)[0];  // minus three times the learning rate
  };
  const auto two = HyperOf(2), four = HyperOf(4), eight = HyperOf(8);
  EXPECT_EQ(weight_after({{0, two}, {1, four}, {2, eight}}), -6);
  EXPECT_EQ(weight_after({{2, eight}, {1, four}, {0, two}}), -6);
  EXPECT_EQ(weight_after({{2, eight}, {0, std::nullopt}, {1, four}}), -12);
  EXPECT_EQ(weight_after({{1, four}, {2, eight}, {0, std::nullopt}}), -12);
  EXPECT_EQ(weight_after({{0, std::nullopt}, {1, std::nullopt}, {2, eight}}), -24);
  EXPECT_EQ(weight_after({{0, std::nullopt}, {1, std::nullopt}, {2, std::nullopt}}), -3);
  EXPECT_EQ(weight_after({{0, HyperOf(0)}, {1, four}, {2, eight}}), 0) << "0 is a learning rate";
}

TEST(RoundStep, HyperparametersHoldForTheirRoundAloneAndPushWhatTheOptimizerHasAside) {
  wire::OptimizerSpec spec = SgdSpec(1);
  spec.set_weight_decay(0.5);
  spec.mutable_schedule()->set_kind(wire::LearningRateSchedule::STEP);
  spec.mutable_schedule()->set_every(1);
  spec.mutable_schedule()->set_factor(0.5);
  auto partition = Make(spec, 2, {8});
  // Worker 0 pushes round 2 before round 1 is complete. Each round brings its own hyperparameters.
  ASSERT_TRUE(Push(*partition, 1, 0, 1, HyperOf(2, 0.25)).ok());
  ASSERT_TRUE(Push(*partition, 2, 0, 1, HyperOf(4)).ok());
  ASSERT_TRUE(Push(*partition, 1, 1, 1).ok());
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(8 - 2 * (2 + 0.25 * 8)));  // 0
  ASSERT_TRUE(Push(*partition, 2, 1, 1).ok());
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(-8));
  ASSERT_TRUE(Push(*partition, 3, 0, 1).ok());
  ASSERT_TRUE(Push(*partition, 3, 1, 1).ok());
  // The schedule went on during those rounds: the rate is now a quarter.
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(-8 - 0.25 * (2 + 0.5 * -8)));
}

TEST(RoundStep, EveryOptimizerStepsAsIfItHadBeenMadeWithTheseNumbers) {
  for (const auto kind : {wire::OptimizerSpec::SGD, wire::OptimizerSpec::ADAM,
                          wire::OptimizerSpec::ADAMW, wire::OptimizerSpec::TEST}) {
    auto brought = Make(SpecOf(kind, 0.7, 0.3), 1, {0.5f});
    auto made = Make(SpecOf(kind, 0.7, 0.3), 1, {0.5f});
    for (uint64_t round = 1; round <= 6; ++round) {
      const double rate = 0.1 / static_cast<double>(round),
                   decay = 0.01 * static_cast<double>(round);
      const float gradient = round % 2 == 0 ? 0.3f : -0.7f;
      ASSERT_TRUE(Push(*brought, round, 0, gradient, HyperOf(rate, decay)).ok());
      made->SetOptimizer(MakeOptimizer(SpecOf(kind, rate, decay)));
      ASSERT_TRUE(Push(*made, round, 0, gradient).ok());
      ASSERT_EQ(WeightsOf(*brought), WeightsOf(*made)) << kind << " round " << round;
    }
    EXPECT_EQ(StateOf(*brought), StateOf(*made)) << kind;
  }
}

TEST(RoundStep, WherePushesAreAppliedAsTheyComeEachStepsByItsOwn) {
  for (const auto mode : {wire::DIST_ASYNC, wire::DIST_SSP}) {
    auto partition = Make(SgdSpec(1), 2, {0}, mode);
    ASSERT_TRUE(Push(*partition, 1, 1, 1, HyperOf(4)).ok());
    EXPECT_THAT(WeightsOf(*partition), ElementsAre(-4));
    ASSERT_TRUE(Push(*partition, 1, 0, 1, HyperOf(2)).ok());
    EXPECT_THAT(WeightsOf(*partition), ElementsAre(-6));
    ASSERT_TRUE(Push(*partition, 2, 1, 1).ok());
    EXPECT_THAT(WeightsOf(*partition), ElementsAre(-7)) << "the optimizer's own";
  }
}

TEST(RoundStep, HyperparametersOutOfRangeAreRefusedByNameAndThePushIsNotCounted) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const auto mode : {wire::DIST_SYNC, wire::DIST_ASYNC}) {
    auto partition = Make(SgdSpec(1), 1, {0}, mode);
    for (const double bad : {-0.5, kNan, kInf, -kInf, 1e39}) {
      for (const bool rate : {true, false}) {
        const auto refused =
            Push(*partition, 1, 0, 1, rate ? HyperOf(bad, 1) : HyperOf(1, bad)).status();
        EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << bad;
        EXPECT_THAT(std::string(refused.message()),
                    AllOf(HasSubstr("key s:w partition 0: push of worker 0 round 1: "),
                          HasSubstr(rate ? "learning_rate: expected at least 0"
                                         : "weight_decay: expected at least 0"),
                          HasSubstr(", got ")));
      }
    }
    EXPECT_THAT(std::string(Push(*partition, 1, 0, 1, HyperOf(kInf)).status().message()),
                HasSubstr("learning_rate: expected at least 0, finite in fp32, got inf"));
    EXPECT_EQ(partition->version(), 0u);
    EXPECT_EQ(Push(*partition, 1, 0, 1, HyperOf(3)).value(), PushVerdict::kAccepted);
    EXPECT_THAT(WeightsOf(*partition), ElementsAre(-3)) << "what was refused has left nothing";
  }
}

TEST(RoundStep, OfARepeatedPushTheFirstCounts) {
  auto partition = Make(SgdSpec(1), 2, {0});
  ASSERT_EQ(Push(*partition, 1, 0, 1, HyperOf(2)).value(), PushVerdict::kAccepted);
  ASSERT_EQ(Push(*partition, 1, 0, 1, HyperOf(64)).value(), PushVerdict::kDuplicate);
  ASSERT_EQ(Push(*partition, 1, 0, 1).value(), PushVerdict::kDuplicate);
  ASSERT_TRUE(Push(*partition, 1, 1, 1).ok());
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(-4));
}

TEST(RoundStep, ARoundOfNothingLeavesWeightsAndStateAndCountsNoUpdate) {
  for (const auto combine : {Combine::kSum, Combine::kMajority}) {
    for (const auto kind : {wire::OptimizerSpec::SGD, wire::OptimizerSpec::ADAM,
                            wire::OptimizerSpec::ADAMW, wire::OptimizerSpec::TEST}) {
      auto skips = Make(SpecOf(kind, 0.1, 0.5), 2, {3}, wire::DIST_SYNC, combine);
      auto without = Make(SpecOf(kind, 0.1, 0.5), 2, {3}, wire::DIST_SYNC, combine);
      for (const uint32_t worker : {0u, 1u}) {
        ASSERT_TRUE(Push(*skips, 1, worker, 0.25f).ok());
        ASSERT_TRUE(Push(*without, 1, worker, 0.25f).ok());
      }
      const auto weights = WeightsOf(*skips);
      const auto state = StateOf(*skips);
      EXPECT_EQ(state.second, 1u);
      // The hyperparameters of a skipped round do not count either.
      ASSERT_TRUE(Push(*skips, 2, 0, std::nullopt, HyperOf(5, 5)).ok());
      ASSERT_TRUE(Push(*skips, 2, 1, std::nullopt).ok());
      EXPECT_EQ(skips->version(), 2u);
      EXPECT_EQ(WeightsOf(*skips), weights) << kind;
      EXPECT_EQ(StateOf(*skips), state) << kind;
      // One gradient is enough to step all elements.
      ASSERT_TRUE(Push(*skips, 3, 0, std::nullopt).ok());
      ASSERT_TRUE(Push(*skips, 3, 1, 0.5f).ok());
      ASSERT_TRUE(Push(*without, 2, 0, std::nullopt).ok());
      ASSERT_TRUE(Push(*without, 2, 1, 0.5f).ok());
      EXPECT_NE(WeightsOf(*skips), weights) << kind;
      EXPECT_EQ(WeightsOf(*skips), WeightsOf(*without)) << kind;
      EXPECT_EQ(StateOf(*skips), StateOf(*without)) << kind;
    }
  }
}

TEST(RoundStep, AnAsynchronousPushOfNothingIsAVersionAndNoStep) {
  auto partition = Make(SpecOf(wire::OptimizerSpec::ADAM, 0.1, 0.5), 2, {3}, wire::DIST_ASYNC);
  ASSERT_TRUE(Push(*partition, 1, 0, std::nullopt).ok());
  EXPECT_EQ(partition->version(), 1u);
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(3));
  EXPECT_EQ(StateOf(*partition).second, 0u);
}

TEST(RoundStep, WithoutAnOptimizerARoundOfNothingIsTheSumOfNothing) {
  auto partition = Make({}, 2, {3});
  ASSERT_TRUE(Push(*partition, 1, 0, std::nullopt).ok());
  ASSERT_TRUE(Push(*partition, 1, 1, std::nullopt, HyperOf(1, 1)).ok());
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(0));
}

TEST(RoundStep, WhoHasLeftMakesARoundNeitherEmptyNorFull) {
  auto partition = Make(SpecOf(wire::OptimizerSpec::SGD, 1, 0.5), 2, {4});
  ASSERT_TRUE(partition->Leave(0, 1).ok());
  ASSERT_TRUE(Push(*partition, 1, 1, std::nullopt).ok());
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(4));
  ASSERT_TRUE(Push(*partition, 2, 1, 1, HyperOf(2)).ok());
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(2));
}

}  // namespace
}  // namespace slimps
