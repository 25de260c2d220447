// SPDX-License-Identifier: Apache-2.0
// Bounded staleness (dist_ssp) in a shard and in the service: which worker is answered when.
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/service/server_service_fixture.h"
#include "tests/server/shard/shard_state_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class StalenessTest : public ShardStateTest {
 protected:
  void Begin(uint32_t staleness) {
    ASSERT_TRUE(state_.SetOptimizer(MakeOptimizer(SgdSpec(1))).ok());
    Init("w", {0}, wire::DIST_SSP, staleness);
  }
  void PushRound(uint32_t worker, uint64_t round) {
    Push(worker, "w", round, {-1});
    EXPECT_THAT(PushCodes(), ElementsAre(absl::StatusCode::kOk));
  }
};

TEST_F(StalenessTest, APushIsAppliedAtOnceAndAReadWithinTheBoundIsAnswered) {
  Begin(1);
  PushRound(0, 1);
  EXPECT_FALSE(state_.HasCompleteRound());
  Pull({.worker = 0, .min_version = 0});
  EXPECT_THAT(Pulls().at(0).values, ElementsAre(1)) << "one round ahead is within the bound";
}

TEST_F(StalenessTest, AReadBeyondTheBoundWaitsForTheSlowest) {
  Begin(1);
  PushRound(0, 1);
  PushRound(0, 2);
  Pull({.worker = 0, .min_version = 0});
  EXPECT_THAT(Pulls(), IsEmpty());
  Pull({.worker = 1, .min_version = 0});
  EXPECT_THAT(Pulls(), SizeIs(1)) << "the slowest itself waits for nobody";
  Push(1, "w", 1, {-10});
  const std::vector<Reply> replies = state_.TakeReplies();
  std::vector<float> values;
  for (const Reply& reply : replies) {
    if (reply.message.header.has_pull_reply()) values = Floats(reply.message.payloads.at(0));
  }
  EXPECT_THAT(values, ElementsAre(12)) << "with everything that was applied until then";
}

TEST_F(StalenessTest, WhoWouldWaitForAWorkerThatHasEndedIsToldAtOnce) {
  Begin(1);
  PushRound(0, 1);
  PushRound(0, 2);
  Pull({.worker = 0, .min_version = 0});
  EXPECT_THAT(Pulls(), IsEmpty());
  state_.NoteEnded(1);
  const std::vector<Pulled> pulled = Pulls();
  ASSERT_THAT(pulled, SizeIs(1));
  EXPECT_THAT(
      std::string(pulled[0].status.message()),
      HasSubstr("round 1 waits for the push of worker 1, which has ended after its round 0"));
  Push(0, "w", 3, {-1});
  EXPECT_THAT(PushCodes(), ElementsAre(absl::StatusCode::kFailedPrecondition));
}

TEST_F(StalenessTest, StalenessZeroReadsOnceEveryoneHasPushed) {
  Begin(0);
  PushRound(0, 1);
  Pull({.worker = 0, .min_version = 0});
  EXPECT_THAT(Pulls(), IsEmpty());
  PushRound(1, 1);
  Pull({.worker = 0, .min_version = 0});
  EXPECT_THAT(Pulls().at(0).values, ElementsAre(2));
}

TEST_F(StalenessTest, EachRoundWaitsForItsOwn) {
  Begin(1);
  PushRound(0, 1);
  PushRound(0, 2);
  PushRound(1, 1);
  Pull({.worker = 0, .min_version = 0});
  EXPECT_THAT(Pulls(), SizeIs(1));
  PushRound(0, 3);
  Pull({.worker = 0, .min_version = 0});
  EXPECT_THAT(Pulls(), IsEmpty()) << "now round 2 of worker 1 is needed";
  Push(0, "w", 4, {-1});
  EXPECT_THAT(PushCodes(), ElementsAre(absl::StatusCode::kResourceExhausted));
}

TEST_F(StalenessTest, WhoLeavesLetsOthersRead) {
  Begin(0);
  PushRound(0, 1);
  Pull({.worker = 0, .min_version = 0});
  EXPECT_THAT(Pulls(), IsEmpty());
  ASSERT_TRUE(state_.Leave(1, 0).ok());
  EXPECT_THAT(Pulls().at(0).values, ElementsAre(1));
  for (uint64_t round = 2; round < 5; ++round) PushRound(0, round);
  Init("late", {0}, wire::DIST_SSP, 0);
  Push(0, "late", 1, {-1});
  EXPECT_THAT(PushCodes(), ElementsAre(absl::StatusCode::kOk));
  Pull({.worker = 0, .name = "late", .min_version = 0});
  EXPECT_THAT(Pulls().at(0).values, ElementsAre(1)) << "of keys that come later too";
}

TEST_F(StalenessTest, ALostNodeEndsTheWait) {
  Begin(0);
  PushRound(0, 1);
  Pull({.worker = 0, .min_version = 0});
  EXPECT_THAT(Pulls(), IsEmpty());
  state_.Fail(absl::UnavailableError("worker 1 is gone"));
  EXPECT_EQ(Pulls().at(0).status, absl::UnavailableError("worker 1 is gone"));
}

TEST_F(StalenessTest, AWaitThatEndsNamesWhoItWasFor) {
  Begin(1);
  PushRound(0, 1);
  PushRound(0, 2);
  Pull({.worker = 0, .min_version = 0});
  clock_.Advance(absl::Seconds(5));
  state_.ExpirePulls();
  EXPECT_EQ(Pulls().at(0).status,
            absl::DeadlineExceededError(
                "key s:w partition 0: with staleness 1 this pull waits for 1 rounds of every "
                "worker; fewer came from worker 1"));
}

TEST_F(StalenessTest, WithoutAnOptimizerPushesAreRefused) {
  Init("w", {0}, wire::DIST_SSP, 1);
  Push(0, "w", 1, {-1});
  const std::vector<Reply> replies = state_.TakeReplies();
  const auto status = FromStatusProto(replies.at(0).message.header.push_reply().items(0).status());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("dist_ssp needs an optimizer"));
}

using StalenessServiceTest = ServerServiceFixture;

TEST_F(StalenessServiceTest, TheFirstInitFixesTheBound) {
  Start(1, 2);
  const auto init = [&](const char* name, wire::StoreMode mode, uint32_t staleness) {
    Message message = From(0);
    AddInit(&message, {.name = name, .values = {0}});
    message.header.mutable_init()->set_mode(mode);
    message.header.mutable_init()->set_staleness(staleness);
    const Sent sent = Ask(std::move(message));
    return FromStatusProto(sent.message.header.init_reply().items(0).status());
  };
  EXPECT_TRUE(init("a", wire::DIST_SSP, 3).ok());
  EXPECT_TRUE(init("b", wire::DIST_SSP, 3).ok());
  const absl::Status other = init("c", wire::DIST_SSP, 2);
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr("the store has staleness 3, not 2"));
  EXPECT_EQ(init("d", wire::DIST_ASYNC, 3).code(), absl::StatusCode::kFailedPrecondition);
  Message none = From(0);
  none.header.mutable_set_optimizer()->set_mode(wire::DIST_SSP);
  EXPECT_EQ(AckStatus(Ask(std::move(none))).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace slimps
