#include "server/shard_state.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status_proto.h"
#include "server/admission.h"
#include "server/directory.h"
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

// Moves on by a microsecond whenever it is read.
class TickingClock final : public Clock {
 public:
  absl::Time Now() const override { return now_ += absl::Microseconds(1); }

 private:
  mutable absl::Time now_ = absl::UnixEpoch();
};

TEST(ShardState, ProfiledCompressedPushCarriesItsDecodeTime) {
  TickingClock clock;
  ShardState state(MakeOptimizer({}), &clock);
  ShardItems items{.origin = {.worker = 0}};
  InitWork init;
  init.id = MakeId("w", 0, 1);
  init.spec.key = Key("w").id();
  init.spec.name = "s:w";
  init.spec.elements = 10;
  items.inits.push_back(std::move(init));
  for (const bool profile : {false, true, true}) {  // the last is a repeat
    PushWork push;
    *push.item.mutable_id() = MakeId("w", 0, 1);
    push.item.set_round(1);
    push.item.set_elements(10);
    push.item.set_format(wire::LEVELS);
    push.item.set_profile(profile);
    push.payload = SignPayload(RandomValues(10, 1), 1);
    items.pushes.push_back(std::move(push));
  }
  state.HandleItems(std::move(items));
  const std::vector<Reply> replies = state.TakeReplies();
  ASSERT_EQ(replies.back().message.header.push_reply().items_size(), 3);
  EXPECT_EQ(replies.back().message.header.push_reply().items(0).decode_ns(), 0);
  EXPECT_EQ(replies.back().message.header.push_reply().items(1).decode_ns(), 1000);
  EXPECT_EQ(replies.back().message.header.push_reply().items(2).decode_ns(), 1000);
}

wire::InitItem MakeInitItem(const std::string& name, uint64_t elements) {
  Message message;
  AddInit(&message, name, 0, 1, 0, std::vector<float>(elements), static_cast<int64_t>(elements), 1);
  return message.header.init().items(0);
}

TEST(Directory, PartitionsGoToTheShardWithLeastBytes) {
  Directory directory(2, {});
  PartitionSpec spec;
  EXPECT_EQ(directory.Declare(MakeInitItem("a", 100), &spec).value(), 0);
  EXPECT_EQ(directory.Declare(MakeInitItem("b", 10), &spec).value(), 1);
  EXPECT_EQ(directory.Declare(MakeInitItem("c", 80), &spec).value(), 1);
  EXPECT_EQ(directory.Declare(MakeInitItem("d", 5), &spec).value(), 1);
  EXPECT_EQ(directory.Declare(MakeInitItem("e", 50), &spec).value(), 1);
  EXPECT_EQ(directory.Declare(MakeInitItem("f", 1), &spec).value(), 0);
  EXPECT_EQ(directory.Declare(MakeInitItem("a", 100), &spec).value(), 0);  // where it was
  EXPECT_EQ(spec.name, "s:a");
}

TEST(Directory, InitGoesWhereAPullHasReservedItsPlace) {
  Directory directory(2, {});
  PartitionSpec spec;
  const PartitionId id{.key = Key("a").id()};
  EXPECT_EQ(directory.FindShard(id), std::nullopt);
  const size_t shard = directory.Reserve(id, 10).value();
  EXPECT_EQ(directory.Reserve({.key = 1}, 5).value(), 1 - shard);
  EXPECT_EQ(directory.Declare(MakeInitItem("a", 10), &spec).value(), shard);
}

TEST(Directory, LimitsAreKept) {
  Directory directory(1, {.max_partition_elements = 10,
                          .max_partitions = 3,
                          .max_weight_bytes = 60,
                          .max_reserved = 2});
  PartitionSpec spec;
  EXPECT_EQ(directory.Declare(MakeInitItem("a", 11), &spec).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(directory.Declare(MakeInitItem("a", 10), &spec).ok());
  EXPECT_EQ(directory.Declare(MakeInitItem("b", 10), &spec).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(directory.Declare(MakeInitItem("b", 1), &spec).ok());
  EXPECT_TRUE(directory.Declare(MakeInitItem("c", 1), &spec).ok());
  EXPECT_EQ(directory.Declare(MakeInitItem("d", 1), &spec).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(directory.Reserve({.key = 1}, 11).ok());
  EXPECT_TRUE(directory.Reserve({.key = 1}, 1).ok());
  EXPECT_TRUE(directory.Reserve({.key = 2}, 1).ok());
  EXPECT_EQ(directory.Reserve({.key = 3}, 1).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Directory, ItemsThatMakeNoSenseAreRefused) {
  const auto refused = [](const wire::InitItem& item) {
    Directory directory(1, {});
    PartitionSpec spec;
    return directory.Declare(item, &spec).status().code() == absl::StatusCode::kInvalidArgument;
  };
  wire::InitItem item = MakeInitItem("a", 4);
  item.mutable_info()->set_name("s:b");
  EXPECT_TRUE(refused(item));
  item = MakeInitItem("a", 4);
  item.set_offset(1);
  EXPECT_TRUE(refused(item));
  item.set_offset(~uint64_t{0});
  EXPECT_TRUE(refused(item));
  item = MakeInitItem("a", 4);
  item.mutable_info()->add_shape(-1);
  EXPECT_TRUE(refused(item));
  item = MakeInitItem("a", 4);
  for (int i = 0; i < 4; ++i) item.mutable_info()->add_shape(int64_t{1} << 40);
  EXPECT_TRUE(refused(item));
  item = MakeInitItem("a", 4);
  item.mutable_id()->set_partition(1);
  EXPECT_TRUE(refused(item));
  item = MakeInitItem("a", 4);
  item.mutable_info()->set_dtype(static_cast<wire::DType>(9));
  EXPECT_TRUE(refused(item));
  EXPECT_FALSE(refused(MakeInitItem("a", 4)));
}

TEST(Directory, AKeyDeclaredOtherwiseIsRefused) {
  Directory directory(1, {});
  PartitionSpec spec;
  ASSERT_TRUE(directory.Declare(MakeInitItem("a", 4), &spec).ok());
  EXPECT_EQ(directory.Declare(MakeInitItem("a", 5), &spec).status().code(),
            absl::StatusCode::kAlreadyExists);
  wire::InitItem half = MakeInitItem("a", 4);
  half.mutable_info()->set_dtype(wire::FLOAT16);
  EXPECT_EQ(directory.Declare(half, &spec).status().code(), absl::StatusCode::kAlreadyExists);
}

class AdmissionTest : public ::testing::Test {
 protected:
  AdmissionTest() {
    wire::Roster roster;
    roster.set_epoch(3);
    wire::RosterEntry* entry = roster.add_nodes();
    entry->mutable_node()->set_role(wire::WORKER);
    entry->mutable_node()->set_rank(1);
    entry->set_incarnation(77);
    admission_.SetRoster(roster);
    header_.set_job_id("job");
    header_.mutable_sender()->set_role(wire::WORKER);
    header_.mutable_sender()->set_rank(1);
    header_.set_incarnation(77);
    header_.set_membership_epoch(3);
  }
  absl::StatusCode Check() { return admission_.Check(header_).code(); }

  Admission admission_{"job", 2};
  wire::Header header_;
};

TEST_F(AdmissionTest, WorkersOfTheRosterAreLetIn) { EXPECT_EQ(Check(), absl::StatusCode::kOk); }

TEST_F(AdmissionTest, AnotherJobIsNot) {
  header_.set_job_id("other");
  EXPECT_EQ(Check(), absl::StatusCode::kPermissionDenied);
}

TEST_F(AdmissionTest, OtherRolesAndRanksAreNot) {
  header_.mutable_sender()->set_rank(2);
  EXPECT_EQ(Check(), absl::StatusCode::kPermissionDenied);
  header_.mutable_sender()->set_rank(0);
  EXPECT_EQ(Check(), absl::StatusCode::kPermissionDenied);
  header_.mutable_sender()->set_rank(1);
  header_.mutable_sender()->set_role(wire::SERVER);
  EXPECT_EQ(Check(), absl::StatusCode::kPermissionDenied);
}

TEST_F(AdmissionTest, AReplacedProcessIsRefusedAndANewerRosterAwaited) {
  header_.set_incarnation(78);
  EXPECT_EQ(Check(), absl::StatusCode::kFailedPrecondition);
  header_.set_membership_epoch(4);
  EXPECT_EQ(Check(), absl::StatusCode::kUnavailable);
}

TEST_F(AdmissionTest, AnOlderRosterIsIgnored) {
  wire::Roster old;
  old.set_epoch(2);
  admission_.SetRoster(old);
  EXPECT_EQ(Check(), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace slimps
