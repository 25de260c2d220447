// SPDX-License-Identifier: Apache-2.0
#include "worker/courier/courier.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/status_proto.h"
#include "tests/proto/base/moved_clock.h"
#include "tests/worker/courier/holding_transport.h"

namespace slimps {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);  // only a failing test waits this long
constexpr absl::Duration kForever = absl::Hours(1);  // no test moves the clock that far
constexpr absl::Duration kRetry = absl::Milliseconds(10);
constexpr PeerId kServer{7};

class CourierTest : public ::testing::Test {
 protected:
  std::unique_ptr<Courier> MakeCourier(absl::Duration timeout,
                                       absl::Duration retry_interval = kRetry) {
    return std::make_unique<Courier>(
        &transport_, &membership_, std::vector<PeerId>{kServer},
        CourierOptions{.timeout = timeout, .retry_interval = retry_interval, .clock = &clock_});
  }

  // Waits until the timer of the only courier has looked at all items at the present time.
  void AwaitTimer() { ASSERT_TRUE(clock_.AwaitReadings(2)); }

  // Lets `time` pass, and the timer act on it.
  void Pass(absl::Duration time) {
    clock_.Advance(time);
    AwaitTimer();
  }

  // Lets `server` answer an item that this courier never sent.
  static void Talk(Courier* courier, PeerId server) {
    Message reply;
    reply.header.mutable_push_reply()->add_items()->mutable_id()->set_ticket(999);
    EXPECT_TRUE(courier->HandleMessage(server, reply));
  }

  // Lets `time` pass, in which `server` talks every `interval`.
  void Chatter(Courier* courier, PeerId server, absl::Duration time, absl::Duration interval) {
    for (absl::Duration passed; passed < time; passed += interval) {
      Talk(courier, server);
      Pass(interval);
    }
  }
  void Push(Courier* courier) { Dispatch(courier, wire::PushItem()); }
  void Pull(Courier* courier) { Dispatch(courier, wire::PullItem()); }
  template <typename Item>
  void Dispatch(Courier* courier, Item item) {
    std::vector<OutgoingItem> items;
    items.push_back({.item = std::move(item),
                     .payload = {},
                     .key_name = "s:w",
                     .done = [this](const Answer& answer) {
                       MutexLock lock(&mutex_);
                       answers_.push_back(answer.status);
                       round_trips_.push_back(answer.round_trip);
                       changed_.NotifyAll();
                     }});
    courier->Dispatch(0, std::move(items), 0);
  }
  static void AnswerPush(Courier* courier, const absl::Status& status) {
    Message reply;
    wire::ItemStatus* item = reply.header.mutable_push_reply()->add_items();
    item->mutable_id()->set_ticket(1);
    *item->mutable_status() = ToStatusProto(status);
    EXPECT_TRUE(courier->HandleMessage(kServer, reply));
  }
  static void AnswerPull(Courier* courier, const absl::Status& status) {
    Message reply;
    wire::PullReplyItem* item = reply.header.mutable_pull_reply()->add_items();
    item->mutable_id()->set_ticket(1);
    *item->mutable_status() = ToStatusProto(status);
    EXPECT_TRUE(courier->HandleMessage(kServer, reply));
  }
  std::vector<absl::Status> AwaitAnswer() {
    MutexLock lock(&mutex_);
    changed_.Await(&mutex_, kLong, [this] { return !answers_.empty(); });
    return answers_;
  }
  bool answered() {
    MutexLock lock(&mutex_);
    return !answers_.empty();
  }

  MovedClock clock_;
  HoldingTransport transport_;
  Membership membership_{&transport_, {.role = wire::WORKER}};
  Mutex mutex_;
  CondVar changed_;
  std::vector<absl::Status> answers_;
  std::vector<absl::Duration> round_trips_;
};

TEST_F(CourierTest, WhatTheTransportStillHoldsIsNotQueuedAgain) {
  const auto courier = MakeCourier(kLong);
  Push(courier.get());
  for (int interval = 0; interval < 3; ++interval) Pass(kRetry);
  EXPECT_EQ(transport_.sent(), 1u);
  transport_.HandOver(0);
  clock_.Advance(kRetry);
  EXPECT_TRUE(transport_.AwaitSent(2));
  EXPECT_EQ(transport_.header(1).push().items(0).id().ticket(), 1u);
}

TEST_F(CourierTest, ItemsTravelTogetherUnlessTheyAreToTravelAlone) {
  for (const bool coalesce : {true, false}) {
    Courier courier(&transport_, &membership_, {kServer}, {.coalesce = coalesce});
    const size_t before = transport_.sent();
    std::vector<OutgoingItem> items(2);
    items[0] = {.item = wire::PushItem(), .payload = {}, .key_name = "s:a", .done = [](Answer) {}};
    items[1] = {.item = wire::PullItem(), .payload = {}, .key_name = "s:b", .done = [](Answer) {}};
    courier.Dispatch(0, std::move(items), 0);
    ASSERT_EQ(transport_.sent(), before + (coalesce ? 1 : 2));
    EXPECT_EQ(transport_.header(before).has_push_pull(), coalesce);
    if (coalesce) continue;
    // Servers join the answers to requests of one id, so the ids must differ.
    EXPECT_NE(transport_.header(before).request_id(), transport_.header(before + 1).request_id());
  }
}

TEST_F(CourierTest, WhatTheTransportGaveUpIsQueuedAgain) {
  const auto courier = MakeCourier(kLong);
  Push(courier.get());
  courier->OnUndeliverable(PeerId{8});  // another server's
  Pass(kRetry);
  EXPECT_EQ(transport_.sent(), 1u);
  courier->OnUndeliverable(kServer);
  clock_.Advance(kRetry);
  EXPECT_TRUE(transport_.AwaitSent(2));
}

// The item is repeated at once, not after half of the timeout, though the server was just heard.
TEST_F(CourierTest, WhatWasLostWithAConnectionIsAskedForAgainAtOnce) {
  const auto courier = MakeCourier(kForever, kForever);
  Push(courier.get());
  Pull(courier.get());
  Push(courier.get());
  transport_.HandOver(0);
  transport_.HandOver(1);  // the third is still queued for the next connection
  Talk(courier.get(), kServer);
  courier->OnConnectionLost(PeerId{8});  // another server's
  courier->OnConnectionLost(kServer);
  EXPECT_TRUE(transport_.AwaitSent(5));
  AwaitTimer();
  EXPECT_EQ(transport_.sent(), 5u);
  EXPECT_EQ(transport_.header(3).push().items(0).id().ticket(), 1u);
  EXPECT_EQ(transport_.header(4).pull().items(0).id().ticket(), 2u);
}

TEST_F(CourierTest, AFullQueueIsTriedAgain) {
  const auto courier = MakeCourier(kForever);
  transport_.set_full(true);
  Push(courier.get());
  for (size_t sent = 2; sent <= 14; ++sent) {
    Pass(kRetry);
    ASSERT_EQ(transport_.sent(), sent) << "no less often as time goes by";
  }
  transport_.set_full(false);
  clock_.Advance(kRetry);
  EXPECT_TRUE(transport_.AwaitSent(15));
  EXPECT_FALSE(answered());
}

// The server's answers to other items say nothing about an item that never left this worker.
TEST_F(CourierTest, AFullQueueIsTriedAgainThoughTheServerTalks) {
  const auto courier = MakeCourier(kForever);
  transport_.set_full(true);
  Push(courier.get());
  Chatter(courier.get(), kServer, kRetry, kRetry / 2);
  EXPECT_EQ(transport_.sent(), 2u);
  transport_.set_full(false);
  Chatter(courier.get(), kServer, kRetry, kRetry / 2);
  EXPECT_EQ(transport_.sent(), 3u);
  EXPECT_FALSE(answered());
}

TEST_F(CourierTest, WhatTheTransportGaveUpIsQueuedAgainThoughTheServerTalks) {
  const auto courier = MakeCourier(kForever);
  Push(courier.get());
  courier->OnUndeliverable(kServer);
  Chatter(courier.get(), kServer, kRetry, kRetry / 2);
  EXPECT_EQ(transport_.sent(), 2u);
}

TEST_F(CourierTest, PushesAndPullsThatAServerHasNoRoomForAreSentAgain) {
  for (const bool push : {true, false}) {
    const auto courier = MakeCourier(kLong);
    const size_t before = transport_.sent();
    push ? Push(courier.get()) : Pull(courier.get());
    transport_.HandOver(before);
    const absl::Status full = absl::ResourceExhaustedError("no room");
    push ? AnswerPush(courier.get(), full) : AnswerPull(courier.get(), full);
    clock_.Advance(absl::Milliseconds(100));
    EXPECT_TRUE(transport_.AwaitSent(before + 2));
    EXPECT_FALSE(answered());
    push ? AnswerPush(courier.get(), absl::OkStatus())
         : AnswerPull(courier.get(), absl::OkStatus());
    EXPECT_EQ(AwaitAnswer(), std::vector<absl::Status>{absl::OkStatus()});
    EXPECT_EQ(courier->outstanding(), 0u);
    MutexLock lock(&mutex_);
    answers_.clear();
  }
}

TEST_F(CourierTest, AnAcknowledgementMayComeWithAPull) {
  const auto courier = MakeCourier(kLong);
  Push(courier.get());  // ticket 1
  Pull(courier.get());  // ticket 2
  Message reply;
  wire::PullReply* pulls = reply.header.mutable_pull_reply();
  pulls->add_items()->mutable_id()->set_ticket(2);
  *pulls->mutable_items(0)->mutable_status() = ToStatusProto(absl::NotFoundError("no such key"));
  pulls->add_pushed()->mutable_id()->set_ticket(1);
  EXPECT_TRUE(courier->HandleMessage(kServer, reply));
  EXPECT_EQ(courier->outstanding(), 0u);
  MutexLock lock(&mutex_);
  ASSERT_EQ(answers_.size(), 2u);
  EXPECT_EQ(answers_[0], absl::OkStatus()) << "the push's, first";
  EXPECT_EQ(answers_[1].code(), absl::StatusCode::kNotFound);
}

TEST_F(CourierTest, AServerThatTalksIsNotAskedAgain) {
  const auto courier = MakeCourier(kLong, absl::Seconds(1));
  Pull(courier.get());
  transport_.HandOver(0);
  // The answer to the pull comes behind these.
  Chatter(courier.get(), kServer, absl::Milliseconds(2500), absl::Milliseconds(500));
  EXPECT_EQ(transport_.sent(), 1u);
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(transport_.AwaitSent(2)) << "a server that has fallen silent";
}

TEST_F(CourierTest, AServerThatTalksIsAskedAgainInTheEnd) {
  for (const PeerId talking : {kServer, PeerId{8}}) {
    // The server's own chatter delays the repeat to half of the timeout. Chatter of another server
    // does not.
    const bool half = talking == kServer;
    const auto courier = MakeCourier(half ? absl::Seconds(2) : kLong, absl::Milliseconds(300));
    const size_t before = transport_.sent();
    Pull(courier.get());
    transport_.HandOver(before);
    Chatter(courier.get(), talking, absl::Milliseconds(800), absl::Milliseconds(200));
    EXPECT_EQ(transport_.sent(), before + (half ? 1 : 2));
    Chatter(courier.get(), talking, absl::Milliseconds(800), absl::Milliseconds(200));
    EXPECT_EQ(transport_.sent(), before + 2);
    courier->FailAll(absl::CancelledError("enough"));
  }
}

TEST_F(CourierTest, AServerAnswersForItselfAlone) {
  constexpr PeerId kOther{8};
  Courier courier(&transport_, &membership_, {kServer, kOther}, {.timeout = kLong});
  for (const bool push : {true, false}) {
    push ? Push(&courier) : Pull(&courier);  // to server 0
    const uint64_t ticket = push ? 1 : 2;
    Message reply;
    if (push) {
      reply.header.mutable_push_reply()->add_items()->mutable_id()->set_ticket(ticket);
    } else {
      reply.header.mutable_pull_reply()->add_items()->mutable_id()->set_ticket(ticket);
    }
    EXPECT_TRUE(courier.HandleMessage(kOther, reply));
    EXPECT_EQ(courier.outstanding(), 1u);
    EXPECT_FALSE(answered());
    EXPECT_TRUE(courier.HandleMessage(kServer, reply));
    EXPECT_EQ(AwaitAnswer(), std::vector<absl::Status>{absl::OkStatus()});
    EXPECT_EQ(courier.outstanding(), 0u);
    MutexLock lock(&mutex_);
    answers_.clear();
  }
}

TEST_F(CourierTest, EachAnswerHasItsOwnPayloadWhateverIsPassedOverBeforeIt) {
  const auto courier = MakeCourier(kLong);
  float got = 0;
  for (int i = 0; i < 2; ++i) {
    std::vector<OutgoingItem> items;
    items.push_back({.item = wire::PullItem(),
                     .payload = {},
                     .key_name = "s:w",
                     .done = [&got](const Answer& answer) {
                       if (!answer.status.ok()) return;
                       ASSERT_EQ(answer.payload.size(), sizeof(got));
                       std::memcpy(&got, answer.payload.bytes().data(), sizeof(got));
                     }});
    courier->Dispatch(0, std::move(items), 0);
  }
  Message reply;
  // An answer to a ticket of long ago, a refusal for lack of room, and the right answer.
  for (const uint64_t ticket : {99, 1, 2}) {
    wire::PullReplyItem* item = reply.header.mutable_pull_reply()->add_items();
    item->mutable_id()->set_ticket(ticket);
    if (ticket == 1) *item->mutable_status() = ToStatusProto(absl::ResourceExhaustedError("x"));
    item->set_payload_bytes(sizeof(float));
    const float value = static_cast<float>(ticket);
    reply.payloads.push_back(Payload::Copy(std::as_bytes(std::span(&value, 1))));
  }
  EXPECT_TRUE(courier->HandleMessage(kServer, reply));
  EXPECT_EQ(got, 2.0f);
  EXPECT_EQ(courier->outstanding(), 1u);
}

TEST_F(CourierTest, TheDeadlineTellsWhyAServerRefused) {
  const auto courier = MakeCourier(absl::Milliseconds(200));
  Push(courier.get());
  transport_.HandOver(0);
  AnswerPush(courier.get(), absl::ResourceExhaustedError("no room for 5 more bytes"));
  clock_.Advance(absl::Milliseconds(200));
  const absl::Status status = AwaitAnswer().at(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  for (const char* part : {"push of key s:w", "refused 1 times", "no room for 5 more bytes"}) {
    EXPECT_NE(status.message().find(part), absl::string_view::npos) << status;
  }
}

TEST_F(CourierTest, WithoutAnyAnswerTheDeadlineSaysSo) {
  const auto courier = MakeCourier(absl::Milliseconds(100));
  Push(courier.get());
  clock_.Advance(absl::Milliseconds(100));
  const absl::Status status = AwaitAnswer().at(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("no answer within 100ms"), absl::string_view::npos) << status;
}

TEST_F(CourierTest, OfWhatWasSentTwiceNobodyKnowsTheRoundTrip) {
  for (const bool twice : {false, true}) {
    const auto courier = MakeCourier(kLong);
    const size_t before = transport_.sent();
    Push(courier.get());
    transport_.HandOver(before, clock_.Now());
    clock_.Advance(kRetry);
    ASSERT_TRUE(transport_.AwaitSent(before + 2));  // queued, and no byte of it is on its way
    if (twice) transport_.HandOver(before + 1, clock_.Now());
    AnswerPush(courier.get(), absl::OkStatus());
    MutexLock lock(&mutex_);
    EXPECT_EQ(round_trips_.back(), twice ? absl::ZeroDuration() : kRetry) << "from the first byte";
  }
}

TEST_F(CourierTest, StopWaitsForTheAnswerThatItsTimerIsGiving) {
  const auto courier = MakeCourier(absl::Milliseconds(20));
  std::promise<void> entered, go;
  std::atomic<bool> given{false};
  std::vector<OutgoingItem> items;
  items.push_back({.item = wire::PullItem(),
                   .payload = {},
                   .key_name = "s:w",
                   .done = [&](const Answer& answer) {
                     EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status));
                     entered.set_value();
                     go.get_future().wait();
                     given = true;
                   }});
  courier->Dispatch(0, std::move(items), 0);
  clock_.Advance(absl::Milliseconds(20));
  entered.get_future().wait();
  auto stopped = std::async(std::launch::async, [&] {
    courier->Stop();
    return given.load();
  });
  EXPECT_EQ(stopped.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  go.set_value();
  EXPECT_TRUE(stopped.get());
  courier->Stop();
  Push(courier.get());
  EXPECT_TRUE(absl::IsCancelled(AwaitAnswer().at(0)));
}

TEST_F(CourierTest, ManyGigabytesMayBeUnderWay) {
  const auto courier = MakeCourier(kLong);
  // The same memory many times. The counters see 6 GiB.
  const AlignedBuffer memory(size_t{64} << 20);
  const std::span<const std::byte> bytes = memory.bytes();
  const auto owner = std::make_shared<int>(0);
  for (int i = 0; i < 96; ++i) {
    std::vector<OutgoingItem> items;
    items.push_back({.item = wire::PushItem(),
                     .payload = Payload(owner, bytes),
                     .key_name = "s:w",
                     .done = [](const Answer&) {}});
    courier->Dispatch(0, std::move(items), 0);
  }
  EXPECT_EQ(courier->outstanding(), 96u);
}

TEST_F(CourierTest, AfterFailAllEverythingIsAnsweredWithWhy) {
  const auto courier = MakeCourier(kLong);
  Push(courier.get());
  courier->FailAll(absl::AbortedError("why"));
  EXPECT_EQ(AwaitAnswer().at(0).code(), absl::StatusCode::kAborted);
  Push(courier.get());
  MutexLock lock(&mutex_);
  ASSERT_EQ(answers_.size(), 2u);
  EXPECT_EQ(answers_[1], absl::AbortedError("why"));
}

}  // namespace
}  // namespace slimps
