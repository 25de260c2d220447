// SPDX-License-Identifier: Apache-2.0
// What a shard tells those who watch: which rounds wait for whom, since when, and its sums.
#include "server/shard/shard_figures.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/round/server_test_util.h"
#include "tests/server/shard/shard_state_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ShardFiguresTest : public ShardStateTest {
 protected:
  ShardSums Sums() const {
    ShardSums sums;
    state_.figures().AddTo(&sums);
    return sums;
  }
  double WaitedFor(uint32_t worker) const {
    return absl::ToDoubleSeconds(Sums().waited.at(worker));
  }
};

TEST_F(ShardFiguresTest, ARoundIsOpenFromItsFirstPushAndNamesWhoIsMissing) {
  Init("w", {0});
  Init("v", {0});
  EXPECT_THAT(Sums().open, IsEmpty());
  Push(0, "w", 1, {1});
  clock_.Advance(absl::Seconds(2));
  Push(0, "v", 1, {1});
  clock_.Advance(absl::Seconds(1));
  const ShardSums sums = Sums();
  ASSERT_EQ(sums.open.size(), 1u);
  const OpenRoundFigures& round = sums.open.at(1);
  EXPECT_EQ(clock_.Now() - round.since, absl::Seconds(3));
  EXPECT_EQ(round.partitions, 2u);
  EXPECT_THAT(round.tensors, ElementsAre("s:v", "s:w"));
  EXPECT_THAT(round.missing, ElementsAre(1));
}

TEST_F(ShardFiguresTest, ARoundThatHasAllPushesIsOpenUntilItIsApplied) {
  Init("w", {0});
  Push(0, "w", 1, {1});
  Push(1, "w", 1, {2});
  EXPECT_THAT(Sums().open.at(1).missing, IsEmpty());
  ApplyAll();
  EXPECT_THAT(Sums().open, IsEmpty());
  EXPECT_EQ(Sums().rounds, 1u);
}

TEST_F(ShardFiguresTest, TheNextRoundIsOpenAtOnceIfItHasAPush) {
  Init("w", {0});
  Push(0, "w", 1, {1});
  Push(0, "w", 2, {1});
  clock_.Advance(absl::Seconds(5));
  Push(1, "w", 1, {2});
  ApplyAll();
  clock_.Advance(absl::Seconds(1));
  const ShardSums sums = Sums();
  ASSERT_EQ(sums.open.size(), 1u);
  EXPECT_EQ(clock_.Now() - sums.open.at(2).since, absl::Seconds(1));
}

TEST_F(ShardFiguresTest, WaitingForOneWorkerAloneIsTimedOnceForAllPartitions) {
  Init("w", {0});
  Init("v", {0});
  Push(0, "w", 1, {1});
  clock_.Advance(absl::Seconds(1));
  Push(0, "v", 1, {1});
  clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(WaitedFor(1), 3);
  Push(1, "w", 1, {1});
  clock_.Advance(absl::Seconds(4));
  Push(1, "v", 1, {1});
  ApplyAll();
  clock_.Advance(absl::Seconds(8));
  EXPECT_EQ(WaitedFor(1), 7);
  EXPECT_EQ(WaitedFor(0), 0);
}

TEST_F(ShardFiguresTest, NobodyWaitsForAWorkerThatIsAwayOrHasLeft) {
  Init("w", {0});
  Init("v", {0});
  Push(0, "w", 1, {1});
  state_.SetAway(1);
  EXPECT_THAT(Sums().open.at(1).missing, IsEmpty());
  ApplyAll();
  state_.SetPresent(1);
  ASSERT_TRUE(state_.Leave(0, 0).ok());
  EXPECT_THAT(Sums().open, IsEmpty());
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(WaitedFor(1), 0);
}

TEST_F(ShardFiguresTest, PayloadsAreCountedOnceByFormatAndRepeatsApart) {
  Init("w", {0, 0});
  Push(0, "w", 1, {1, 2});
  Push(0, "w", 1, {1, 2});
  Push(1, "w", 1, {1, 2});
  ApplyAll();
  EXPECT_THAT(PushCodes(), ::testing::SizeIs(3));
  Pull({.worker = 0, .min_version = 1, .elements = 2});
  EXPECT_THAT(Pulls(), ::testing::SizeIs(1));
  const ShardSums sums = Sums();
  const auto raw = static_cast<size_t>(PayloadFormat::kRawF32);
  EXPECT_EQ(sums.received[raw], 16u);
  EXPECT_EQ(sums.sent[raw], 8u);
  EXPECT_EQ(sums.repeats, 1u);
}

TEST_F(ShardFiguresTest, APullBeyondTheStalenessNamesTheSlowWorkers) {
  ASSERT_TRUE(state_.SetOptimizer(MakeOptimizer(SgdSpec(1))).ok());
  Init("w", {0}, wire::DIST_SSP, /*staleness=*/0);
  Push(0, "w", 1, {-1});
  EXPECT_THAT(Sums().open, IsEmpty()) << "nobody asks";
  Pull({.worker = 0});
  const ShardSums sums = Sums();
  ASSERT_EQ(sums.open.size(), 1u);
  EXPECT_THAT(sums.open.at(1).missing, ElementsAre(1));
  Push(1, "w", 1, {-1});
  EXPECT_THAT(Sums().open, IsEmpty());
  EXPECT_EQ(Sums().rounds, 2u);
}

TEST_F(ShardFiguresTest, APullThatIsLateWaitsNoMore) {
  ASSERT_TRUE(state_.SetOptimizer(MakeOptimizer(SgdSpec(1))).ok());
  Init("w", {0}, wire::DIST_SSP, /*staleness=*/0);
  Push(0, "w", 1, {-1});
  Pull({.worker = 0});
  clock_.Advance(absl::Seconds(6));
  state_.ExpirePulls();
  EXPECT_THAT(Sums().open, IsEmpty());
}

TEST_F(ShardFiguresTest, AtMostEightTensorsAreNamed) {
  for (int i = 0; i < 10; ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    Init(name, {0});
    Push(0, name, 1, {1});
  }
  EXPECT_EQ(Sums().open.at(1).tensors.size(), 8u);
  EXPECT_EQ(Sums().open.at(1).partitions, 10u);
}

}  // namespace
}  // namespace slimps
