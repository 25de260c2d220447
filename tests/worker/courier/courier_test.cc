// SPDX-License-Identifier: Apache-2.0
#include "worker/courier/courier.h"

#include <atomic>
#include <cstring>
#include <future>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/courier/courier_fixture.h"

namespace slimps {
namespace {

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
