// SPDX-License-Identifier: Apache-2.0
// A node's barriers: repeated questions, releases, and barriers that are given up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/status_proto.h"
#include "tests/proto/net/membership/membership_state_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;

wire::Header Release(uint64_t ticket, uint64_t newest, const absl::Status& status) {
  wire::Header header;
  header.mutable_barrier_release()->set_name("b");
  header.mutable_barrier_release()->set_ticket(ticket);
  header.mutable_barrier_release()->set_newest(newest);
  *header.mutable_barrier_release()->mutable_status() = ToStatusProto(status);
  return header;
}

TEST_F(MembershipStateTest, ABarrierIsRepeatedUntilItsReleaseAndThenHasItsSums) {
  Join();
  const auto id = StartBarrier({1.5});
  EXPECT_EQ(last_.send.at(0).barrier().ticket(), 1u);
  const uint64_t request = last_.send.at(0).request_id();
  Welcome(1);
  clock_.Advance(absl::Seconds(1));
  bool repeated = false;
  for (const wire::Header& header : state_.Tick(clock_.Now()).send) {
    repeated |= header.has_barrier() && header.request_id() == request;
  }
  EXPECT_TRUE(repeated);
  EXPECT_FALSE(state_.BarrierResult(id).has_value());
  wire::Header release;
  release.mutable_barrier_release()->set_name("b");
  release.mutable_barrier_release()->set_ticket(2);
  From(release);
  EXPECT_FALSE(state_.BarrierResult(id).has_value());  // the result of another barrier
  release.mutable_barrier_release()->set_ticket(1);
  release.mutable_barrier_release()->add_sums(4.5);
  From(release);
  ASSERT_TRUE(state_.BarrierResult(id).has_value());
  EXPECT_THAT(state_.BarrierResult(id)->value(), ElementsAre(4.5));
  state_.ForgetBarrier(id);
  EXPECT_EQ(StartBarrier().ticket, 2u);
}

TEST_F(MembershipStateTest, ABarrierThatIsGivenUpIsRepeatedUntilTheSchedulerKnows) {
  Join();
  const auto id = StartBarrier();
  EXPECT_EQ(last_.send.at(0).barrier().purpose(), "tea");
  EXPECT_EQ(last_.send.at(0).barrier().gave_up_after_ms(), 0u);
  const auto told = state_.GiveUpBarrier(id, absl::Seconds(3), clock_.Now()).send;
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].barrier().ticket(), 1u);
  EXPECT_EQ(told[0].barrier().gave_up_after_ms(), 3000u);
  state_.ForgetBarrier(id);
  EXPECT_FALSE(state_.BarrierResult(id).has_value());
  clock_.Advance(absl::Seconds(1));
  bool repeated = false;
  for (const wire::Header& header : state_.Tick(clock_.Now()).send) {
    repeated |= header.barrier().gave_up_after_ms() == 3000u;
  }
  EXPECT_TRUE(repeated);
  From(Release(1, 1, absl::DeadlineExceededError("worker 1 waited")));
  clock_.Advance(absl::Seconds(1));
  for (const wire::Header& header : state_.Tick(clock_.Now()).send) {
    EXPECT_FALSE(header.has_barrier());
  }
}

TEST_F(MembershipStateTest, ABarrierThatOpenedWhileItWasGivenUpIsOpen) {
  Join();
  const auto id = StartBarrier();
  (void)state_.GiveUpBarrier(id, absl::Seconds(3), clock_.Now());
  From(Release(1, 1, absl::OkStatus()));
  ASSERT_TRUE(state_.BarrierResult(id).has_value());
  EXPECT_TRUE(state_.BarrierResult(id)->ok());
}

TEST_F(MembershipStateTest, AfterALateVisitTheNextIsTheSchedulersNext) {
  Join();
  const auto id = StartBarrier();
  From(Release(1, 4, absl::FailedPreconditionError("too late")));
  EXPECT_EQ(state_.BarrierResult(id)->status(), absl::FailedPreconditionError("too late"));
  EXPECT_EQ(StartBarrier().ticket, 5u);
}

TEST_F(MembershipStateTest, WelcomeSaysWhereTheBarriersAre) {
  state_.StartJoin(clock_.Now(), clock_.Now() + absl::Seconds(60));
  wire::Header header;
  header.mutable_welcome()->set_rank(1);
  header.mutable_welcome()->set_heartbeat_interval_ms(1000);
  wire::BarrierTicket* ticket = header.mutable_welcome()->add_tickets();
  ticket->set_name("b");
  ticket->set_ticket(7);
  From(header);
  From(Roster(2, 2));
  EXPECT_EQ(StartBarrier().ticket, 8u);
}

TEST_F(MembershipStateTest, BarriersEndWithTheReasonWhenTheJobGoesDown) {
  Join();
  const auto id = StartBarrier();
  wire::Header node_down;
  node_down.mutable_node_down()->set_reason("worker 0 is gone");
  From(node_down);
  EXPECT_EQ(state_.BarrierResult(id)->status(), absl::UnavailableError("worker 0 is gone"));
}

}  // namespace
}  // namespace slimps
