// SPDX-License-Identifier: Apache-2.0
// Optimizer state that a shard returns or receives while some rounds are counted but not applied.
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/shard/shard_state_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ShardOptimizerStatesTest : public ShardStateTest {
 protected:
  void Begin(wire::StoreMode mode = wire::DIST_SYNC, uint32_t staleness = 0) {
    ASSERT_TRUE(state_.SetOptimizer(MakeOptimizer(SgdSpec(1, 0.5))).ok());
    Init("w", {0}, mode, staleness);
  }

  // Loads a momentum of this value, saved after `updates` updates. Returns the answer's code.
  absl::StatusCode Put(float momentum, uint64_t updates) {
    return Put(MakeInit("w", {momentum}), updates, 1);
  }
  absl::StatusCode Put(InitWork put, uint64_t updates, uint64_t load) {
    wire::OptimizerState& state = put.state.emplace();
    state.set_kind(wire::OptimizerSpec::SGD);
    state.set_tensors(1);
    state.set_tensor(1);
    state.set_updates(updates);
    state.set_load(load);
    ShardItems items{.origin = From(0)};
    items.inits.push_back(std::move(put));
    state_.HandleItems(std::move(items));
    return InitCodes().at(0);
  }
  void PullState(uint32_t worker, uint64_t min_version) {
    ShardItems items{.origin = From(worker)};
    PullWork pull;
    FillPull(&pull.item, {.min_version = min_version});
    pull.item.set_state_tensor(1);
    pull.deadline = clock_.Now() + absl::Seconds(5);
    items.pulls.push_back(std::move(pull));
    state_.HandleItems(std::move(items));
  }
  uint64_t updates() {
    wire::OptimizerState state;
    (void)state_.Find({.key = Key("w").id()})->ShareState(&state);
    return state.updates();
  }
};

TEST_F(ShardOptimizerStatesTest, ARoundThatWasAcknowledgedBeforeDoesNotStepWhatIsPut) {
  Begin();
  for (const uint32_t worker : {0u, 1u}) Push(worker, "w", 1, {4});
  EXPECT_THAT(PushCodes(), SizeIs(2));
  ASSERT_TRUE(state_.HasCompleteRound());
  EXPECT_EQ(Put(7, 100), absl::StatusCode::kOk);
  ApplyAll();
  EXPECT_EQ(state_.Find({.key = Key("w").id()})->weights()[0], -8) << "the round was applied";
  EXPECT_EQ(updates(), 100u);
  PullState(0, 1);
  EXPECT_THAT(Pulls().at(0).values, ElementsAre(7));
}

TEST_F(ShardOptimizerStatesTest, WhoHasLeftPullsTheStateOfEverythingAcknowledged) {
  Begin();
  ASSERT_TRUE(state_.Leave(1, 1).ok());
  Push(0, "w", 1, {4});
  state_.TakeReplies();
  ASSERT_TRUE(state_.HasCompleteRound());
  PullState(1, 0);
  EXPECT_THAT(Pulls().at(0).values, ElementsAre(4));
  EXPECT_EQ(updates(), 1u);
  EXPECT_FALSE(state_.HasCompleteRound());
}

TEST_F(ShardOptimizerStatesTest, UnderBoundedStalenessNobodyWaitsForTheSlowest) {
  Begin(wire::DIST_SSP, 1);
  Push(0, "w", 1, {4});
  Push(0, "w", 2, {4});
  state_.TakeReplies();
  PullState(0, 0);
  EXPECT_THAT(Pulls().at(0).values, ElementsAre(6));
  Pull({.worker = 0, .min_version = 0});
  EXPECT_THAT(Pulls(), IsEmpty()) << "weights wait as ever";
}

TEST_F(ShardOptimizerStatesTest, StateOfARoundThatIsNotCompleteIsWaitedFor) {
  Begin();
  Push(0, "w", 1, {4});
  state_.TakeReplies();
  PullState(0, 1);
  EXPECT_THAT(Pulls(), IsEmpty());
  Push(1, "w", 1, {1});
  ApplyAll();
  std::vector<float> values;
  for (const Pulled& pulled : Pulls()) values = pulled.values;
  EXPECT_THAT(values, ElementsAre(5));
}

TEST_F(ShardOptimizerStatesTest, AShardThatHasFailedNeitherGivesNorTakesAny) {
  Begin();
  state_.Fail(absl::AbortedError("the job is over"));
  EXPECT_EQ(Put(7, 100), absl::StatusCode::kAborted);
  PullState(0, 0);
  EXPECT_EQ(Pulls().at(0).status, absl::AbortedError("the job is over"));
  EXPECT_EQ(updates(), 0u);
}

TEST_F(ShardOptimizerStatesTest, ZerosFromTheBeginningAreAbsentAndAbsentIsTakenForZeros) {
  Begin();
  PullState(0, 0);
  EXPECT_THAT(Pulls().at(0).values, IsEmpty());
  EXPECT_EQ(Put(7, 0), absl::StatusCode::kOk);
  PullState(0, 0);
  EXPECT_THAT(Pulls().at(0).values, ElementsAre(7)) << "put back with no update counted";
  InitWork zeros = MakeInit("w", {5});
  zeros.value = {.format = PayloadFormat::kAbsent};
  EXPECT_EQ(Put(std::move(zeros), 3, 2), absl::StatusCode::kOk);
  PullState(0, 0);
  EXPECT_THAT(Pulls().at(0).values, ElementsAre(0));
  EXPECT_EQ(updates(), 3u);
}

TEST_F(ShardOptimizerStatesTest, StateOfAPartitionThatIsNotThereIsRefused) {
  EXPECT_EQ(Put(7, 100), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace slimps
