// SPDX-License-Identifier: Apache-2.0
// What a shard counts, acknowledges and applies.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status_proto.h"
#include "server/shard/pull_queue.h"
#include "tests/server/shard/shard_state_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(ShardStateTest, PushIsAcknowledgedWhenCountedAndThePullAnsweredWhenApplied) {
  Init("w", {0, 0});
  Push(0, "w", 1, {1, 2});
  EXPECT_THAT(PushCodes(), ElementsAre(absl::StatusCode::kOk));
  Pull({.worker = 0, .min_version = 1, .elements = 2});
  EXPECT_THAT(Pulls(), IsEmpty());
  Push(1, "w", 1, {3, 4});
  EXPECT_THAT(PushCodes(), ElementsAre(absl::StatusCode::kOk));
  ASSERT_TRUE(state_.HasCompleteRound());
  ApplyAll();
  const std::vector<Pulled> pulled = Pulls();
  ASSERT_THAT(pulled, SizeIs(1));
  EXPECT_EQ(pulled[0].to, From(0).peer);
  EXPECT_EQ(pulled[0].version, 1);
  EXPECT_THAT(pulled[0].values, ElementsAre(4, 6));
}

TEST_F(ShardStateTest, AnAcknowledgementTravelsWithASmallPullOfTheSameMessage) {
  Init("w", {7});
  ShardItems items{.origin = From(0)};
  items.pushes.push_back(MakePush("w", 1, {1}));
  PullWork pull;
  FillPull(&pull.item, {.ticket = 2});
  items.pulls.push_back(std::move(pull));
  state_.HandleItems(std::move(items));
  const std::vector<Reply> replies = state_.TakeReplies();
  ASSERT_THAT(replies, SizeIs(1));
  const wire::PullReply& reply = replies[0].message.header.pull_reply();
  EXPECT_EQ(reply.items(0).id().ticket(), 2);
  EXPECT_EQ(reply.pushed_size(), 1);
}

TEST_F(ShardStateTest, ItemsOfOneMessageAreAnsweredInOneEach) {
  Init("a", {1});
  Init("b", {2});
  ShardItems items{.origin = From(0, 9)};
  for (const char* name : {"a", "b", "unknown"}) items.pushes.push_back(MakePush(name, 1, {1}));
  state_.HandleItems(std::move(items));
  const std::vector<Reply> replies = state_.TakeReplies();
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_EQ(replies[0].message.header.request_id(), 9);
  ASSERT_EQ(replies[0].message.header.push_reply().items_size(), 3);
  const auto& unknown = replies[0].message.header.push_reply().items(2);
  EXPECT_EQ(unknown.id().key(), Key("unknown").id());
  EXPECT_EQ(FromStatusProto(unknown.status()).code(), absl::StatusCode::kNotFound);
}

TEST_F(ShardStateTest, PullsOfSmallTensorsThatBecomeReadyTogetherShareAMessage) {
  ShardItems pulls{.origin = From(0)};
  for (const char* name : {"a", "b", "c"}) {
    Init(name, {0});
    PullWork pull;
    FillPull(&pull.item, {.name = name, .min_version = 1});
    pull.deadline = clock_.Now() + absl::Seconds(1);
    pulls.pulls.push_back(std::move(pull));
  }
  state_.HandleItems(std::move(pulls));
  for (uint32_t worker : {0u, 1u}) {
    ShardItems pushes{.origin = From(worker)};
    for (const char* name : {"a", "b", "c"}) pushes.pushes.push_back(MakePush(name, 1, {1}));
    state_.HandleItems(std::move(pushes));
  }
  state_.TakeReplies();
  ApplyAll();
  const std::vector<Reply> replies = state_.TakeReplies();
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_EQ(replies[0].message.header.pull_reply().items_size(), 3);
  EXPECT_THAT(replies[0].message.payloads, SizeIs(3));
}

TEST_F(ShardStateTest, LargeAnswersDoNotWaitForOthers) {
  const std::vector<float> large(ReplyOutbox::kGroupBytes / sizeof(float));
  ReplyOutbox outbox;
  wire::PullItem item;
  outbox.AddPull(From(0), item, large.size(), {.payload = RawPayload(large)});
  EXPECT_THAT(outbox.Take(), SizeIs(1));
  outbox.AddPull(From(0), item, 1, {.payload = RawPayload({1})});
  EXPECT_THAT(outbox.Take(), IsEmpty());
  outbox.Flush();
  EXPECT_THAT(outbox.Take(), SizeIs(1));
}

TEST_F(ShardStateTest, PushOfTheNextRoundDoesNotDependOnWhenTheLastWasApplied) {
  Init("w", {0});
  for (uint64_t round = 1; round <= 2; ++round) {
    Push(0, "w", round, {1});
    Push(1, "w", round, {1});
  }
  // Both rounds are complete and neither has been applied. Still, round 3 is the next to push.
  state_.TakeReplies();
  Push(0, "w", 3, {1});
  EXPECT_THAT(PushCodes(), ElementsAre(absl::StatusCode::kOk));
}

TEST_F(ShardStateTest, FailureAnswersWhatWaitsAndWhatWouldHaveTo) {
  Init("w", {3});
  Pull({.worker = 0, .min_version = 1});
  state_.Fail(absl::UnavailableError("worker 1 is down"));
  std::vector<Pulled> pulled = Pulls();
  ASSERT_THAT(pulled, SizeIs(1));
  EXPECT_EQ(pulled[0].status, absl::UnavailableError("worker 1 is down"));
  Push(0, "w", 1, {1});
  EXPECT_THAT(PushCodes(), ElementsAre(absl::StatusCode::kUnavailable));
  Pull({.worker = 0, .min_version = 1, .ticket = 2});
  EXPECT_EQ(Pulls().at(0).status.code(), absl::StatusCode::kUnavailable);
  Pull({.worker = 0, .min_version = 0, .ticket = 3});
  EXPECT_THAT(Pulls().at(0).values, ElementsAre(3));  // the present version can still be read
}

TEST_F(ShardStateTest, LeaveCompletesWaitingRoundsAndHoldsForLaterPartitions) {
  Init("a", {0});
  Push(0, "a", 1, {1});
  ASSERT_TRUE(state_.Leave(1, 1).ok());
  ASSERT_TRUE(state_.HasCompleteRound());
  ApplyAll();
  EXPECT_EQ(state_.Find({.key = Key("a").id()})->version(), 1);
  state_.TakeReplies();
  Init("b", {0});
  Push(0, "b", 1, {1});
  ApplyAll();
  EXPECT_EQ(state_.Find({.key = Key("b").id()})->version(), 1);
}

TEST_F(ShardStateTest, TheEarliestLeaveHoldsForLaterPartitions) {
  ASSERT_TRUE(state_.Leave(1, 5).ok());
  ASSERT_TRUE(state_.Leave(1, 1).ok());
  ASSERT_TRUE(state_.Leave(1, 7).ok());
  Init("b", {0});
  Push(0, "b", 1, {1});
  ASSERT_TRUE(state_.HasCompleteRound());
}

TEST_F(ShardStateTest, OptimizerHoldsFromTheNextRoundAndForLaterPartitions) {
  Init("a", {1});
  ASSERT_TRUE(state_.SetOptimizer(MakeOptimizer(SgdSpec(1))).ok());
  Init("b", {1});
  for (const char* name : {"a", "b"}) {
    for (uint32_t worker : {0u, 1u}) Push(worker, name, 1, {1});
  }
  // A complete round that is not yet applied still steps with the optimizer it was pushed under.
  ASSERT_TRUE(state_.SetOptimizer(MakeOptimizer(SgdSpec(100))).ok());
  EXPECT_EQ(state_.Find({.key = Key("a").id()})->weights()[0], -1);
  EXPECT_EQ(state_.Find({.key = Key("b").id()})->weights()[0], -1);
  // With another kind of optimizer, the store keeps the sum.
  ASSERT_TRUE(state_.SetOptimizer(MakeOptimizer({})).ok());
  for (uint32_t worker : {0u, 1u}) Push(worker, "a", 2, {1});
  ApplyAll();
  EXPECT_EQ(state_.Find({.key = Key("a").id()})->weights()[0], 2);
}

TEST_F(ShardStateTest, HyperparametersOfAnItemReachTheStepAndBadOnesAreRefused) {
  Init("w", {1});
  ASSERT_TRUE(state_.SetOptimizer(MakeOptimizer(SgdSpec(100))).ok());
  const auto push = [&](uint32_t worker, double learning_rate) {
    ShardItems items{.origin = From(worker)};
    items.pushes.push_back(MakePush("w", 1, {1}));
    items.pushes[0].item.mutable_hyper()->set_learning_rate(learning_rate);
    state_.HandleItems(std::move(items));
    return FromStatusProto(
        state_.TakeReplies().at(0).message.header.push_reply().items(0).status());
  };
  const absl::Status refused = push(0, -2);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  for (const char* word : {"key s:w partition 0", "worker 0", "round 1",
                           "learning_rate: expected at least 0, got -2"}) {
    EXPECT_THAT(std::string(refused.message()), HasSubstr(word));
  }
  EXPECT_TRUE(push(1, 8).ok());
  EXPECT_FALSE(state_.HasCompleteRound()) << "what was refused does not count";
  EXPECT_TRUE(push(0, 2).ok());
  ApplyAll();
  EXPECT_EQ(state_.Find({.key = Key("w").id()})->weights()[0], -3);
}

TEST_F(ShardStateTest, APushThatAsksForAnUnknownCodecIsRefusedAndMayCorrectItself) {
  Init("w", {1, 2});
  ShardItems items{.origin = From(1)};
  items.pushes.push_back(MakePush("w", 1, {1, 1}));
  items.pushes[0].item.set_change_codec("dgc");
  state_.HandleItems(std::move(items));
  const absl::Status refused =
      FromStatusProto(state_.TakeReplies().at(0).message.header.push_reply().items(0).status());
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  for (const char* word : {"key s:w partition 0", "worker 1", "round 1", "dgc", "momentum"}) {
    EXPECT_THAT(std::string(refused.message()), HasSubstr(word));
  }
  Push(1, "w", 1, {1, 1});
  EXPECT_THAT(PushCodes(), ElementsAre(absl::StatusCode::kOk));
}

}  // namespace
}  // namespace slimps
