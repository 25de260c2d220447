// SPDX-License-Identifier: Apache-2.0
// Pulls of a shard's partitions: which version, when, and when not at all.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/status_proto.h"
#include "server/shard/pull_queue.h"
#include "tests/server/shard/shard_state_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Pulls key w, which has one element, as a whole or as the row 0.
ShardItems PullOne(uint64_t version, bool rows) {
  ShardItems items{.origin = {.peer = PeerId{100}, .worker = 0, .request_id = 1}};
  PullWork& pull = items.pulls.emplace_back();
  FillPull(&pull.item, {.min_version = version, .ticket = rows ? 1u : 2u});
  pull.item.set_rows_only(rows);
  if (rows) pull.item.set_rows(std::string(sizeof(uint32_t), '\0'));
  pull.deadline = SteadyTime::InfiniteFuture();
  return items;
}

TEST_F(ShardStateTest, LatePullGetsExactlyTheVersionThatItNames) {
  Init("w", {0});
  for (uint64_t round = 1; round <= 2; ++round) {
    Push(0, "w", round, {static_cast<float>(round)});
    Push(1, "w", round, {0});
  }
  ApplyAll();
  state_.TakeReplies();
  Pull({.worker = 0, .min_version = 1});
  EXPECT_THAT(Pulls()[0].values, ElementsAre(1));
  Pull({.worker = 0, .min_version = 2});
  EXPECT_THAT(Pulls()[0].values, ElementsAre(2));
}

// Once the answer was the current version, so a run's bits depended on when a pull arrived.
TEST_F(ShardStateTest, APullOfAVersionThatIsGoneIsRefused) {
  Init("w", {0});
  for (uint64_t round = 1; round <= 3; ++round) {
    Push(0, "w", round, {static_cast<float>(round)});
    Push(1, "w", round, {0});
    ApplyAll();
  }
  state_.TakeReplies();
  for (const bool rows : {false, true}) {
    for (const uint64_t version : {0, 1}) {
      state_.HandleItems(PullOne(version, rows));
      const std::vector<Pulled> pulled = Pulls();
      ASSERT_THAT(pulled, SizeIs(1));
      EXPECT_EQ(pulled[0].status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(pulled[0].status.message(),
                absl::StrCat("key s:w partition 0: version ", version,
                             " wanted, which is gone; 3 is the current one, and at most the one "
                             "before it is held"));
      EXPECT_THAT(pulled[0].values, IsEmpty());
    }
    state_.HandleItems(PullOne(2, rows));
    EXPECT_THAT(Pulls()[0].values, ElementsAre(2));
  }
}

// A worker that has left pushes no more. Rounds go on without it, and it wants the newest weights.
TEST_F(ShardStateTest, WhoAsksForTheNewestGetsItWhateverVersionItNames) {
  Init("w", {0});
  for (const bool rows : {false, true}) {
    ShardItems early = PullOne(1, rows);
    early.pulls[0].item.set_newest(true);
    state_.HandleItems(std::move(early));
  }
  EXPECT_THAT(Pulls(), IsEmpty()) << "it waits for the version that it names all the same";
  for (uint64_t round = 1; round <= 3; ++round) {
    for (uint32_t worker = 0; worker < 2; ++worker) Push(worker, "w", round, {1.0f * round});
    ApplyAll();
  }
  EXPECT_THAT(Pulls(), SizeIs(2));
  for (const bool rows : {false, true}) {
    ShardItems late = PullOne(1, rows);
    late.pulls[0].item.set_newest(true);
    state_.HandleItems(std::move(late));
    EXPECT_THAT(Pulls()[0].values, ElementsAre(6));
  }
}

TEST_F(ShardStateTest, WaitingPullGetsItsVersionThoughTwoRoundsAreComplete) {
  Init("w", {0});
  Pull({.worker = 0, .min_version = 1});
  for (uint64_t round = 1; round <= 2; ++round) Push(0, "w", round, {static_cast<float>(round)});
  for (uint64_t round = 1; round <= 2; ++round) Push(1, "w", round, {0});
  ApplyAll();
  const std::vector<Pulled> pulled = Pulls();
  ASSERT_THAT(pulled, SizeIs(1));
  EXPECT_EQ(pulled[0].version, 1);
}

TEST_F(ShardStateTest, ExpiredPullNamesKeyVersionsAndMissingWorkers) {
  Init("w", {0});
  Push(0, "w", 1, {1});
  state_.TakeReplies();
  Pull({.worker = 0, .min_version = 1});
  EXPECT_EQ(state_.NextDeadline(), clock_.Now() + absl::Seconds(5));
  clock_.Advance(absl::Seconds(4));
  state_.ExpirePulls();
  EXPECT_THAT(Pulls(), IsEmpty());
  clock_.Advance(absl::Seconds(1));
  state_.ExpirePulls();
  const std::vector<Pulled> pulled = Pulls();
  ASSERT_THAT(pulled, SizeIs(1));
  EXPECT_EQ(pulled[0].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(pulled[0].status.message(),
            "key s:w partition 0: version 1 wanted, 0 held; round 1 lacks the push of worker 1");
  EXPECT_EQ(state_.NextDeadline(), SteadyTime::InfiniteFuture());
}

constexpr char kWorker1Ended[] =
    "key s:w partition 0: round 2 waits for the push of worker 1, which has ended after its round "
    "1: a worker whose data is used up calls leave() before it ends, and one that lacks a batch "
    "calls skip_step()";

TEST_F(ShardStateTest, WaitingPullEndsAtOnceWhenItsWorkerHasEnded) {
  Init("w", {0});
  for (const uint32_t worker : {0, 1}) Push(worker, "w", 1, {1});
  state_.TakeReplies();
  Pull({.worker = 0, .min_version = 1});
  Pull({.worker = 0, .min_version = 2, .ticket = 2});
  state_.NoteEnded(1);
  std::vector<Pulled> pulled = Pulls();
  ASSERT_THAT(pulled, SizeIs(1)) << "round 1 has all pushes";
  EXPECT_EQ(pulled[0].status, absl::FailedPreconditionError(kWorker1Ended));
  ApplyAll();
  pulled = Pulls();
  ASSERT_THAT(pulled, SizeIs(1));
  EXPECT_EQ(pulled[0].version, 1);
}

TEST_F(ShardStateTest, WhatComesAfterAWorkersEndAndWaitsForItEndsAtOnce) {
  Init("w", {0});
  for (const uint32_t worker : {0, 1}) Push(worker, "w", 1, {1});
  ApplyAll();
  state_.TakeReplies();
  state_.NoteEnded(1);
  for (uint64_t round = 2; round <= 4; ++round) Push(0, "w", round, {1});
  EXPECT_THAT(PushCodes(), ElementsAre(absl::StatusCode::kOk, absl::StatusCode::kOk,
                                       absl::StatusCode::kFailedPrecondition))
      << "the last one is ahead of a round that never ends";
  Pull({.worker = 0, .min_version = 2});
  EXPECT_EQ(Pulls().at(0).status, absl::FailedPreconditionError(kWorker1Ended));
  Pull({.worker = 0, .min_version = 1});
  EXPECT_EQ(Pulls().at(0).version, 1);
}

// Once such a pull waited until its deadline.
TEST_F(ShardStateTest, APullThatWaitsForInitEndsAtOnceWhenWorker0HasEnded) {
  Pull({.worker = 1});
  state_.NoteEnded(1);
  EXPECT_THAT(Pulls(), IsEmpty());
  state_.NoteEnded(0);
  Pull({.worker = 1, .ticket = 2});
  const std::vector<Pulled> pulled = Pulls();
  ASSERT_THAT(pulled, SizeIs(2)) << "one that waited, and one that came later";
  for (const Pulled& one : pulled) {
    EXPECT_EQ(one.status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(one.status.message()),
                HasSubstr("worker 0 has ended and has not initialised it"));
  }
}

TEST_F(ShardStateTest, AWorkerThatHasLeftMayEnd) {
  Init("w", {0});
  ASSERT_EQ(state_.Leave(1, 1), absl::OkStatus());
  state_.NoteEnded(1);
  Push(0, "w", 1, {1});
  Pull({.worker = 0, .min_version = 2});
  Push(0, "w", 2, {2});
  ApplyAll();
  const std::vector<Pulled> pulled = Pulls();
  ASSERT_THAT(pulled, SizeIs(1));
  EXPECT_EQ(pulled[0].status, absl::OkStatus());
}

TEST_F(ShardStateTest, PullOfVersionZeroWaitsForInit) {
  Pull({.worker = 1, .min_version = 0, .elements = 2});
  EXPECT_THAT(Pulls(), IsEmpty());
  ShardItems items{.origin = From(0)};
  items.inits.push_back(MakeInit("w", {5, 6}));
  state_.HandleItems(std::move(items));
  const std::vector<Pulled> pulled = Pulls();
  ASSERT_THAT(pulled, SizeIs(1));
  EXPECT_THAT(pulled[0].values, ElementsAre(5, 6));
}

TEST_F(ShardStateTest, PullOfAKeyThatIsNeverInitialisedEndsAsNotFound) {
  Pull({.worker = 1, .min_version = 0, .elements = 2, .wait = absl::Seconds(1)});
  Pull({.worker = 1, .min_version = 3, .elements = 2, .wait = absl::Seconds(1), .ticket = 2});
  std::vector<Pulled> pulled = Pulls();
  ASSERT_THAT(pulled, SizeIs(1));  // version 3 cannot come first
  EXPECT_EQ(pulled[0].status.code(), absl::StatusCode::kNotFound);
  clock_.Advance(absl::Seconds(1));
  state_.ExpirePulls();
  pulled = Pulls();
  ASSERT_THAT(pulled, SizeIs(1));
  EXPECT_EQ(pulled[0].status.code(), absl::StatusCode::kNotFound);
}

TEST_F(ShardStateTest, PullOfAnotherLengthIsRefusedBeforeAndAfterInit) {
  Pull({.worker = 1, .min_version = 0, .elements = 3});
  ShardItems items{.origin = From(0)};
  items.inits.push_back(MakeInit("w", {5, 6}));
  state_.HandleItems(std::move(items));
  EXPECT_EQ(Pulls().at(0).status.code(), absl::StatusCode::kInvalidArgument);
  Pull({.worker = 1, .min_version = 0});
  const std::vector<Pulled> pulled = Pulls();
  EXPECT_EQ(pulled.at(0).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(pulled[0].status.message()), HasSubstr("expected 2"));
}

TEST_F(ShardStateTest, RetriedPullIsAnsweredOnceUnderTheLastRequest) {
  Init("w", {0});
  Pull({.worker = 0, .min_version = 1, .ticket = 4, .request_id = 1});
  Pull({.worker = 0, .min_version = 1, .ticket = 4, .request_id = 2});
  Push(0, "w", 1, {1});
  Push(1, "w", 1, {1});
  state_.TakeReplies();
  ApplyAll();
  const std::vector<Reply> replies = state_.TakeReplies();
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_EQ(replies[0].message.header.request_id(), 2);
}

TEST_F(ShardStateTest, APeerCannotFillTheQueueOfWaitingPulls) {
  Init("w", {0});
  for (uint64_t ticket = 0; ticket < 2 * PullQueue::kMaxPerWorker; ++ticket) {
    Pull({.worker = 0, .min_version = 1, .ticket = ticket});
  }
  const std::vector<Pulled> refused = Pulls();
  EXPECT_THAT(refused, SizeIs(PullQueue::kMaxPerWorker));
  EXPECT_EQ(refused[0].status.code(), absl::StatusCode::kResourceExhausted);
  Pull({.worker = 1, .min_version = 1});
  EXPECT_THAT(Pulls(), IsEmpty());  // another worker is not locked out
}

TEST_F(ShardStateTest, WhoHoldsTheVersionBeforeIsSentTheChange) {
  // With this many elements, one bit each is less than the weights themselves.
  const std::vector<float> values(64, 1);
  Init("w", values);
  for (uint32_t worker : {0, 1}) {
    ShardItems items{.origin = From(worker)};
    items.pushes.push_back(MakePush("w", 1, values));
    items.pushes[0].item.set_change_codec("1bit");
    state_.HandleItems(std::move(items));
  }
  ApplyAll();
  state_.TakeReplies();
  const auto pull = [&](std::optional<uint64_t> held) {
    ShardItems items{.origin = From(0)};
    PullWork work;
    FillPull(&work.item, {.min_version = 1, .elements = 64, .ticket = 9});
    work.item.set_takes_change(held.has_value());
    work.item.set_held_version(held.value_or(0));
    work.deadline = clock_.Now();
    items.pulls.push_back(std::move(work));
    state_.HandleItems(std::move(items));
    return state_.TakeReplies().at(0).message.header.pull_reply().items(0);
  };
  EXPECT_TRUE(pull(0).is_change());
  EXPECT_EQ(pull(0).base_version(), 0);
  EXPECT_EQ(pull(0).format(), wire::LEVELS);
  EXPECT_FALSE(pull(std::nullopt).is_change()) << "held_version counts with takes_change alone";
  EXPECT_FALSE(pull(7).is_change());
  EXPECT_EQ(pull(std::nullopt).format(), wire::RAW_F32);
}

TEST_F(ShardStateTest, AsyncPullSeesThePushBeforeIt) {
  ASSERT_TRUE(state_.SetOptimizer(MakeOptimizer(SgdSpec(1))).ok());
  Init("w", {0}, wire::DIST_ASYNC);
  Push(0, "w", 1, {5});
  Pull({.worker = 0, .min_version = 0});
  EXPECT_THAT(Pulls().at(0).values, ElementsAre(-5));
  Pull({.worker = 1, .min_version = 2});
  Push(0, "w", 2, {5});
  EXPECT_THAT(Pulls().at(0).values, ElementsAre(-10));
}

}  // namespace
}  // namespace slimps
