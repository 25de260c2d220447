// SPDX-License-Identifier: Apache-2.0
#include "server/shard/reply_outbox.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/net/send_priority.h"
#include "proto/status_proto.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

Origin From(uint32_t worker, uint64_t request_id) {
  return {.peer = PeerId{worker + 1}, .worker = worker, .request_id = request_id};
}

wire::PullItem Pull(uint64_t ticket, int priority = 0) {
  wire::PullItem item;
  FillPull(&item, {.min_version = 1, .elements = 2, .ticket = ticket});
  item.set_priority(priority);
  return item;
}

WireValue Value(uint64_t version, size_t elements = 2) {
  return {.version = version,
          .payload = RawPayload(std::vector<float>(elements, static_cast<float>(version))),
          .hash = 42};
}

std::vector<Reply> FlushAndTake(ReplyOutbox& outbox) {
  outbox.Flush();
  return outbox.Take();
}

TEST(ReplyOutbox, GroupsByRequestAndVerb) {
  ReplyOutbox outbox;
  outbox.AddPull(From(0, 1), Pull(10), 2, Value(1));
  outbox.AddPush(From(0, 1), MakeId("w", 0, 11), absl::OkStatus(), 5);
  outbox.AddPull(From(0, 1), Pull(12), 2, Value(2));
  outbox.AddPull(From(0, 2), Pull(13), 2, Value(3));  // another request
  outbox.AddPull(From(1, 1), Pull(14), 2, Value(4));  // another peer
  outbox.AddInit(From(0, 1), MakeId("w", 0, 15), absl::OkStatus());
  EXPECT_THAT(outbox.Take(), IsEmpty()) << "before Flush";
  const std::vector<Reply> replies = FlushAndTake(outbox);
  ASSERT_THAT(replies, SizeIs(4));
  const wire::PullReply& pulls = replies[0].message.header.pull_reply();
  ASSERT_EQ(pulls.items_size(), 2);
  ASSERT_EQ(pulls.pushed_size(), 1);
  EXPECT_EQ(pulls.items(0).id().ticket(), 10);
  EXPECT_EQ(pulls.items(1).id().ticket(), 12);
  EXPECT_THAT(replies[0].message.payloads, SizeIs(2));
  EXPECT_EQ(replies[0].message.header.request_id(), 1);
  EXPECT_EQ(pulls.pushed(0).decode_ns(), 5);
  EXPECT_EQ(pulls.pushed(0).id().ticket(), 11);
  EXPECT_EQ(replies[1].message.header.request_id(), 2);
  EXPECT_EQ(replies[2].to, PeerId{2});
  EXPECT_TRUE(replies[3].message.header.has_init_reply());
  EXPECT_THAT(FlushAndTake(outbox), IsEmpty()) << "taken once";
}

TEST(ReplyOutbox, AcknowledgementsGoAheadOfLargeAnswersAndAloneWithoutAny) {
  ReplyOutbox outbox;
  outbox.AddPush(From(0, 1), MakeId("w", 0, 1), absl::OkStatus(), 0);
  outbox.AddPull(From(0, 1), Pull(2), 20000, Value(1, 20000));
  outbox.AddPush(From(0, 2), MakeId("w", 0, 3), absl::OkStatus(), 0);  // another request
  outbox.AddPull(From(1, 2), Pull(4), 2, Value(1));                    // another peer
  const std::vector<Reply> replies = FlushAndTake(outbox);
  ASSERT_THAT(replies, SizeIs(4));
  EXPECT_EQ(replies[0].message.header.push_reply().items(0).id().ticket(), 1);
  EXPECT_EQ(replies[1].message.header.pull_reply().pushed_size(), 0);
  EXPECT_EQ(replies[2].message.header.push_reply().items(0).id().ticket(), 3);
  EXPECT_EQ(replies[3].message.header.pull_reply().pushed_size(), 0);
}

TEST(ReplyOutbox, RefusalsTravelWithPullsToo) {
  ReplyOutbox outbox;
  outbox.AddPullError(From(0, 1), Pull(2), absl::NotFoundError("no such key"));
  outbox.AddPush(From(0, 1), MakeId("w", 0, 1), absl::NotFoundError("never initialised"), 0);
  const std::vector<Reply> replies = FlushAndTake(outbox);
  ASSERT_THAT(replies, SizeIs(1));
  const wire::PullReply& reply = replies[0].message.header.pull_reply();
  EXPECT_EQ(FromStatusProto(reply.items(0).status()), absl::NotFoundError("no such key"));
  EXPECT_EQ(FromStatusProto(reply.pushed(0).status()), absl::NotFoundError("never initialised"));
}

TEST(ReplyOutbox, AnswersSayWhatTheirPayloadIs) {
  ReplyOutbox outbox;
  outbox.AddPull(From(0, 1), Pull(1), 2, Value(4));
  WireValue change = Value(5);
  change.format = PayloadFormat::kLevels;
  change.base_version = 4;
  change.encode_ns = 77;
  outbox.AddPull(From(0, 1), Pull(2), 2, change);
  const std::vector<Reply> replies = FlushAndTake(outbox);
  const wire::PullReply& pulls = replies.at(0).message.header.pull_reply();
  EXPECT_FALSE(pulls.items(0).is_change());
  EXPECT_EQ(pulls.items(0).version(), 4);
  EXPECT_EQ(pulls.items(0).format(), wire::RAW_F32);
  EXPECT_EQ(pulls.items(0).payload_bytes(), 8);
  EXPECT_EQ(pulls.items(0).payload_hash(), 42);
  EXPECT_EQ(pulls.items(0).elements(), 2);
  EXPECT_EQ(pulls.items(0).encode_ns(), 0);
  EXPECT_TRUE(pulls.items(1).is_change());
  EXPECT_EQ(pulls.items(1).version(), 5);
  EXPECT_EQ(pulls.items(1).base_version(), 4);
  EXPECT_EQ(pulls.items(1).format(), wire::LEVELS);
  EXPECT_EQ(pulls.items(1).encode_ns(), 77);
}

TEST(ReplyOutbox, AGroupIsClosedAtItsSizeAndBeforeFlush) {
  ReplyOutbox outbox;
  const size_t large = ReplyOutbox::kGroupBytes / sizeof(float);
  outbox.AddPull(From(0, 1), Pull(1), 2, Value(1));
  outbox.AddPull(From(0, 1), Pull(2), large, Value(2, large));
  outbox.AddPull(From(0, 1), Pull(3), 2, Value(3));
  const std::vector<Reply> closed = outbox.Take();
  ASSERT_THAT(closed, SizeIs(1));
  EXPECT_EQ(closed[0].message.header.pull_reply().items_size(), 2);
  EXPECT_THAT(FlushAndTake(outbox), SizeIs(1));
  for (size_t i = 0; i < ReplyOutbox::kGroupItems + 1; ++i) {
    outbox.AddPush(From(0, 1), MakeId("w", 0, i), absl::OkStatus(), 0);
  }
  const std::vector<Reply> many = outbox.Take();
  ASSERT_THAT(many, SizeIs(1));
  EXPECT_EQ(many[0].message.header.push_reply().items_size(), ReplyOutbox::kGroupItems);
  EXPECT_THAT(FlushAndTake(outbox), SizeIs(1));
}

TEST(ReplyOutbox, AMessageHasThePriorityOfItsMostUrgentPull) {
  ReplyOutbox outbox;
  outbox.AddPull(From(0, 1), Pull(1, -5), 2, Value(1));
  outbox.AddPull(From(0, 1), Pull(2, -2), 2, Value(1));
  outbox.AddPull(From(0, 1), Pull(3, -9), 2, Value(1));
  EXPECT_EQ(FlushAndTake(outbox).at(0).priority, SendPriority(Value(1).version, -2));
}

TEST(ReplyOutbox, AnEarlierVersionOfTheLastLayerGoesBeforeALaterOneOfTheFirst) {
  const auto priority = [](uint64_t version, int32_t of_layer) {
    ReplyOutbox outbox;
    WireValue value = Value(1);
    value.version = version;
    outbox.AddPull(From(0, 1), Pull(1, of_layer), 2, std::move(value));
    return FlushAndTake(outbox).at(0).priority;
  };
  EXPECT_GT(priority(7, -1000), priority(8, 0));
  EXPECT_GT(priority(8, 0), priority(8, -1));
  EXPECT_LT(priority(1, 1 << 30), 0) << "an acknowledgement goes first";
}

TEST(ReplyOutbox, ErrorsCarryNoPayload) {
  ReplyOutbox outbox;
  outbox.AddPullError(From(0, 1), Pull(1), absl::NotFoundError("no such key"));
  const std::vector<Reply> replies = FlushAndTake(outbox);
  const wire::PullReplyItem& item = replies.at(0).message.header.pull_reply().items(0);
  EXPECT_EQ(FromStatusProto(item.status()), absl::NotFoundError("no such key"));
  EXPECT_EQ(item.payload_bytes(), 0);
  EXPECT_THAT(replies[0].message.payloads, IsEmpty());
}

}  // namespace
}  // namespace slimps
