// SPDX-License-Identifier: Apache-2.0
#include "worker/courier/outstanding_items.h"

#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace slimps {
namespace {

constexpr PeerId kServer{7};
constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr absl::Duration kRetry = absl::Seconds(5);
const SteadyTime kStart = SteadyTime();

class OutstandingItemsTest : public ::testing::Test {
 protected:
  uint64_t Add() {
    return items_.Add({.item = wire::PushItem(), .payload = {}, .key_name = "s:w", .done = {}},
                      /*server=*/0, /*priority=*/0, kStart);
  }
  // Returns what is sent again at `now`.
  std::set<uint64_t> ResendsAt(SteadyTime now) {
    return items_.TakeResends(items_.TakeDue(now).resend, now);
  }

  OutstandingItems items_{{kServer}, kTimeout, kRetry};
};

TEST_F(OutstandingItemsTest, AnItemIsTakenOnce) {
  const uint64_t ticket = Add();
  EXPECT_EQ(items_.Find(ticket)->out.id().ticket(), ticket);
  EXPECT_EQ(items_.First(), ticket);
  EXPECT_TRUE(items_.IsAsked(kServer, ticket));
  EXPECT_FALSE(items_.IsAsked(PeerId{8}, ticket));
  EXPECT_TRUE(items_.Take(ticket).has_value());
  EXPECT_FALSE(items_.Take(ticket).has_value());
  EXPECT_EQ(items_.size(), 0u);
  EXPECT_TRUE(ResendsAt(kStart + kRetry).empty());
}

TEST_F(OutstandingItemsTest, AnItemIsSentAgainUnlessItIsQueuedOrItsServerTalks) {
  const uint64_t ticket = Add();
  SteadyTime now = kStart + kRetry;
  items_.MarkQueued({ticket});
  EXPECT_TRUE(ResendsAt(now).empty());
  items_.MarkHandedOver({ticket}, now);
  items_.OnHeard(kServer, now + kRetry - absl::Seconds(1));
  now += kRetry;
  EXPECT_TRUE(ResendsAt(now).empty()) << "heard a second ago";
  now += kRetry - absl::Seconds(1);
  EXPECT_EQ(ResendsAt(now), std::set<uint64_t>{ticket});
}

TEST_F(OutstandingItemsTest, WithALostConnectionWhatWasHandedOverIsDueAtOnce) {
  const uint64_t handed_over = Add();
  const uint64_t queued = Add();
  items_.MarkHandedOver({handed_over}, kStart);
  items_.MarkQueued({queued});
  items_.OnHeard(kServer, kStart);
  items_.OnConnectionLost(kServer, kStart);
  EXPECT_EQ(ResendsAt(kStart), std::set<uint64_t>{handed_over});
}

TEST_F(OutstandingItemsTest, PushesAreOwedToANewProcessOnceAndPullsAreNot) {
  Add();
  items_.Add({.item = wire::PullItem(), .payload = {}, .key_name = "s:w", .done = {}},
             /*server=*/0, /*priority=*/0, kStart);
  EXPECT_EQ(items_.OnServerRestarted(0, PeerId{8}, kStart), 1u);
  EXPECT_EQ(items_.OnServerRestarted(0, PeerId{9}, kStart), 0u);
}

TEST_F(OutstandingItemsTest, ARefusedItemWaitsTwiceAsLongEachTime) {
  const uint64_t ticket = Add();
  SteadyTime now = kStart;
  for (const int wait_ms : {100, 200, 400, 800, 1600, 1600}) {
    ASSERT_TRUE(items_.Defer(ticket, absl::ResourceExhaustedError("no room"), now));
    EXPECT_TRUE(ResendsAt(now + absl::Milliseconds(wait_ms - 1)).empty()) << wait_ms;
    now += absl::Milliseconds(wait_ms);
    EXPECT_EQ(ResendsAt(now), std::set<uint64_t>{ticket}) << wait_ms;
  }
  EXPECT_EQ(items_.TakeDue(kStart + kTimeout).expired, std::vector<uint64_t>{ticket});
  EXPECT_EQ(items_.Expired(ticket).message(), "refused 6 times within 1m, last: no room");
}

}  // namespace
}  // namespace slimps
