// SPDX-License-Identifier: Apache-2.0
// A partition's part in clipping by the norm of several partitions' mean gradients.
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/round/aggregate.h"
#include "server/round/partition.h"
#include "tests/compress/format/rows_test_util.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

wire::OptimizerSpec MeanSgd(double momentum = 0) {
  wire::OptimizerSpec spec = SgdSpec(1, momentum);
  spec.set_average(true);
  return spec;
}

class ClippedTest : public ::testing::Test {
 protected:
  static PartitionSpec Spec(size_t elements, uint32_t workers) {
    PartitionSpec spec;
    spec.key = Key("w").id();
    spec.name = "s:w";
    spec.elements = elements;
    spec.row_elements = 1;
    spec.num_workers = workers;
    spec.mode = wire::DIST_SYNC;
    return spec;
  }
  void Make(const std::vector<float>& initial, const wire::OptimizerSpec& optimizer = MeanSgd(),
            uint32_t workers = 2) {
    partition_ =
        Partition::Create(Spec(initial.size(), workers), Raw(initial), MakeOptimizer(optimizer))
            .value();
  }
  absl::Status Push(uint64_t round, uint32_t worker, ClaimedPayload payload,
                    PushedAs as = PushedAs::kClippedGradient) {
    return partition_
        ->Push(round, worker, partition_->spec().elements, std::move(payload), nullptr,
               std::nullopt, as)
        .status();
  }
  // Measures and applies all that can be.
  void ApplyAll() {
    while (partition_->HasCompleteRound()) {
      if (partition_->MustMeasureNext()) {
        partition_->MeasureNextRound();
      } else {
        partition_->ApplyNextRound();
      }
    }
  }
  std::vector<float> Weights() const {
    return {partition_->weights().begin(), partition_->weights().end()};
  }

  std::unique_ptr<Partition> partition_;
};

TEST_F(ClippedTest, AStepWaitsForItsScaleAndTheNormDoesNot) {
  Make({0, 0});
  ASSERT_TRUE(Push(1, 0, Raw({2, 0})).ok());
  ASSERT_TRUE(Push(1, 1, Raw({4, 8})).ok());
  ASSERT_TRUE(partition_->HasCompleteRound());
  ApplyAll();
  EXPECT_EQ(partition_->version(), 0u);
  EXPECT_EQ(partition_->measured(), 1u);
  EXPECT_EQ(*partition_->Norm2(1), 25);  // of the mean (3, 4)
  EXPECT_FALSE(partition_->HasCompleteRound());
  EXPECT_THAT(partition_->DescribeWait(1), HasSubstr("waits for the norm"));
  EXPECT_EQ(*partition_->ScaleRound(1, 0, 0.5), PushVerdict::kAccepted);
  ApplyAll();
  EXPECT_THAT(Weights(), ElementsAre(-1.5f, -2));
  EXPECT_EQ(*partition_->Norm2(1), 25) << "a late pull still gets it";
}

TEST_F(ClippedTest, AScaleOfOneGivesTheBitsOfAStepThatIsNotClipped) {
  const std::vector<float> initial = RandomValues(9000, 1);
  std::vector<std::vector<float>> results;
  for (const PushedAs as : {PushedAs::kGradient, PushedAs::kClippedGradient}) {
    Make(initial, MeanSgd(0.9), 3);
    for (uint64_t round = 1; round <= 3; ++round) {
      for (uint32_t worker = 0; worker < 3; ++worker) {
        ASSERT_TRUE(Push(round, worker, Raw(RandomValues(9000, 10 * round + worker)), as).ok());
      }
      ASSERT_TRUE(partition_->ScaleRound(round, 2, 1).ok());
      ApplyAll();
    }
    EXPECT_EQ(partition_->version(), 3u);
    results.push_back(Weights());
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(ClippedTest, AScaleMayComeBeforeThePushesAndAgain) {
  Make({0});
  EXPECT_EQ(*partition_->ScaleRound(1, 1, 0.25), PushVerdict::kAccepted);
  ASSERT_TRUE(Push(1, 0, Raw({4})).ok());
  ASSERT_TRUE(Push(1, 1, Raw({4})).ok());
  ApplyAll();
  EXPECT_THAT(Weights(), ElementsAre(-1));
  EXPECT_EQ(*partition_->ScaleRound(1, 0, 0.25), PushVerdict::kDuplicate);
  const absl::Status other = partition_->ScaleRound(1, 0, 0.5).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(
      std::string(other.message()),
      HasSubstr("gradient scale of worker 0 for round 1: its gradient is scaled by 0.5, and "
                "another worker said 0.25"));
}

TEST_F(ClippedTest, ANormThatIsNotFiniteSkipsTheStepOfWeightsAndState) {
  Make({1, 1}, MeanSgd(0.5), 1);
  const auto step = [&](uint64_t round, const std::vector<float>& gradient, double scale) {
    ASSERT_TRUE(Push(round, 0, Raw(gradient)).ok());
    ApplyAll();
    ASSERT_TRUE(partition_->ScaleRound(round, 0, scale).ok());
    ApplyAll();
    EXPECT_EQ(partition_->version(), round);
  };
  step(1, {1, 0}, 1);
  EXPECT_THAT(Weights(), ElementsAre(0, 1));
  step(2, {std::numeric_limits<float>::infinity(), 1}, 0);
  EXPECT_FALSE(std::isfinite(*partition_->Norm2(2)));
  EXPECT_THAT(Weights(), ElementsAre(0, 1));
  step(3, {0, 0}, 1);
  EXPECT_THAT(Weights(), ElementsAre(-0.5f, 1)) << "the momentum of step 1, halved once";
}

TEST_F(ClippedTest, RowsAndWorkersWithoutAGradientCountAsTheyDoInTheMean) {
  wire::OptimizerSpec spec = MeanSgd();
  Make(std::vector<float>(4), spec);
  const RowGrid grid = partition_->spec().grid();
  const Payload rows = Payload::Copy(RowsPayload(grid, {1, 3}, std::vector<float>{0, 6, 0, 8}));
  ASSERT_TRUE(Push(1, 0, {.format = PayloadFormat::kRows, .payload = rows, .checksum = 1}).ok());
  ASSERT_TRUE(Push(1, 1, {}).ok());
  ApplyAll();
  EXPECT_EQ(*partition_->Norm2(1), 25);
  ASSERT_TRUE(partition_->ScaleRound(1, 0, 0.5).ok());
  ApplyAll();
  EXPECT_THAT(Weights(), ElementsAre(0, -1.5f, 0, -2));
}

TEST_F(ClippedTest, AMeasuredRoundIsClosedForAWorkerThatComesBack) {
  Make({0});
  partition_->SetAway(1);
  ASSERT_TRUE(Push(1, 0, Raw({3})).ok());
  ApplyAll();
  EXPECT_EQ(*partition_->Norm2(1), 9);
  partition_->Return(1);
  EXPECT_FALSE(partition_->WaitsFor(1, 0));
  EXPECT_EQ(partition_->StandingOf(1)->next_round(), 2u);
  ASSERT_TRUE(partition_->ScaleRound(1, 0, 1).ok());
  ApplyAll();
  EXPECT_THAT(Weights(), ElementsAre(-3));
}

TEST_F(ClippedTest, ASnapshotHasARoundOnceItHasItsScale) {
  Make({0});
  ASSERT_TRUE(Push(1, 0, Raw({1})).ok());
  ASSERT_TRUE(Push(1, 1, Raw({1})).ok());
  ASSERT_TRUE(Push(2, 0, Raw({1})).ok());
  EXPECT_EQ(partition_->CountedUpTo(0), 0u);
  ASSERT_TRUE(partition_->ScaleRound(1, 0, 1).ok());
  EXPECT_EQ(partition_->CountedUpTo(0), 1u);
  ASSERT_TRUE(partition_->ScaleRound(2, 0, 1).ok());
  EXPECT_EQ(partition_->CountedUpTo(0), 2u);
  EXPECT_EQ(partition_->CountedUpTo(1), 1u);
}

// Once the message counted only rounds whose scale was known.
TEST_F(ClippedTest, TheLastRoundOfAWorkerThatEndedIsTheOneThatItPushed) {
  Make({0});
  ASSERT_TRUE(Push(1, 1, Raw({1})).ok());
  EXPECT_THAT(
      std::string(partition_->CheckComes({1}, 2, 0).message()),
      HasSubstr("round 2 waits for the push of worker 1, which has ended after its round 1"));
}

TEST_F(ClippedTest, NormsAreKeptAsLongAsVersions) {
  Make({0}, MeanSgd(), 1);
  for (uint64_t round = 1; round <= 3; ++round) {
    ASSERT_TRUE(Push(round, 0, Raw({static_cast<float>(round)})).ok());
    ASSERT_TRUE(partition_->ScaleRound(round, 0, 1).ok());
    ApplyAll();
  }
  EXPECT_EQ(partition_->Norm2(1).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(*partition_->Norm2(2), 4);
  EXPECT_EQ(*partition_->Norm2(3), 9);
  ASSERT_TRUE(Push(4, 0, Raw({1}), PushedAs::kGradient).ok());
  ApplyAll();
  EXPECT_EQ(*partition_->Norm2(4), 0) << "a round that was not clipped adds nothing";
}

TEST_F(ClippedTest, WhatCannotBeClippedIsRefusedByName) {
  Make({0}, {});
  EXPECT_THAT(
      std::string(Push(1, 0, Raw({1})).message()),
      HasSubstr("expected dist_sync and sgd, adam or adamw over sums of gradients, got NONE"));
  wire::OptimizerSpec onebit = MeanSgd();
  onebit.set_kind(wire::OptimizerSpec::ONEBIT_ADAM);
  onebit.set_beta1(0.9);
  onebit.set_beta2(0.99);
  onebit.set_epsilon(1e-8);
  Make({0}, onebit);
  EXPECT_EQ(Push(1, 0, Raw({1})).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(partition_->ScaleRound(1, 0, 0.5).status().message()),
              HasSubstr("sgd, adam or adamw over sums of gradients, got ONEBIT_ADAM"));
  Make({0});
  for (const double scale : {-0.5, 1.5, std::nan("")}) {
    EXPECT_EQ(partition_->ScaleRound(1, 0, scale).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(partition_->ScaleRound(1000, 0, 1).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(SquaresOfSum, AreThoseOfDoubles) {
  const std::vector<float> a = RandomValues(10007, 1), b = RandomValues(10007, 2);
  const Payload first = RawPayload(a), second = RawPayload(b);
  const std::vector<PayloadView> views = {{PayloadFormat::kRawF32, first.bytes()},
                                          {PayloadFormat::kRawF32, second.bytes()}};
  double expected = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double sum = a[i] + b[i];
    expected += sum * sum;
  }
  EXPECT_NEAR(SquaresOfSum(views, a.size()) / expected, 1, 1e-12);
  EXPECT_EQ(SquaresOfSum({}, 100), 0);
}

}  // namespace
}  // namespace slimps
