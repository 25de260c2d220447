// SPDX-License-Identifier: Apache-2.0
// How a node leaves, how it reports a failure, and what becomes of messages that cannot be sent.
#include <gtest/gtest.h>

#include <vector>

#include "proto/status_proto.h"
#include "tests/proto/net/membership/membership_state_fixture.h"

namespace slimps {
namespace {

using Phase = MembershipState::Phase;

TEST_F(MembershipStateTest, GoodbyeIsRepeatedUntilItsAck) {
  Join();
  EXPECT_TRUE(state_.StartLeave(clock_.Now()).send.at(0).has_goodbye());
  clock_.Advance(absl::Seconds(1));
  const auto again = state_.Tick(clock_.Now()).send;
  ASSERT_EQ(again.size(), 1u);
  EXPECT_TRUE(again[0].has_goodbye());
  wire::Header ack;
  ack.mutable_ack();
  ack.set_request_id(3);  // answers some other request of this node
  From(ack);
  EXPECT_FALSE(consumed_);
  EXPECT_EQ(state_.phase(), Phase::kLeaving);
  ack.set_request_id(again[0].request_id());
  From(ack);
  EXPECT_EQ(state_.phase(), Phase::kLeft);
  clock_.Advance(absl::Hours(1));
  EXPECT_TRUE(state_.Tick(clock_.Now()).send.empty());
  EXPECT_FALSE(state_.down().has_value());
}

TEST_F(MembershipStateTest, LeavingBeforeJoiningSaysNothing) {
  EXPECT_TRUE(state_.StartLeave(clock_.Now()).send.empty());
  EXPECT_EQ(state_.phase(), Phase::kLeft);
}

TEST_F(MembershipStateTest, AFailureIsReportedWithItsReason) {
  EXPECT_TRUE(state_.ReportFailure(absl::InternalError("x"), clock_.Now()).send.empty());
  EXPECT_TRUE(state_.failure_reported()) << "nobody to report it to";
  Join();
  const auto sent = state_.ReportFailure(absl::InternalError("disk full"), clock_.Now()).send;
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].error().status().message(), "disk full");
  EXPECT_EQ(sent[0].error().node().rank(), 1u);
  EXPECT_FALSE(state_.failure_reported());
}

TEST_F(MembershipStateTest, AFailureIsReportedAgainUntilItsAck) {
  Join();
  const auto first = state_.ReportFailure(absl::InternalError("disk full"), clock_.Now()).send;
  ASSERT_EQ(first.size(), 1u);
  EXPECT_TRUE(state_.ReportFailure(absl::InternalError("later"), clock_.Now()).send.empty());
  for (int repeat = 0; repeat < 3; ++repeat) {
    EXPECT_EQ(state_.NextTick(), clock_.Now() + absl::Milliseconds(100));
    EXPECT_TRUE(state_.Tick(clock_.Now()).send.empty()) << "not due yet";
    clock_.Advance(absl::Milliseconds(100));
    const auto again = state_.Tick(clock_.Now()).send;
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].SerializeAsString(), first[0].SerializeAsString());
  }
  wire::Header ack;
  ack.mutable_ack();
  ack.set_request_id(MembershipState::kRequestBit | 12345);
  From(ack);
  EXPECT_FALSE(state_.failure_reported()) << "the answer to something else";
  ack.set_request_id(first[0].request_id());
  From(ack);
  EXPECT_TRUE(consumed_);
  EXPECT_TRUE(state_.failure_reported());
  EXPECT_EQ(state_.phase(), Phase::kMember);
  clock_.Advance(absl::Milliseconds(100));
  EXPECT_TRUE(state_.Tick(clock_.Now()).send.empty());
}

TEST_F(MembershipStateTest, AThresholdReportIsRepeatedUntilItsAck) {
  Join();
  wire::ThresholdReport report;
  report.set_ready_round(5);
  const wire::Header first = state_.StartReport(report, clock_.Now());
  EXPECT_TRUE(state_.Tick(clock_.Now()).send.empty()) << "the caller sends it first";
  clock_.Advance(absl::Milliseconds(999));
  state_.Tick(clock_.Now());
  EXPECT_EQ(state_.NextTick(), clock_.Now() + absl::Milliseconds(1));
  clock_.Advance(absl::Milliseconds(1));
  std::vector<wire::Header> sent = state_.Tick(clock_.Now()).send;
  std::erase_if(sent, [](const wire::Header& one) { return !one.has_threshold_report(); });
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].SerializeAsString(), first.SerializeAsString());
  wire::Header ack;
  ack.mutable_ack();
  ack.set_request_id(first.request_id());
  state_.StartLeave(clock_.Now());
  From(ack);
  From(ack);  // the answer to the repeat
  EXPECT_EQ(state_.phase(), Phase::kLeaving) << "its goodbye was not acknowledged";
  clock_.Advance(absl::Seconds(1));
  for (const wire::Header& one : state_.Tick(clock_.Now()).send) {
    EXPECT_FALSE(one.has_threshold_report());
  }
}

TEST_F(MembershipStateTest, AnErrorInAnswerToAReportIsForTheStore) {
  Join();
  const wire::Header report = state_.StartReport({}, clock_.Now());
  wire::Header error;
  error.set_request_id(report.request_id());
  *error.mutable_error()->mutable_status() = ToStatusProto(absl::InvalidArgumentError("rows"));
  From(error);
  EXPECT_FALSE(consumed_);
  EXPECT_FALSE(state_.down().has_value());
}

TEST_F(MembershipStateTest, AFailureOfWhichTheJobHasHeardIsReported) {
  Join();
  state_.ReportFailure(absl::InternalError("disk full"), clock_.Now());
  wire::Header down;
  down.mutable_node_down()->set_reason("worker 1 failed: disk full");
  From(down);
  EXPECT_TRUE(state_.failure_reported());
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(state_.Tick(clock_.Now()).send.empty());
}

TEST_F(MembershipStateTest, AFailureIsStillReportedWhileLeaving) {
  Join();
  const auto report = state_.ReportFailure(absl::InternalError("disk full"), clock_.Now()).send;
  state_.StartLeave(clock_.Now());
  clock_.Advance(absl::Milliseconds(100));
  bool reported = false;
  for (const wire::Header& header : state_.Tick(clock_.Now()).send) reported |= header.has_error();
  EXPECT_TRUE(reported);
  wire::Header ack;
  ack.mutable_ack();
  ack.set_request_id(report[0].request_id());
  From(ack);
  EXPECT_EQ(state_.phase(), Phase::kLeaving) << "the goodbye has not been acknowledged";
}

TEST_F(MembershipStateTest, WhatCannotBeSentIsToldToWhoWaitsForIt) {
  const absl::Status why = absl::InvalidArgumentError("too long");
  const auto registration =
      state_.StartJoin(clock_.Now(), clock_.Now() + absl::Seconds(60)).send.at(0);
  Welcome(1);
  From(Roster(2, 2));
  state_.CannotSend(registration, why);
  EXPECT_EQ(state_.JoinResult(clock_.Now()), absl::OkStatus()) << "a member already";
  const MembershipState::BarrierId barrier = StartBarrier();
  const MembershipState::BarrierId other = StartBarrier();
  state_.CannotSend(last_.send.back(), why);
  EXPECT_FALSE(state_.BarrierResult(barrier).has_value());
  ASSERT_TRUE(state_.BarrierResult(other).has_value());
  EXPECT_EQ(state_.BarrierResult(other)->status(), why);
  const auto report = state_.ReportFailure(absl::InternalError("x"), clock_.Now()).send.at(0);
  state_.CannotSend(report, why);
  EXPECT_TRUE(state_.failure_reported()) << "nothing to wait for";
}

TEST_F(MembershipStateTest, ARegistrationThatCannotBeSentEndsTheJoin) {
  const auto sent = state_.StartJoin(clock_.Now(), clock_.Now() + absl::Seconds(60)).send;
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_FALSE(state_.JoinResult(clock_.Now()).has_value());
  state_.CannotSend(sent[0], absl::InvalidArgumentError("job_id: expected UTF-8"));
  EXPECT_EQ(state_.JoinResult(clock_.Now()), absl::InvalidArgumentError("job_id: expected UTF-8"));
}

}  // namespace
}  // namespace slimps
