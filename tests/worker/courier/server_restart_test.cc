// SPDX-License-Identifier: Apache-2.0
// What a courier sends to a server that was started again.
#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/courier/courier_fixture.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr PeerId kNewServer{8};

class CourierRestartTest : public CourierTest {
 protected:
  void SetUp() override {
    courier_ = std::make_unique<Courier>(
        &transport_, &membership_, std::vector<PeerId>{kServer},
        CourierOptions{.timeout = kForever,
                       .retry_interval = kForever,
                       .max_kept_bytes = 100,
                       .on_snapshot_wanted = [this](uint32_t server) { wanted_.push_back(server); },
                       .on_not_replayed = [this](const absl::Status& why) { failed_ = why; },
                       .on_replayed = [this](uint64_t epoch) { replayed_.push_back(epoch); },
                       .clock = &clock_});
  }

  void PushRound(uint64_t round, size_t bytes = 0) {
    wire::PushItem push;
    push.mutable_id()->set_key(1);
    push.set_round(round);
    push.set_payload_bytes(bytes);
    std::vector<OutgoingItem> items;
    items.push_back({.item = std::move(push),
                     .payload = Payload::Copy(std::vector<std::byte>(bytes)),
                     .key_name = "s:w",
                     .done = [this](const Answer& answer) { statuses_.push_back(answer.status); }});
    courier_->Dispatch(0, std::move(items), 0);
  }

  // Acknowledges message `index`, whose push is the only one.
  void Acknowledge(size_t index, PeerId from = kServer,
                   std::optional<uint64_t> durable = std::nullopt,
                   const absl::Status& status = absl::OkStatus()) {
    Message reply;
    wire::ItemStatus* item = reply.header.mutable_push_reply()->add_items();
    *item->mutable_id() = transport_.header(index).push().items(0).id();
    *item->mutable_status() = ToStatusProto(status);
    if (durable.has_value()) item->set_durable(*durable);
    EXPECT_TRUE(courier_->HandleMessage(from, reply));
  }

  uint64_t Round(size_t index) { return transport_.header(index).push().items(0).round(); }

  std::vector<uint32_t> wanted_;
  std::vector<absl::Status> statuses_;
  absl::Status failed_;
  std::vector<uint64_t> replayed_;    // epochs
  std::unique_ptr<Courier> courier_;  // goes first: it answers what is outstanding
};

TEST_F(CourierRestartTest, ItIsSentWhatItAcknowledgedAFewRoundsAtATime) {
  const uint64_t rounds = Courier::kReplaysAtOnce + 3;
  for (uint64_t round = 1; round <= rounds; ++round) {
    PushRound(round);
    Acknowledge(round - 1, kServer, 2);  // a snapshot has round 1
  }
  courier_->OnServerRestarted(0, kNewServer);
  ASSERT_EQ(transport_.sent(), rounds + Courier::kReplaysAtOnce);
  for (uint64_t i = 0; i < Courier::kReplaysAtOnce; ++i) {
    EXPECT_EQ(transport_.to(rounds + i), kNewServer);
    EXPECT_EQ(Round(rounds + i), i + 2);
  }
  for (uint64_t i = 0; i < Courier::kReplaysAtOnce; ++i) Acknowledge(rounds + i, kNewServer);
  EXPECT_EQ(transport_.sent(), 2 * rounds - 1);
  EXPECT_EQ(Round(2 * rounds - 2), rounds);
  EXPECT_EQ(statuses_.size(), rounds) << "each push is answered once";
  EXPECT_TRUE(failed_.ok());
}

TEST_F(CourierRestartTest, WhoeverDependsOnTheReplayWaitsForItsLastAnswer) {
  PushRound(1);
  Acknowledge(0);
  PushRound(2);
  Acknowledge(1);
  courier_->AwaitReplays(absl::ZeroDuration());  // there is none
  courier_->OnServerRestarted(0, kNewServer);
  std::atomic<bool> waited{false};
  std::thread waiter([&] {
    courier_->AwaitReplays(kLong);
    waited = true;
  });
  Acknowledge(2, kNewServer);
  EXPECT_FALSE(waited);
  Acknowledge(3, kNewServer);
  waiter.join();
  EXPECT_TRUE(waited);
}

TEST_F(CourierRestartTest, AReplayIsOverOnceWhatWasOutstandingIsAcknowledgedToo) {
  PushRound(1);
  Acknowledge(0);
  PushRound(2);
  courier_->HoldReplays(7);
  courier_->OnServerRestarted(0, kNewServer);
  courier_->ReleaseReplays();
  ASSERT_TRUE(transport_.AwaitSent(4));
  const size_t kept = Round(2) == 1 ? 2 : 3;  // the timer sends the other
  Acknowledge(kept, kNewServer);
  EXPECT_TRUE(replayed_.empty());
  Acknowledge(5 - kept, kNewServer);
  EXPECT_EQ(replayed_, std::vector<uint64_t>{7});
}

TEST_F(CourierRestartTest, WhatIsOutstandingGoesToTheNewProcessAtOnce) {
  PushRound(1);
  courier_->OnServerRestarted(0, kNewServer);
  ASSERT_TRUE(transport_.AwaitSent(2));
  EXPECT_EQ(transport_.to(1), kNewServer);
  Acknowledge(0, kServer);  // the former process speaks no more
  EXPECT_TRUE(statuses_.empty());
  Acknowledge(1, kNewServer);
  EXPECT_EQ(statuses_.size(), 1u);
}

TEST_F(CourierRestartTest, WhatAServerThatStopsRefusesStaysOutstanding) {
  PushRound(1);
  Acknowledge(0, kServer, std::nullopt, absl::UnavailableError("the server is stopping"));
  EXPECT_TRUE(statuses_.empty());
  EXPECT_EQ(courier_->outstanding(), 1u);
}

TEST_F(CourierRestartTest, ANewProcessWithoutTheFirstValueIsTriedAgain) {
  PushRound(1);
  courier_->OnServerRestarted(0, kNewServer);
  ASSERT_TRUE(transport_.AwaitSent(2));
  const absl::Status unknown = absl::NotFoundError("never initialised");
  Acknowledge(1, kNewServer, std::nullopt, unknown);
  EXPECT_TRUE(statuses_.empty());
}

TEST_F(CourierRestartTest, ANewProcessAtTheFormersAddressIsTriedAgainToo) {
  PushRound(1);
  Acknowledge(0, kServer, std::nullopt, absl::NotFoundError("never initialised"));
  EXPECT_TRUE(statuses_.empty());
}

TEST_F(CourierRestartTest, AQuestionForAKeyThatNobodyInitialisedIsAnswered) {
  wire::InitItem question;
  question.mutable_id()->set_key(1);
  question.set_format(wire::ABSENT);
  std::vector<OutgoingItem> items;
  items.push_back(
      {.item = question, .payload = {}, .key_name = "s:w", .done = [this](const Answer& answer) {
         statuses_.push_back(answer.status);
       }});
  courier_->Dispatch(0, std::move(items), 0);
  Message reply;
  wire::ItemStatus* item = reply.header.mutable_init_reply()->add_items();
  *item->mutable_id() = transport_.header(0).init().items(0).id();
  *item->mutable_status() = ToStatusProto(absl::NotFoundError("never initialised"));
  EXPECT_TRUE(courier_->HandleMessage(kServer, reply));
  ASSERT_EQ(statuses_.size(), 1u);
  EXPECT_TRUE(absl::IsNotFound(statuses_[0]));
}

TEST_F(CourierRestartTest, ASnapshotIsAskedForBeforeTheRoomIsFull) {
  PushRound(1, 40);
  Acknowledge(0);
  EXPECT_TRUE(wanted_.empty());
  PushRound(2, 40);
  Acknowledge(1);
  EXPECT_EQ(wanted_, std::vector<uint32_t>{0});
}

TEST_F(CourierRestartTest, WhatIsKeptNoMoreFailsTheWorkerAndSaysWhy) {
  for (uint64_t round = 1; round <= 3; ++round) {
    PushRound(round, 40);
    Acknowledge(round - 1);
  }
  courier_->OnServerRestarted(0, kNewServer);
  EXPECT_THAT(std::string(failed_.message()), HasSubstr("keeps no more"));
}

TEST_F(CourierRestartTest, APushThatTheNewProcessRefusesFailsTheWorker) {
  PushRound(1);
  Acknowledge(0);
  courier_->OnServerRestarted(0, kNewServer);
  ASSERT_EQ(transport_.sent(), 2u);
  Acknowledge(1, kNewServer, std::nullopt, absl::AlreadyExistsError("another checksum"));
  EXPECT_THAT(std::string(failed_.message()), HasSubstr("another checksum"));
}

}  // namespace
}  // namespace slimps
