// SPDX-License-Identifier: Apache-2.0
#include "proto/net/membership/membership_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/status_proto.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Phase = MembershipState::Phase;

class MembershipStateTest : public testing::Test {
 protected:
  static MembershipState::Options Options() {
    MembershipState::Options options;
    options.job_id = "job";
    options.scheduler_address = "tcp://here:1";
    options.registration.set_role(wire::WORKER);
    options.repeat_interval = absl::Seconds(1);
    return options;
  }

  MembershipState::Actions From(wire::Header header) {
    header.set_job_id("job");
    return state_.HandleFromScheduler(header, clock_.Now(), &consumed_);
  }
  MembershipState::Actions Welcome(uint32_t rank) {
    wire::Header header;
    header.mutable_welcome()->set_rank(rank);
    header.mutable_welcome()->set_heartbeat_interval_ms(1000);
    header.mutable_welcome()->set_heartbeat_timeout_ms(5000);
    return From(header);
  }
  static wire::Header Roster(uint64_t epoch, uint32_t workers_there) {
    wire::Header header;
    header.mutable_roster()->set_epoch(epoch);
    header.mutable_roster()->set_num_workers(2);
    for (uint32_t rank = 0; rank < workers_there; ++rank) {
      wire::NodeRef* node = header.mutable_roster()->add_nodes()->mutable_node();
      node->set_role(wire::WORKER);
      node->set_rank(rank);
    }
    return header;
  }
  void Join() {
    state_.StartJoin(clock_.Now(), clock_.Now() + absl::Seconds(60));
    Welcome(1);
    From(Roster(2, 2));
    ASSERT_EQ(state_.phase(), Phase::kMember);
  }
  MembershipState::BarrierId StartBarrier(const std::vector<double>& values = {}) {
    MembershipState::BarrierId id;
    last_ = state_.StartBarrier(
        {.name = "b", .group = wire::WORKER, .purpose = "tea", .values = values}, clock_.Now(),
        &id);
    return id;
  }

  FakeClock clock_;
  MembershipState state_{Options()};
  MembershipState::Actions last_;
  bool consumed_ = false;
};

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
  const auto echo = [this](uint64_t sequence, absl::Duration there, absl::Duration back) {
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

wire::Header Release(uint64_t ticket, uint64_t newest, const absl::Status& status) {
  wire::Header header;
  header.mutable_barrier_release()->set_name("b");
  header.mutable_barrier_release()->set_ticket(ticket);
  header.mutable_barrier_release()->set_newest(newest);
  *header.mutable_barrier_release()->mutable_status() = ToStatusProto(status);
  return header;
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
