// SPDX-License-Identifier: Apache-2.0
// When a courier sends an item again.
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/courier/courier_fixture.h"

namespace slimps {
namespace {

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

}  // namespace
}  // namespace slimps
