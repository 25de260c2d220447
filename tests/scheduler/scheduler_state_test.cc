// SPDX-License-Identifier: Apache-2.0
// Who is in the job: registration, liveness, and the job's end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scheduler/scheduler_state_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Phase = SchedulerState::Phase;

TEST_F(SchedulerStateTest, RegisterIsAnsweredWithRankIntervalsAndRosterSoFar) {
  const auto answer = Register(kWorker0);
  ASSERT_EQ(answer.size(), 2u);
  EXPECT_EQ(answer[0].welcome().rank(), 0u);
  EXPECT_EQ(answer[0].welcome().heartbeat_interval_ms(), 1000u);
  EXPECT_EQ(answer[0].welcome().heartbeat_timeout_ms(), 10000u);
  EXPECT_EQ(answer[0].welcome().timeout_ms(), 1800'000u);
  EXPECT_EQ(answer[0].welcome().least_timeout_ms(), 0u) << "nobody is waited for who is gone";
  EXPECT_EQ(answer[1].roster().nodes_size(), 1);
}

TEST_F(SchedulerStateTest, TheLastToComeMakesTheRosterGoToEveryone) {
  Register(kServer);
  Register(kWorker0);
  const auto answer = Register(kWorker1);
  ASSERT_EQ(answer.size(), 2u);
  EXPECT_EQ(answer[1].roster().nodes_size(), 3);
  for (const uint64_t node : {kServer, kWorker0}) {
    ASSERT_EQ(Others(node).size(), 1u);
    EXPECT_EQ(Others(node)[0].roster().nodes_size(), 3);
  }
  EXPECT_EQ(state_->phase(), Phase::kRunning);
}

TEST_F(SchedulerStateTest, ALostAnswerToRegisterIsGivenAgain) {
  RegisterAll();
  const auto answer = Register(kWorker1);
  ASSERT_EQ(answer.size(), 2u);
  EXPECT_EQ(answer[0].welcome().rank(), 1u);
  EXPECT_EQ(answer[1].roster().nodes_size(), 3);
  EXPECT_TRUE(Others(kWorker0).empty());
}

TEST_F(SchedulerStateTest, HeartbeatsAreEchoedWithTheTime) {
  RegisterAll();
  clock_.Advance(absl::Seconds(3));
  const auto answer = Heartbeat(kWorker0);
  ASSERT_EQ(answer.size(), 1u);
  EXPECT_EQ(answer[0].heartbeat().sequence(), 5u);
  EXPECT_EQ(answer[0].heartbeat().scheduler_unix_ns(), 3'000'000'000u);
}

TEST_F(SchedulerStateTest, WorkersAreToldWithTheirHeartbeatsWhomTheJobWaitsFor) {
  RegisterAll();
  state_->SetWaits("round 42 waits 6 s for worker 0");
  EXPECT_EQ(Heartbeat(kWorker1)[0].heartbeat().waits(), "round 42 waits 6 s for worker 0");
  EXPECT_EQ(Heartbeat(kServer)[0].heartbeat().waits(), "");
}

TEST_F(SchedulerStateTest, ASilentNodeIsNamedToEveryoneAndTheJobFails) {
  RegisterAll();
  clock_.Advance(absl::Seconds(10));
  Heartbeat(kServer);
  Heartbeat(kWorker0);
  clock_.Advance(absl::Milliseconds(1));
  const auto told = Tick(kWorker0);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].node_down().node().rank(), 1u);
  EXPECT_THAT(told[0].node_down().reason(), HasSubstr("worker 1 (host alpha, pid 3)"));
  EXPECT_THAT(told[1].shutdown().reason().message(), HasSubstr("worker 1"));
  EXPECT_EQ(Others(kServer).size(), 2u);
  EXPECT_EQ(state_->phase(), Phase::kFailed);
  EXPECT_THAT(
      std::string(state_->result().message()),
      HasSubstr("silent for over 10s; jobs with --worker_timeout or launch --restart outlive "
                "a worker"));
}

TEST_F(SchedulerStateTest, WhatWasNotDeliveredYetIsNoSilence) {
  RegisterAll();
  clock_.Advance(absl::Seconds(20));
  state_->Tick(clock_.Now(), clock_.Now() - absl::Seconds(10));
  EXPECT_EQ(state_->phase(), Phase::kRunning);
  for (const uint64_t node : {kServer, kWorker0, kWorker1}) Heartbeat(node);
  state_->Tick(clock_.Now(), clock_.Now());
  EXPECT_EQ(state_->phase(), Phase::kRunning);
}

TEST_F(SchedulerStateTest, AFailedJobIsDoneWhenTheRestHasLeft) {
  RegisterAll();
  wire::Header error = HeaderOf(kWorker1);
  error.mutable_error()->mutable_status()->set_code(3);
  error.mutable_error()->mutable_status()->set_message("NaN in key s:w");
  EXPECT_TRUE(Tell(kWorker1, error).at(0).has_ack());
  EXPECT_EQ(state_->phase(), Phase::kFailed);
  EXPECT_THAT(std::string(state_->result().message()), HasSubstr("worker 1"));
  EXPECT_THAT(std::string(state_->result().message()), HasSubstr("NaN in key s:w"));
  ASSERT_TRUE(state_->blamed().has_value());
  EXPECT_EQ(state_->blamed()->role(), wire::WORKER);
  EXPECT_EQ(state_->blamed()->rank(), 1u);
  ASSERT_EQ(Others(kServer).size(), 2u);
  EXPECT_THAT(Others(kServer)[0].node_down().reason(), HasSubstr("NaN in key s:w"));
  Goodbye(kServer);
  EXPECT_EQ(state_->phase(), Phase::kFailed);
  LetItBeQuiet();
  EXPECT_EQ(state_->phase(), Phase::kFailed);
  Goodbye(kWorker0);
  LetItBeQuiet();
  EXPECT_EQ(state_->phase(), Phase::kDone);
}

TEST_F(SchedulerStateTest, WhoseConnectionIsGoneIsWaitedForInARunningJobAlone) {
  RegisterAll();
  state_->ConnectionGone(PeerId{kWorker0});
  EXPECT_EQ(state_->members().LiveMembers().size(), 3u) << "it may come back";
  Others(kServer);
  state_->Abort(absl::CancelledError("enough"), clock_.Now());
  for (const uint64_t node : {kServer, kWorker0, kWorker1}) state_->ConnectionGone(PeerId{node});
  LetItBeQuiet();
  EXPECT_EQ(state_->phase(), Phase::kDone);
  EXPECT_THAT(std::string(state_->result().message()), HasSubstr("enough"));
  EXPECT_FALSE(state_->blamed().has_value());
}

TEST_F(SchedulerStateTest, AReportedFailureIsAcknowledgedAsOftenAsItComes) {
  RegisterAll();
  wire::Header error = HeaderOf(kWorker1);
  error.mutable_error()->mutable_status()->set_code(3);
  error.mutable_error()->mutable_status()->set_message("disk full");
  for (int time = 0; time < 2; ++time) {
    const auto answers = Tell(kWorker1, error);
    ASSERT_FALSE(answers.empty());
    EXPECT_TRUE(answers[0].has_ack());
    EXPECT_EQ(answers[0].request_id(), error.request_id());
    EXPECT_EQ(Others(kServer).empty(), time == 1) << "told once";
  }
  EXPECT_THAT(std::string(state_->result().message()), HasSubstr("disk full"));
}

TEST_F(SchedulerStateTest, AFailedJobIsDoneWhenTheGraceIsOver) {
  RegisterAll();
  state_->Abort(absl::CancelledError("stopped"), clock_.Now());
  EXPECT_EQ(state_->phase(), Phase::kFailed);
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Tick(kServer).size(), 1u);  // told again: the first message may be lost
  clock_.Advance(absl::Seconds(4));
  Tick(kServer);
  EXPECT_EQ(state_->phase(), Phase::kDone);
  EXPECT_EQ(state_->result().message(), "stopped");
}

TEST_F(SchedulerStateTest, TheLastWorkersGoodbyeShutsTheServersDownInOrder) {
  RegisterAll();
  EXPECT_EQ(Goodbye(kWorker0)[0].body_case(), wire::Header::kAck);
  EXPECT_TRUE(Others(kServer).empty());
  Goodbye(kWorker1);
  ASSERT_EQ(Others(kServer).size(), 1u);
  EXPECT_EQ(Others(kServer)[0].shutdown().reason().code(), 0u);
  EXPECT_EQ(state_->phase(), Phase::kEnding);
  EXPECT_EQ(Goodbye(kServer)[0].body_case(), wire::Header::kAck);
  LetItBeQuiet();
  EXPECT_EQ(state_->phase(), Phase::kDone);
  EXPECT_TRUE(state_->result().ok());
}

// Once the scheduler ended right after it sent an acknowledgement, which was lost with its
// connection. The waiting node then failed a job that had gone well.
TEST_F(SchedulerStateTest, TheEndWaitsUntilNoGoodbyeIsRepeated) {
  RegisterAll();
  for (const uint64_t node : {kWorker0, kWorker1, kServer}) Goodbye(node);
  clock_.Advance(absl::Milliseconds(299));
  Tick(kServer);
  EXPECT_EQ(state_->phase(), Phase::kEnding);
  EXPECT_EQ(Goodbye(kServer)[0].body_case(), wire::Header::kAck);
  clock_.Advance(absl::Milliseconds(299));
  Tick(kServer);
  EXPECT_EQ(state_->phase(), Phase::kEnding);
  clock_.Advance(absl::Milliseconds(1));
  Tick(kServer);
  EXPECT_EQ(state_->phase(), Phase::kDone);
}

TEST_F(SchedulerStateTest, ServersLearnWithTheirNextHeartbeatWhoHasEnded) {
  RegisterAll();
  Goodbye(kWorker1);
  const auto answer = Heartbeat(kServer);
  ASSERT_EQ(answer.size(), 2u);
  EXPECT_FALSE(answer[1].roster().nodes(1).ended());
  EXPECT_TRUE(answer[1].roster().nodes(2).ended());
  EXPECT_EQ(Heartbeat(kWorker0).size(), 1u) << "no worker waits for the pushes of another";
}

TEST_F(SchedulerStateTest, ARepeatedGoodbyeIsAcknowledgedAgain) {
  RegisterAll();
  Goodbye(kWorker0);
  const auto again = Goodbye(kWorker0);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].body_case(), wire::Header::kAck);
  EXPECT_EQ(state_->phase(), Phase::kRunning);
}

TEST_F(SchedulerStateTest, AServerThatIsGoneDoesNotHoldTheEndForEver) {
  RegisterAll();
  Goodbye(kWorker0);
  Goodbye(kWorker1);
  clock_.Advance(absl::Seconds(5));
  Tick(kServer);
  EXPECT_EQ(state_->phase(), Phase::kDone);
  EXPECT_TRUE(state_->result().ok());
}

TEST_F(SchedulerStateTest, AServerThatLeavesEarlyFailsTheJob) {
  RegisterAll();
  Goodbye(kServer);
  EXPECT_EQ(state_->phase(), Phase::kFailed);
  ASSERT_EQ(Others(kWorker0).size(), 2u);
  EXPECT_THAT(Others(kWorker0)[0].node_down().reason(),
              HasSubstr("left while workers are in the job"));
}

TEST_F(SchedulerStateTest, AnIncompleteRosterFailsSayingWhoIsMissing) {
  Register(kWorker0);
  for (int i = 0; i < 60; ++i) {
    EXPECT_EQ(state_->phase(), Phase::kForming);
    clock_.Advance(absl::Seconds(1));
    Heartbeat(kWorker0);
    if (i < 59) Tick(kWorker0);
  }
  const auto told = Tick(kWorker0);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].shutdown().reason().message(),
            "roster incomplete after 1m: waiting for 1 server and 1 worker");
  EXPECT_EQ(state_->result().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(SchedulerStateTest, WhoComesAndWhoIsRefusedIsToldAtOnceAndWhoIsMissingAfterTenSeconds) {
  Register(kWorker0);
  Register(kWorker0);  // a repeated registration is no news
  EXPECT_THAT(state_->TakeNews(), ElementsAre("worker 0 (host alpha, pid 2) listens at "
                                              "tcp://127.0.0.1:1; missing: 1 server and 1 worker"));
  wire::Header mistaken = HeaderOf(77);
  mistaken.mutable_register_()->set_role(wire::WORKER);
  mistaken.mutable_register_()->set_num_workers(3);
  mistaken.mutable_register_()->set_num_servers(1);
  mistaken.mutable_register_()->set_host("beta");
  Tell(77, mistaken);
  const std::vector<std::string> refused = state_->TakeNews();
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_THAT(refused[0], HasSubstr("refused a worker (host beta, pid 0): wrong counts"));
  EXPECT_THAT(refused[0], HasSubstr("was told 3 workers"));
  const auto again = Register(kWorker0);
  ASSERT_EQ(again.size(), 2u);
  ASSERT_EQ(again[1].roster().refusals_size(), 1);
  EXPECT_THAT(again[1].roster().refusals(0), HasSubstr("was told 3 workers"));
  EXPECT_EQ(state_->View(clock_.Now(), 0).refusals, refused);
}

// Once the crashed process still counted, so the job was complete and its successor was refused.
TEST_F(SchedulerStateTest, AWorkerThatStartsAgainWhileTheJobFormsTakesItsOwnRankBack) {
  constexpr uint64_t kAgain = 77;
  Register(kWorker0);
  clock_.Advance(absl::Seconds(3));
  EXPECT_TRUE(Register(kAgain).empty()) << "is worker 0 alive?";
  ASSERT_EQ(Others(kWorker0).size(), 1u);
  EXPECT_TRUE(Others(kWorker0)[0].heartbeat().answer_at_once());
  state_->ConnectionGone(PeerId{kWorker0});
  const auto answer = Tick(kAgain);
  ASSERT_EQ(answer.size(), 2u);
  EXPECT_EQ(answer[0].welcome().rank(), 0u);
  EXPECT_EQ(Register(kWorker1).at(0).welcome().rank(), 1u);
  Register(kServer);
  EXPECT_EQ(state_->phase(), Phase::kRunning);
}

TEST_F(SchedulerStateTest, ARestartWhoseFormerProcessIsSilentTakesItsRankAfterTheProbeTimeout) {
  constexpr uint64_t kAgain = 77;
  Register(kWorker0);
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(Register(kAgain).empty());
  clock_.Advance(absl::Milliseconds(2499));
  EXPECT_TRUE(Tick(kAgain).empty());
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(Tick(kAgain).at(0).welcome().rank(), 0u);
  EXPECT_EQ(state_->members().LiveMembers().size(), 1u);
}

TEST_F(SchedulerStateTest, ASecondWorkerOfOneMachineIsLetInAsSoonAsTheFirstAnswers) {
  Register(kWorker0);
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(Register(kWorker1).empty());
  EXPECT_TRUE(Register(kWorker1).empty()) << "repeated";
  AnswerProbe(kWorker0);
  ASSERT_EQ(Others(kWorker1).size(), 2u) << "one answer";
  EXPECT_EQ(Others(kWorker1)[0].welcome().rank(), 1u);
}

TEST_F(SchedulerStateTest, ANodeThatFallsSilentWhileFormingLosesItsPlace) {
  Register(kWorker0);
  clock_.Advance(absl::Seconds(11));
  Tick(kWorker0);
  EXPECT_EQ(state_->phase(), Phase::kForming);
  EXPECT_EQ(Register(kWorker1)[0].welcome().rank(), 0u);
}

TEST_F(SchedulerStateTest, ARefusalSaysWhy) {
  RegisterAll();
  const auto answer = Register(99);
  ASSERT_EQ(answer.size(), 1u);
  EXPECT_THAT(answer[0].error().status().message(), HasSubstr("all are there already"));
  const auto stranger = Heartbeat(98);
  ASSERT_EQ(stranger.size(), 1u);
  EXPECT_EQ(stranger[0].error().status().code(), 5u);
  wire::Header push = HeaderOf(kWorker0);
  push.mutable_push();
  EXPECT_EQ(Tell(kWorker0, push)[0].error().status().code(), 3u);
}

TEST_F(SchedulerStateTest, AJobThatIsOverTakesNoOne) {
  RegisterAll();
  state_->Abort(absl::CancelledError("stopped"), clock_.Now());
  EXPECT_THAT(Register(99)[0].error().status().message(),
              HasSubstr("the job is over: it has failed: stopped"));
  wire::Header stranger = RegistrationOf(98, wire::WORKER);
  stranger.set_job_id("another");
  EXPECT_EQ(Tell(98, stranger)[0].error().status().message(), "the job is over: it has failed");
}

// A refused node must not learn the members' incarnations: with them it could take their places.
TEST_F(SchedulerStateTest, ThoseRefusedAreStrangers) {
  RegisterAll();
  wire::Header goodbye = HeaderOf(99);
  goodbye.mutable_goodbye();
  wire::Header error = HeaderOf(99);
  error.mutable_error()->mutable_status()->set_code(3);
  wire::Header registration = HeaderOf(99);
  registration.mutable_register_()->set_role(wire::WORKER);
  for (const wire::Header& said : {goodbye, error, registration}) {
    const Outbox answers = state_->Handle(PeerId{99}, said, clock_.Now());
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_TRUE(answers[0].to_stranger);
    EXPECT_LT(answers[0].header.ByteSizeLong(), size_t{200}) << answers[0].header.DebugString();
  }
  EXPECT_EQ(state_->phase(), Phase::kRunning);
  EXPECT_EQ(state_->members().LiveMembers().size(), 3u);
}

TEST_F(SchedulerStateTest, WhoShowsAMembersIncarnationElsewhereCannotEndTheJob) {
  RegisterAll();
  for (const bool reports : {false, true}) {
    wire::Header said = HeaderOf(kWorker0);
    if (reports) {
      said.mutable_error()->mutable_status()->set_code(3);
    } else {
      said.mutable_goodbye();
    }
    const Outbox probe = state_->Handle(PeerId{99}, said, clock_.Now());
    ASSERT_EQ(probe.size(), 1u);
    EXPECT_EQ(probe[0].to, PeerId{kWorker0});
    EXPECT_TRUE(probe[0].header.heartbeat().answer_at_once());
    Heartbeat(kWorker0);
  }
  EXPECT_EQ(state_->phase(), Phase::kRunning);
  EXPECT_EQ(state_->members().LiveMembers().size(), 3u);
}

TEST_F(SchedulerStateTest, AMemberThatReconnectsGoesOnWhereItIsNow) {
  RegisterAll();
  wire::Header heartbeat = HeaderOf(kWorker0);
  heartbeat.mutable_heartbeat()->set_sequence(1);
  EXPECT_EQ(state_->Handle(PeerId{99}, heartbeat, clock_.Now()).size(), 1u);
  EXPECT_TRUE(state_->Handle(PeerId{99}, heartbeat, clock_.Now()).empty());
  clock_.Advance(absl::Milliseconds(2500));  // a quarter of the heartbeat's timeout, unanswered
  state_->Tick(clock_.Now());
  const Outbox echo = state_->Handle(PeerId{99}, heartbeat, clock_.Now());
  ASSERT_EQ(echo.size(), 1u);
  EXPECT_EQ(echo[0].to, PeerId{99});
}

}  // namespace
}  // namespace slimps
