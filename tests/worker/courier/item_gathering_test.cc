// SPDX-License-Identifier: Apache-2.0
#include "worker/courier/item_gathering.h"

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status_proto.h"
#include "tests/worker/courier/fake_transport.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr absl::Duration kLong = absl::Seconds(30);  // only a failing test waits this long

// A worker of two servers. The test plays the servers.
class ItemGatheringTest : public ::testing::Test {
 protected:
  static OutgoingItem Pull(uint64_t version, size_t row_bytes = 0) {
    wire::PullItem pull;
    pull.set_min_version(version);
    pull.set_rows(std::string(row_bytes, 'r'));
    return {.item = std::move(pull), .payload = {}, .key_name = "s:w", .done = {}};
  }
  static OutgoingItem Init(size_t bytes) {
    wire::InitItem init;
    init.set_payload_bytes(bytes);
    AlignedBuffer buffer(bytes, BufferUse::kPayload);
    return {.item = std::move(init),
            .payload = Payload::Adopt(std::move(buffer), bytes),
            .key_name = "s:w",
            .done = {}};
  }

  // Answers each pull with the version that it names, and refuses the pull of version `bad`.
  void Answer(const FakeTransport::Sent& sent, uint64_t bad = ~uint64_t{0}) {
    Message reply;
    for (const wire::PullItem& pull : sent.message.header.pull().items()) {
      wire::PullReplyItem& item = *reply.header.mutable_pull_reply()->add_items();
      *item.mutable_id() = pull.id();
      item.set_version(pull.min_version());
      if (pull.min_version() != bad) continue;
      *item.mutable_status() = ToStatusProto(absl::NotFoundError(absl::StrCat("no version ", bad)));
    }
    for (const wire::InitItem& init : sent.message.header.init().items()) {
      *reply.header.mutable_init_reply()->add_items()->mutable_id() = init.id();
    }
    EXPECT_TRUE(courier_.HandleMessage(sent.to, reply));
  }
  void AnswerEverything(uint64_t bad = ~uint64_t{0}) {
    transport_.set_on_send([this, bad](PeerId to, const Message& message) {
      Answer({to, message}, bad);
      return absl::OkStatus();
    });
  }
  std::vector<int> ItemsOfMessages() {
    std::vector<int> items;
    for (const auto& sent : transport_.sent()) {
      items.push_back(sent.message.header.pull().items_size() +
                      sent.message.header.init().items_size());
    }
    return items;
  }

  FakeTransport transport_;
  Membership membership_{&transport_, {.role = wire::WORKER}};
  Courier courier_{&transport_,
                   &membership_,
                   {PeerId{10}, PeerId{11}},
                   {.timeout = kLong, .retry_interval = kLong}};
};

TEST_F(ItemGatheringTest, AnswersComeInTheOrderOfAddAndSmallItemsTravelTogether) {
  AnswerEverything();
  ItemGathering gathering(&courier_, {});
  for (uint32_t i = 0; i < 5; ++i) gathering.Add(i % 2, Pull(i));
  EXPECT_THAT(transport_.sent(), SizeIs(0)) << "a group waits for its message to be full";
  const auto answers = gathering.Await();
  ASSERT_TRUE(answers.ok()) << answers.status();
  ASSERT_THAT(*answers, SizeIs(5));
  for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ((*answers)[i].pull.version(), i);
  EXPECT_THAT(ItemsOfMessages(), ElementsAre(3, 2));
  EXPECT_EQ(transport_.sent()[1].to, PeerId{11});
}

TEST_F(ItemGatheringTest, NothingToWaitForIsNoAnswers) {
  EXPECT_THAT(*ItemGathering(&courier_, {}).Await(), SizeIs(0));
}

TEST_F(ItemGatheringTest, AMessageHasSoManyItemsAndNoMore) {
  AnswerEverything();
  ItemGathering gathering(&courier_, {});
  for (int i = 0; i < 600; ++i) gathering.Add(0, Pull(1));
  EXPECT_THAT(ItemsOfMessages(), ElementsAre(256, 256)) << "full ones wait for nobody";
  ASSERT_TRUE(gathering.Await().ok());
  EXPECT_THAT(ItemsOfMessages(), ElementsAre(256, 256, 88));
}

TEST_F(ItemGatheringTest, AMessageSaysSoMuchAndNoMore) {
  AnswerEverything();
  ItemGathering gathering(&courier_, {});
  for (int i = 0; i < 7; ++i) gathering.Add(0, Pull(1, 60 << 10));
  gathering.Add(0, Pull(1, 256 << 10));
  gathering.Add(0, Init(60 << 10));
  gathering.Add(0, Init(100 << 10));
  ASSERT_TRUE(gathering.Await().ok());
  EXPECT_THAT(ItemsOfMessages(), ElementsAre(5, 2, 1, 1, 1));
  for (const auto& sent : transport_.sent()) {
    EXPECT_LE(sent.message.header.ByteSizeLong(), size_t{320} << 10) << "far from its limit";
  }
}

TEST_F(ItemGatheringTest, NoMoreThanTheBoundIsUnderWayBothWaysTogether) {
  std::thread caller([&] {
    ItemGathering gathering(&courier_, {.max_bytes = 100});
    for (uint64_t i = 0; i < 9; ++i) gathering.Add(i % 2, Pull(i), /*answer_bytes=*/40);
    gathering.Add(0, Init(60), /*answer_bytes=*/40);  // the most that may be under way
    EXPECT_TRUE(gathering.Await().ok());
  });
  size_t items = 0;
  for (size_t answered = 0; items < 10; ++answered) {
    EXPECT_TRUE(transport_.AwaitSent(answered + 1));
    EXPECT_LE(courier_.outstanding(), 2u);
    const auto sent = transport_.sent()[answered];
    items += static_cast<size_t>(sent.message.header.pull().items_size() +
                                 sent.message.header.init().items_size());
    EXPECT_TRUE(!sent.message.header.has_init() || courier_.outstanding() == 1u);
    Answer(sent);
  }
  caller.join();
  EXPECT_EQ(courier_.outstanding(), 0u);
}

TEST_F(ItemGatheringTest, AnItemOverTheBoundTravelsAlone) {
  std::thread caller([&] {
    ItemGathering gathering(&courier_, {.max_bytes = 100});
    gathering.Add(0, Pull(1), 10);
    gathering.Add(1, Pull(2), 1000);
    gathering.Add(0, Pull(3), 10);
    EXPECT_TRUE(gathering.Await().ok());
  });
  for (uint64_t i = 1; i <= 3; ++i) {
    EXPECT_TRUE(transport_.AwaitSent(i));
    EXPECT_EQ(courier_.outstanding(), 1u);
    EXPECT_EQ(transport_.sent().back().message.header.pull().items(0).min_version(), i);
    Answer(transport_.sent().back());
  }
  caller.join();
}

TEST_F(ItemGatheringTest, TheFirstErrorInTheOrderOfAddIsTold) {
  transport_.set_on_send([this](PeerId to, const Message& message) {
    if (to == PeerId{11}) {
      Answer({to, message}, /*bad=*/3);
      return absl::OkStatus();
    }
    return absl::UnavailableError("gone");
  });
  ItemGathering gathering(&courier_, {});
  gathering.Add(1, Pull(1));
  gathering.Add(0, Pull(2));
  gathering.Add(1, Pull(3));
  EXPECT_EQ(gathering.Await().status(),
            absl::UnavailableError("pull of key s:w partition 0 to server 0: gone"));
}

TEST_F(ItemGatheringTest, AfterAnErrorNothingMoreIsSent) {
  AnswerEverything(/*bad=*/2);
  ItemGathering gathering(&courier_, {.max_bytes = 10});
  for (uint64_t i = 1; i < 100; ++i) gathering.Add(0, Pull(i), 10);
  const absl::Status status = gathering.Await().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_THAT(ItemsOfMessages(), ElementsAre(1, 1));
}

TEST_F(ItemGatheringTest, WhoWaitsForRoomIsFreedWhenAllFails) {
  std::thread caller([&] {
    ItemGathering gathering(&courier_, {.max_bytes = 10});
    for (uint64_t i = 0; i < 3; ++i) gathering.Add(0, Pull(i), 10);
    EXPECT_EQ(gathering.Await().status().code(), absl::StatusCode::kAborted);
  });
  EXPECT_TRUE(transport_.AwaitSent(1));
  courier_.FailAll(absl::AbortedError("the job is over"));
  caller.join();
  EXPECT_THAT(ItemsOfMessages(), ElementsAre(1));
}

TEST_F(ItemGatheringTest, ItMayBeDroppedBeforeItsAnswersCome) {
  {
    ItemGathering gathering(&courier_, {});
    for (int i = 0; i < 256; ++i) gathering.Add(0, Pull(1));
  }
  ASSERT_THAT(ItemsOfMessages(), ElementsAre(256));
  Answer(transport_.sent().at(0));
  EXPECT_EQ(courier_.outstanding(), 0u);
}

}  // namespace
}  // namespace slimps
