// SPDX-License-Identifier: Apache-2.0
// How a node joins, and how it and its scheduler show each other that they live.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/status_proto.h"
#include "tests/proto/net/membership/membership_state_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(MembershipStateTest, RegisterIsRepeatedUntilTheRosterIsComplete) {
  EXPECT_TRUE(
      state_.StartJoin(clock_.Now(), clock_.Now() + absl::Seconds(60)).send.at(0).has_register_());
  EXPECT_TRUE(state_.Tick(clock_.Now()).send.empty());
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(state_.Tick(clock_.Now()).send.size(), 1u);
  Welcome(1);
  From(Roster(1, 1));
  clock_.Advance(absl::Seconds(1));
  const auto both = state_.Tick(clock_.Now()).send;  // Register and a heartbeat
  ASSERT_EQ(both.size(), 2u);
  EXPECT_TRUE(both[0].has_register_());
  From(Roster(2, 2));
  EXPECT_EQ(state_.JoinResult(clock_.Now()), absl::OkStatus());
  clock_.Advance(absl::Seconds(1));
  const auto one = state_.Tick(clock_.Now()).send;
  ASSERT_EQ(one.size(), 1u);
  EXPECT_TRUE(one[0].has_heartbeat());
}

TEST_F(MembershipStateTest, ASilentSchedulerIsNamedWhenTheDeadlineComes) {
  state_.StartJoin(clock_.Now(), clock_.Now() + absl::Seconds(60));
  EXPECT_FALSE(state_.JoinResult(clock_.Now()).has_value());
  clock_.Advance(absl::Seconds(60));
  const absl::Status status = *state_.JoinResult(clock_.Now());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(), "scheduler tcp://here:1 did not answer");
}

TEST_F(MembershipStateTest, AnIncompleteRosterSaysWhoIsMissing) {
  state_.StartJoin(clock_.Now(), clock_.Now() + absl::Seconds(60));
  Welcome(0);
  From(Roster(1, 1));
  clock_.Advance(absl::Seconds(60));
  EXPECT_EQ(state_.JoinResult(clock_.Now())->message(), "roster incomplete: waiting for 1 worker");
}

TEST_F(MembershipStateTest, AfterTenSecondsItSaysOnceWhomItWaitsForAndWhoWasRefused) {
  state_.StartJoin(clock_.Now(), clock_.Now() + absl::Seconds(60));
  Welcome(0);
  wire::Header roster = Roster(1, 1);
  roster.mutable_roster()->add_refusals("refused a worker (host b, pid 7): wrong counts");
  From(roster);
  std::vector<std::string> notices;
  for (int second = 0; second < 30; ++second) {
    const std::string notice = state_.Tick(clock_.Now()).notice;
    if (!notice.empty()) notices.push_back(absl::StrCat(second, ": ", notice));
    clock_.Advance(absl::Seconds(1));
  }
  EXPECT_THAT(notices, ElementsAre("10: roster incomplete: waiting for 1 worker; the scheduler "
                                   "refused a worker (host b, pid 7): wrong counts"));
}

TEST_F(MembershipStateTest, AfterTenSecondsItSaysThatTheSchedulerIsSilent) {
  state_.StartJoin(clock_.Now(), clock_.Now() + absl::Seconds(60));
  clock_.Advance(absl::Seconds(10));
  EXPECT_EQ(state_.Tick(clock_.Now()).notice, "scheduler tcp://here:1 did not answer");
}

TEST_F(MembershipStateTest, ARefusalEndsTheJoin) {
  const auto sent = state_.StartJoin(clock_.Now(), clock_.Now() + absl::Seconds(60)).send;
  wire::Header error;
  error.set_request_id(sent.at(0).request_id());
  *error.mutable_error()->mutable_status() = ToStatusProto(absl::AlreadyExistsError("rank 1"));
  error.set_job_id("another job's scheduler");
  state_.HandleFromScheduler(error, clock_.Now(), &consumed_);
  EXPECT_TRUE(consumed_);
  EXPECT_EQ(state_.JoinResult(clock_.Now()), absl::AlreadyExistsError("rank 1"));
}

TEST_F(MembershipStateTest, AnAnswerThatTheHeartbeatCameTooEarlyIsNoRefusal) {
  state_.StartJoin(clock_.Now(), clock_.Now() + absl::Seconds(60));
  Welcome(0);
  wire::Header error;
  error.set_request_id(MembershipState::kRequestBit | 2);
  *error.mutable_error()->mutable_status() = ToStatusProto(absl::NotFoundError("not registered"));
  From(error);
  EXPECT_FALSE(state_.JoinResult(clock_.Now()).has_value());
  Welcome(1);  // it gave up and registered again under another rank
  EXPECT_EQ(state_.rank(), 1u);
}

// A process that was stopped wakes, and another one has its place.
TEST_F(MembershipStateTest, AMemberThatTheSchedulerDoesNotKnowIsDown) {
  Join();
  clock_.Advance(absl::Seconds(2));
  const MembershipState::Actions heartbeat = state_.Tick(clock_.Now());
  ASSERT_EQ(heartbeat.send.size(), 1u);
  wire::Header error;
  *error.mutable_error()->mutable_status() = ToStatusProto(absl::NotFoundError("not registered"));
  error.set_request_id(MembershipState::kRequestBit | 1);  // the Register; this answer is late
  EXPECT_FALSE(From(error).down.has_value());
  error.set_request_id(heartbeat.send[0].request_id());
  const MembershipState::Actions actions =
      state_.HandleFromScheduler(error, clock_.Now(), &consumed_);
  ASSERT_TRUE(actions.down.has_value());
  EXPECT_TRUE(absl::IsFailedPrecondition(*actions.down)) << *actions.down;
  EXPECT_THAT(std::string(actions.down->message()), testing::HasSubstr("its place was taken"));
}

TEST_F(MembershipStateTest, AnOlderRosterDoesNotReplaceANewerOne) {
  Join();
  From(Roster(1, 1));
  EXPECT_EQ(state_.roster().epoch(), 2u);
}

TEST_F(MembershipStateTest, MessagesOfAnotherJobAreDropped) {
  Join();
  wire::Header shutdown;
  shutdown.mutable_shutdown();
  shutdown.set_job_id("other");
  EXPECT_FALSE(state_.HandleFromScheduler(shutdown, clock_.Now(), &consumed_).down.has_value());
  EXPECT_TRUE(consumed_);
}

TEST_F(MembershipStateTest, HeartbeatsComeAtTheIntervalThatTheSchedulerNamed) {
  state_.StartJoin(clock_.Now(), clock_.Now() + absl::Seconds(60));
  EXPECT_TRUE(Welcome(0).send.at(0).has_heartbeat());
  From(Roster(2, 2));
  EXPECT_EQ(state_.NextTick(), clock_.Now() + absl::Seconds(1));
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(state_.Tick(clock_.Now()).send.at(0).heartbeat().sequence(), 2u);
}

TEST_F(MembershipStateTest, HeartbeatsTellHowFarTheClockIsAheadOfTheSchedulers) {
  constexpr absl::Duration kAhead = absl::Minutes(5);
  clock_.Advance(absl::Hours(1));
  Join();  // sends heartbeat 1
  const auto echo = [this, kAhead](uint64_t sequence, absl::Duration there, absl::Duration back) {
    wire::Header header;
    header.mutable_heartbeat()->set_sequence(sequence);
    clock_.Advance(there);
    header.mutable_heartbeat()->set_scheduler_unix_ns(
        static_cast<uint64_t>(absl::ToUnixNanos(clock_.WallNow() - kAhead)));
    clock_.Advance(back);
    From(header);
  };
  EXPECT_EQ(absl::InfiniteDuration(), state_.clock_offset().possible_error());
  echo(1, absl::Milliseconds(30), absl::Milliseconds(10));
  EXPECT_EQ(kAhead - absl::Milliseconds(10), state_.clock_offset().ahead());
  clock_.Advance(absl::Seconds(1));
  ASSERT_EQ(2u, state_.Tick(clock_.Now()).send.at(0).heartbeat().sequence());
  echo(1, absl::ZeroDuration(), absl::ZeroDuration());  // a late echo of the heartbeat before
  EXPECT_EQ(absl::Milliseconds(20), state_.clock_offset().possible_error());
  echo(2, absl::Milliseconds(1), absl::Milliseconds(1));
  EXPECT_EQ(kAhead, state_.clock_offset().ahead());
  EXPECT_EQ(absl::Milliseconds(1), state_.clock_offset().possible_error());
}

TEST_F(MembershipStateTest, TheNewestEchoSaysWhomTheJobWaitsFor) {
  Join();
  wire::Header echo;
  echo.mutable_heartbeat()->set_waits("round 42 waits 6 s for worker 0");
  From(echo);
  EXPECT_EQ(state_.waits(), "round 42 waits 6 s for worker 0");
  echo.mutable_heartbeat()->clear_waits();
  From(echo);
  EXPECT_EQ(state_.waits(), "");
}

TEST_F(MembershipStateTest, AnEchoWithoutATimeTellsNothing) {
  clock_.Advance(absl::Hours(1));
  Join();
  wire::Header header;
  header.mutable_heartbeat()->set_sequence(1);
  From(header);
  EXPECT_EQ(absl::InfiniteDuration(), state_.clock_offset().possible_error());
  EXPECT_EQ(absl::ZeroDuration(), state_.clock_offset().ahead());
}

TEST_F(MembershipStateTest, ASchedulerSilentForLongerThanTheTimeoutIsLost) {
  Join();
  clock_.Advance(absl::Seconds(5));
  EXPECT_FALSE(state_.Tick(clock_.Now()).down.has_value());
  clock_.Advance(absl::Milliseconds(1));
  const auto down = state_.Tick(clock_.Now()).down;
  ASSERT_TRUE(down.has_value());
  EXPECT_EQ(down->code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(down->message()), HasSubstr("tcp://here:1"));
  EXPECT_FALSE(state_.Tick(clock_.Now()).down.has_value());  // it reports the end only once
}

TEST_F(MembershipStateTest, WhatWasNotDeliveredYetIsNoSilence) {
  Join();
  clock_.Advance(absl::Seconds(10));
  EXPECT_FALSE(state_.Tick(clock_.Now(), clock_.Now() - absl::Seconds(5)).down.has_value());
  EXPECT_TRUE(state_.Tick(clock_.Now(), clock_.Now()).down.has_value());
}

TEST_F(MembershipStateTest, AnyMessageOfTheSchedulerShowsThatItLives) {
  Join();
  clock_.Advance(absl::Seconds(4));
  wire::Header placement;
  placement.mutable_placement();
  From(placement);
  EXPECT_FALSE(consumed_);
  clock_.Advance(absl::Seconds(4));
  EXPECT_FALSE(state_.Tick(clock_.Now()).down.has_value());
}

TEST_F(MembershipStateTest, TheFirstReasonOfGoingDownStays) {
  Join();
  wire::Header node_down;
  node_down.mutable_node_down()->set_reason("server 1 is gone");
  EXPECT_EQ(*From(node_down).down, absl::UnavailableError("server 1 is gone"));
  wire::Header shutdown;
  shutdown.mutable_shutdown();
  EXPECT_FALSE(From(shutdown).down.has_value());
  EXPECT_EQ(*state_.down(), absl::UnavailableError("server 1 is gone"));
}

}  // namespace
}  // namespace slimps
