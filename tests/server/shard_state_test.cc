#include "server/shard_state.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status_proto.h"
#include "server/pull_queue.h"
#include "tests/server/server_test_util.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// One shard of a job of two workers, driven by hand.
class ShardStateTest : public ::testing::Test {
 protected:
  static Origin From(uint32_t worker, uint64_t request_id = 1) {
    return {.peer = PeerId{worker + 100}, .worker = worker, .request_id = request_id};
  }

  static InitWork MakeInit(const std::string& name, const std::vector<float>& values,
                           wire::StoreMode mode = wire::DIST_SYNC) {
    InitWork init;
    init.id = MakeId(name, 0, 1);
    init.spec.key = Key(name).id();
    init.spec.name = Key(name).typed_name();
    init.spec.elements = values.size();
    init.spec.num_workers = 2;
    init.spec.mode = mode;
    init.value = Raw(values);
    return init;
  }

  void Init(const std::string& name, const std::vector<float>& values,
            wire::StoreMode mode = wire::DIST_SYNC) {
    ShardItems items{.origin = From(0)};
    items.inits.push_back(MakeInit(name, values, mode));
    state_.HandleItems(std::move(items));
    ASSERT_THAT(InitCodes(), ElementsAre(absl::StatusCode::kOk));
  }

  static PushWork MakePush(const std::string& name, uint64_t round,
                           const std::vector<float>& values) {
    Message message;
    PushWork push;
    FillPush(&message, &push.item, name, 0, round, values, round);
    push.payload = message.payloads[0];
    return push;
  }

  void Push(uint32_t worker, const std::string& name, uint64_t round,
            const std::vector<float>& values) {
    ShardItems items{.origin = From(worker)};
    items.pushes.push_back(MakePush(name, round, values));
    state_.HandleItems(std::move(items));
  }

  void Pull(uint32_t worker, const std::string& name, uint64_t min_version, size_t elements,
            absl::Duration wait = absl::Seconds(5), uint64_t ticket = 1, uint64_t request_id = 1) {
    ShardItems items{.origin = From(worker, request_id)};
    PullWork pull;
    FillPull(&pull.item, name, 0, min_version, elements, 0, ticket);
    pull.deadline = clock_.Now() + wait;
    items.pulls.push_back(std::move(pull));
    state_.HandleItems(std::move(items));
  }

  void ApplyAll() {
    while (state_.HasCompleteRound()) state_.ApplyOne();
  }

  // The next messages must be InitReplies / PushReplies / PullReplies; their items' codes.
  std::vector<absl::StatusCode> InitCodes() {
    std::vector<absl::StatusCode> codes;
    for (const Reply& reply : state_.TakeReplies()) {
      for (const auto& item : reply.message.header.init_reply().items()) {
        codes.push_back(FromStatusProto(item.status()).code());
      }
    }
    return codes;
  }
  std::vector<absl::StatusCode> PushCodes() {
    std::vector<absl::StatusCode> codes;
    for (const Reply& reply : state_.TakeReplies()) {
      for (const auto& item : reply.message.header.push_reply().items()) {
        codes.push_back(FromStatusProto(item.status()).code());
      }
    }
    return codes;
  }

  struct Pulled {
    PeerId to;
    absl::Status status;
    uint64_t version;
    std::vector<float> values;
  };
  std::vector<Pulled> Pulls() {
    std::vector<Pulled> pulled;
    for (const Reply& reply : state_.TakeReplies()) {
      size_t next = 0;
      for (const auto& item : reply.message.header.pull_reply().items()) {
        pulled.push_back({reply.to, FromStatusProto(item.status()), item.version(),
                          item.payload_bytes() > 0 ? Floats(reply.message.payloads[next++])
                                                   : std::vector<float>()});
      }
    }
    return pulled;
  }

  FakeClock clock_;
  ShardState state_{MakeOptimizer({}), &clock_};
};

TEST_F(ShardStateTest, PushIsAcknowledgedWhenCountedAndThePullAnsweredWhenApplied) {
  Init("w", {0, 0});
  Push(0, "w", 1, {1, 2});
  EXPECT_THAT(PushCodes(), ElementsAre(absl::StatusCode::kOk));
  Pull(0, "w", 1, 2);
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

TEST_F(ShardStateTest, PushReplyLeavesBeforeThePullReplyOfTheSameMessage) {
  Init("w", {7});
  ShardItems items{.origin = From(0)};
  items.pushes.push_back(MakePush("w", 1, {1}));
  PullWork pull;
  FillPull(&pull.item, "w", 0, 0, 1, 0, 2);
  items.pulls.push_back(std::move(pull));
  state_.HandleItems(std::move(items));
  const std::vector<Reply> replies = state_.TakeReplies();
  ASSERT_THAT(replies, SizeIs(2));
  EXPECT_TRUE(replies[0].message.header.has_push_reply());
  EXPECT_TRUE(replies[1].message.header.has_pull_reply());
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
    FillPull(&pull.item, name, 0, 1, 1, 0, 1);
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

TEST_F(ShardStateTest, LatePullGetsExactlyTheVersionThatItNames) {
  Init("w", {0});
  for (uint64_t round = 1; round <= 2; ++round) {
    Push(0, "w", round, {static_cast<float>(round)});
    Push(1, "w", round, {0});
  }
  ApplyAll();
  state_.TakeReplies();
  Pull(0, "w", 1, 1);
  EXPECT_THAT(Pulls()[0].values, ElementsAre(1));
  Pull(0, "w", 2, 1);
  EXPECT_THAT(Pulls()[0].values, ElementsAre(2));
}

TEST_F(ShardStateTest, WaitingPullGetsItsVersionThoughTwoRoundsAreComplete) {
  Init("w", {0});
  Pull(0, "w", 1, 1);
  for (uint64_t round = 1; round <= 2; ++round) Push(0, "w", round, {static_cast<float>(round)});
  for (uint64_t round = 1; round <= 2; ++round) Push(1, "w", round, {0});
  ApplyAll();
  const std::vector<Pulled> pulled = Pulls();
  ASSERT_THAT(pulled, SizeIs(1));
  EXPECT_EQ(pulled[0].version, 1);
}

TEST_F(ShardStateTest, PushOfTheNextRoundDoesNotDependOnWhenTheLastWasApplied) {
  Init("w", {0});
  for (uint64_t round = 1; round <= 2; ++round) {
    Push(0, "w", round, {1});
    Push(1, "w", round, {1});
  }
  // Both rounds are complete and neither has been applied: round 3 is the next one all the same.
  state_.TakeReplies();
  Push(0, "w", 3, {1});
  EXPECT_THAT(PushCodes(), ElementsAre(absl::StatusCode::kOk));
}

TEST_F(ShardStateTest, ExpiredPullNamesKeyVersionsAndMissingWorkers) {
  Init("w", {0});
  Push(0, "w", 1, {1});
  state_.TakeReplies();
  Pull(0, "w", 1, 1, absl::Seconds(5));
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
  EXPECT_EQ(state_.NextDeadline(), absl::InfiniteFuture());
}

TEST_F(ShardStateTest, PullOfVersionZeroWaitsForInit) {
  Pull(1, "w", 0, 2);
  EXPECT_THAT(Pulls(), IsEmpty());
  ShardItems items{.origin = From(0)};
  items.inits.push_back(MakeInit("w", {5, 6}));
  state_.HandleItems(std::move(items));
  const std::vector<Pulled> pulled = Pulls();
  ASSERT_THAT(pulled, SizeIs(1));
  EXPECT_THAT(pulled[0].values, ElementsAre(5, 6));
}

TEST_F(ShardStateTest, PullOfAKeyThatIsNeverInitialisedEndsAsNotFound) {
  Pull(1, "w", 0, 2, absl::Seconds(1));
  Pull(1, "w", 3, 2, absl::Seconds(1), 2);
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
  Pull(1, "w", 0, 3);
  ShardItems items{.origin = From(0)};
  items.inits.push_back(MakeInit("w", {5, 6}));
  state_.HandleItems(std::move(items));
  EXPECT_EQ(Pulls().at(0).status.code(), absl::StatusCode::kInvalidArgument);
  Pull(1, "w", 0, 1);
  const std::vector<Pulled> pulled = Pulls();
  EXPECT_EQ(pulled.at(0).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(pulled[0].status.message()), HasSubstr("expected 2"));
}

TEST_F(ShardStateTest, RetriedPullIsAnsweredOnceUnderTheLastRequest) {
  Init("w", {0});
  Pull(0, "w", 1, 1, absl::Seconds(5), /*ticket=*/4, /*request_id=*/1);
  Pull(0, "w", 1, 1, absl::Seconds(5), /*ticket=*/4, /*request_id=*/2);
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
    Pull(0, "w", 1, 1, absl::Seconds(5), ticket);
  }
  const std::vector<Pulled> refused = Pulls();
  EXPECT_THAT(refused, SizeIs(PullQueue::kMaxPerWorker));
  EXPECT_EQ(refused[0].status.code(), absl::StatusCode::kResourceExhausted);
  Pull(1, "w", 1, 1);
  EXPECT_THAT(Pulls(), IsEmpty());  // another worker is not locked out
}

TEST_F(ShardStateTest, FailureAnswersWhatWaitsAndWhatWouldHaveTo) {
  Init("w", {3});
  Pull(0, "w", 1, 1);
  state_.Fail(absl::UnavailableError("worker 1 is down"));
  std::vector<Pulled> pulled = Pulls();
  ASSERT_THAT(pulled, SizeIs(1));
  EXPECT_EQ(pulled[0].status, absl::UnavailableError("worker 1 is down"));
  Push(0, "w", 1, {1});
  EXPECT_THAT(PushCodes(), ElementsAre(absl::StatusCode::kUnavailable));
  Pull(0, "w", 1, 1, absl::Seconds(5), 2);
  EXPECT_EQ(Pulls().at(0).status.code(), absl::StatusCode::kUnavailable);
  Pull(0, "w", 0, 1, absl::Seconds(5), 3);
  EXPECT_THAT(Pulls().at(0).values, ElementsAre(3));  // what is there can still be read
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

TEST_F(ShardStateTest, OptimizerHoldsFromTheNextRoundAndForLaterPartitions) {
  Init("a", {1});
  ASSERT_TRUE(state_.SetOptimizer(MakeOptimizer(SgdSpec(1))).ok());
  Init("b", {1});
  for (const char* name : {"a", "b"}) {
    for (uint32_t worker : {0u, 1u}) Push(worker, name, 1, {1});
  }
  // Complete, not applied: that round still steps with the optimizer that it was pushed under.
  ASSERT_TRUE(state_.SetOptimizer(MakeOptimizer(SgdSpec(100))).ok());
  EXPECT_EQ(state_.Find({.key = Key("a").id()})->weights()[0], -1);
  EXPECT_EQ(state_.Find({.key = Key("b").id()})->weights()[0], -1);
  EXPECT_EQ(state_.SetOptimizer(MakeOptimizer({})).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ShardStateTest, WhoHoldsTheVersionBeforeIsSentTheChange) {
  Init("w", {1, 2, 3, 4});
  for (uint32_t worker : {0, 1}) {
    ShardItems items{.origin = From(worker)};
    items.pushes.push_back(MakePush("w", 1, {1, -1, 1, -1}));
    items.pushes[0].item.set_change_codec("1bit");
    state_.HandleItems(std::move(items));
  }
  ApplyAll();
  state_.TakeReplies();
  const auto pull = [&](std::optional<uint64_t> held) {
    ShardItems items{.origin = From(0)};
    PullWork work;
    FillPull(&work.item, "w", 0, 1, 4, 0, 9);
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

TEST_F(ShardStateTest, AsyncPullSeesThePushBeforeIt) {
  ASSERT_TRUE(state_.SetOptimizer(MakeOptimizer(SgdSpec(1))).ok());
  Init("w", {0}, wire::DIST_ASYNC);
  Push(0, "w", 1, {5});
  Pull(0, "w", 0, 1);
  EXPECT_THAT(Pulls().at(0).values, ElementsAre(-5));
  Pull(1, "w", 2, 1);
  Push(0, "w", 2, {5});
  EXPECT_THAT(Pulls().at(0).values, ElementsAre(-10));
}

}  // namespace
}  // namespace slimps
