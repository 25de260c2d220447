// SPDX-License-Identifier: Apache-2.0
// Nodes that are gone and started again while the job runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scheduler/scheduler_state_fixture.h"

namespace slimps {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Phase = SchedulerState::Phase;

constexpr uint64_t kNewestServer = 11;

class NodeRestartTest : public SchedulerStateTest {
 protected:
  NodeRestartTest() : SchedulerStateTest(/*restart_timeout=*/absl::Seconds(60)) {}

  void LoseWorker1() {
    clock_.Advance(absl::Seconds(10));
    Heartbeat(kServer);
    Heartbeat(kWorker0);
    clock_.Advance(absl::Milliseconds(1));
    Tick(kWorker0);
  }

  // Lets the server be silent, and nobody else.
  void LoseServer() {
    clock_.Advance(absl::Seconds(10));
    Heartbeat(kWorker0);
    Heartbeat(kWorker1);
    clock_.Advance(absl::Milliseconds(1));
    Tick(kWorker0);
  }
};

TEST_F(NodeRestartTest, ALostServerDoesNotEndTheJob) {
  RegisterAll();
  LoseServer();
  EXPECT_EQ(state_->phase(), Phase::kRunning);
  EXPECT_THAT(state_->TakeNews(),
              Contains(HasSubstr("server 0 (host alpha, pid 1) has been silent for over 10s; the "
                                 "job waits up to 1m for it to be started again")));
}

TEST_F(NodeRestartTest, AClosedConnectionIsToldAndItsNodeKeepsItsPlace) {
  RegisterAll();
  state_->TakeNews();
  state_->ConnectionClosed(PeerId{kServer}, clock_.Now());
  EXPECT_THAT(state_->TakeNews(),
              ElementsAre("server 0 (host alpha, pid 1) has closed its connection, and is awaited "
                          "for 10s"));
  EXPECT_TRUE(RegisterServerAgain().empty());
  ASSERT_EQ(Others(kServer).size(), 1u) << "the server is asked first: it may have reconnected";
  EXPECT_TRUE(Others(kServer)[0].heartbeat().answer_at_once());
}

TEST_F(NodeRestartTest, OnlyANodeOfTheRunningJobIsToldToHaveClosed) {
  Register(kServer);
  state_->ConnectionClosed(PeerId{kServer}, clock_.Now());  // the job still forms
  RegisterAll();
  Goodbye(kWorker1);
  state_->ConnectionClosed(PeerId{kWorker1}, clock_.Now());
  state_->ConnectionClosed(PeerId{kNewServer}, clock_.Now());  // a stranger
  EXPECT_THAT(state_->TakeNews(), Not(Contains(HasSubstr("has closed its connection"))));
}

TEST_F(NodeRestartTest, ANodeThatKeepsConnectingFillsNoLog) {
  RegisterAll();
  state_->TakeNews();
  for (int i = 0; i < 1000; ++i) state_->ConnectionClosed(PeerId{kServer}, clock_.Now());
  EXPECT_LE(state_->TakeNews().size(), 20u);
  clock_.Advance(absl::Seconds(3));
  state_->ConnectionClosed(PeerId{kServer}, clock_.Now());
  EXPECT_EQ(state_->TakeNews().size(), 1u);
}

TEST_F(NodeRestartTest, AnotherProcessTakesTheLostPlaceAndEveryoneIsTold) {
  RegisterAll();
  LoseServer();
  const auto answer = RegisterServerAgain();
  ASSERT_EQ(answer.size(), 2u);
  EXPECT_EQ(answer[0].welcome().rank(), 0u);
  EXPECT_TRUE(answer[0].welcome().servers_may_return());
  for (const uint64_t worker : {kWorker0, kWorker1}) {
    const auto told = Others(worker);
    ASSERT_EQ(told.size(), 1u);
    const wire::RosterEntry& server = told[0].roster().nodes(0);
    EXPECT_EQ(server.pid(), kNewServer);
    EXPECT_EQ(server.restarts(), 1u);
  }
}

TEST_F(NodeRestartTest, APlaceIsTakenAtOnceWhereTheConnectionIsGone) {
  RegisterAll();
  state_->ConnectionGone(PeerId{kServer});
  EXPECT_EQ(RegisterServerAgain().size(), 2u);
}

TEST_F(NodeRestartTest, AServerThatLivesKeepsItsPlace) {
  RegisterAll();
  EXPECT_TRUE(RegisterServerAgain().empty());  // the server is asked first
  ASSERT_EQ(Others(kServer).size(), 1u);
  EXPECT_TRUE(Others(kServer)[0].heartbeat().answer_at_once());
  AnswerProbe(kServer);
  ASSERT_EQ(Others(kNewServer).size(), 1u);
  EXPECT_THAT(Others(kNewServer)[0].error().status().message(), HasSubstr("rank 0 is taken"));
}

TEST_F(NodeRestartTest, WhatADeadServerSaidLastIsNoSignOfLife) {
  RegisterAll();
  EXPECT_TRUE(RegisterServerAgain().empty());
  Heartbeat(kServer);  // it was on its way when the server died
  EXPECT_TRUE(Others(kNewServer).empty());
  state_->ConnectionGone(PeerId{kServer});
  Tick(kWorker0);
  ASSERT_FALSE(Others(kNewServer).empty());
  EXPECT_TRUE(Others(kNewServer)[0].has_welcome());
}

TEST_F(NodeRestartTest, AServerWhoseAnswerIsLostKeepsItsPlaceIfItIsHeard) {
  RegisterAll();
  EXPECT_TRUE(RegisterServerAgain().empty());
  Heartbeat(kServer);
  clock_.Advance(absl::Seconds(3));
  Tick(kWorker0);
  ASSERT_EQ(Others(kNewServer).size(), 1u);
  EXPECT_THAT(Others(kNewServer)[0].error().status().message(), HasSubstr("rank 0 is taken"));
}

TEST_F(NodeRestartTest, AProcessThatDiedWhileItWaitedForAPlaceLosesIt) {
  RegisterAll();
  EXPECT_TRUE(RegisterServerAgain().empty());
  EXPECT_TRUE(RegisterServerAgain(/*restored=*/true, kNewestServer).empty());
  clock_.Advance(absl::Seconds(3));
  ASSERT_FALSE(Tick(kNewServer).empty());  // nobody knows yet that it died
  EXPECT_TRUE(Others(kNewestServer).empty());
  state_->ConnectionGone(PeerId{kNewServer});
  const auto welcomed = Tick(kNewestServer);
  ASSERT_FALSE(welcomed.empty());
  EXPECT_TRUE(welcomed[0].has_welcome());
}

TEST_F(NodeRestartTest, TheFormerProcessIsNoMemberAnyMore) {
  RegisterAll();
  LoseServer();
  RegisterServerAgain();
  const auto answer = Heartbeat(kServer);
  ASSERT_EQ(answer.size(), 1u);
  EXPECT_THAT(answer[0].error().status().message(), HasSubstr("not registered"));
}

TEST_F(NodeRestartTest, AServerThatWasOnlySlowGoesOn) {
  RegisterAll();
  LoseServer();
  Heartbeat(kServer);
  clock_.Advance(absl::Seconds(5));
  EXPECT_TRUE(RegisterServerAgain().empty());
  AnswerProbe(kServer);
  EXPECT_THAT(Others(kNewServer)[0].error().status().message(), HasSubstr("rank 0 is taken"));
}

TEST_F(NodeRestartTest, ARosterThatWasLostIsSentAgain) {
  RegisterAll();
  LoseServer();
  const uint64_t epoch = state_->members().epoch();
  RegisterServerAgain();
  wire::Header behind = HeaderOf(kWorker0);
  behind.mutable_heartbeat();
  behind.set_membership_epoch(epoch);
  EXPECT_EQ(Tell(kWorker0, behind).size(), 2u);
  behind.set_membership_epoch(state_->members().epoch());
  EXPECT_EQ(Tell(kWorker0, behind).size(), 1u);
}

TEST_F(NodeRestartTest, TheJobFailsIfNobodyComes) {
  RegisterAll();
  LoseServer();
  for (int i = 0; i < 13; ++i) {
    clock_.Advance(absl::Seconds(5));
    Heartbeat(kWorker0);
    Heartbeat(kWorker1);
    Tick(kWorker0);
  }
  EXPECT_EQ(state_->phase(), Phase::kFailed);
  EXPECT_THAT(std::string(state_->result().message()),
              HasSubstr("no new process took its place within 1m"));
}

TEST_F(NodeRestartTest, AServerThatLeavesMayComeBackToo) {
  RegisterAll();
  Goodbye(kServer);
  EXPECT_EQ(state_->phase(), Phase::kRunning);
  EXPECT_EQ(RegisterServerAgain().size(), 2u);
}

TEST_F(NodeRestartTest, AnotherProcessTakesALostWorkersPlaceAndLearnsSo) {
  RegisterAll();
  LoseWorker1();
  EXPECT_EQ(state_->phase(), Phase::kRunning);
  const auto answer = RegisterWorker1Again();
  ASSERT_EQ(answer.size(), 2u);
  EXPECT_EQ(answer[0].welcome().rank(), 1u);
  EXPECT_EQ(answer[0].welcome().restarts(), 1u);
  ASSERT_EQ(Others(kServer).size(), 3u) << "an echo, its roster and the new one";
  EXPECT_EQ(Others(kServer)[2].roster().nodes(2).incarnation(), kNewWorker);
}

TEST_F(NodeRestartTest, AServerAndAWorkerThatAreSilentTogetherGoOnWhereTheyWere) {
  RegisterAll();
  for (int i = 0; i < 5; ++i) {
    clock_.Advance(absl::Seconds(3));
    Heartbeat(kWorker0);
    Tick(kWorker0);
  }
  EXPECT_EQ(state_->members().LiveMembers().size(), 1u);
  EXPECT_EQ(state_->phase(), Phase::kRunning) << "nobody has lost its memory";
  Heartbeat(kServer);
  Heartbeat(kWorker1);
  Tick(kWorker0);
  EXPECT_EQ(state_->members().LiveMembers().size(), 3u);
  EXPECT_EQ(state_->phase(), Phase::kRunning);
}

TEST_F(NodeRestartTest, ASilentWorkerStillHasWhatANewServerLacks) {
  RegisterAll();
  LoseWorker1();
  state_->ConnectionGone(PeerId{kServer});
  RegisterServerAgain();
  EXPECT_EQ(state_->phase(), Phase::kRunning);
  Heartbeat(kWorker1);
  SaySaved(state_->members().epoch(), kWorker0);
  SaySaved(state_->members().epoch(), kWorker1);
  state_->ConnectionGone(PeerId{kWorker1});
  RegisterWorker1Again();
  EXPECT_EQ(state_->phase(), Phase::kRunning) << "it had sent it again";
}

TEST_F(NodeRestartTest, AServerAndAWorkerThatAreBothReplacedEndTheJobWhoeverComesFirst) {
  for (const bool worker_comes_first : {false, true}) {
    MakeState();
    RegisterAll();
    LoseWorker1();
    state_->ConnectionGone(PeerId{kServer});
    if (worker_comes_first) RegisterWorker1Again();
    EXPECT_EQ(state_->phase(), Phase::kRunning) << "the server may still be heard";
    RegisterServerAgain();
    if (!worker_comes_first) RegisterWorker1Again();
    EXPECT_EQ(state_->phase(), Phase::kFailed);
    EXPECT_THAT(std::string(state_->result().message()), HasSubstr("had not sent server 0"));
  }
}

TEST_F(NodeRestartTest, AWorkerComesBackOnceOthersHaveSentAServerWhatItLacks) {
  RegisterAll();
  state_->ConnectionGone(PeerId{kServer});
  RegisterServerAgain();
  SaySaved(state_->members().epoch(), kWorker1);
  state_->ConnectionGone(PeerId{kWorker1});
  EXPECT_TRUE(RegisterWorker1Again().empty());
  SaySaved(state_->members().epoch() - 1, kWorker0);  // before the server's new process
  EXPECT_TRUE(Others(kNewWorker).empty());
  SaySaved(state_->members().epoch(), kWorker0);
  ASSERT_FALSE(Others(kNewWorker).empty());
  EXPECT_TRUE(Others(kNewWorker)[0].has_welcome());
}

TEST_F(NodeRestartTest, AWorkerThatIsReplacedBeforeItHasDoneSoEndsTheJob) {
  RegisterAll();
  state_->ConnectionGone(PeerId{kServer});
  RegisterServerAgain();
  state_->ConnectionGone(PeerId{kWorker1});
  EXPECT_EQ(state_->phase(), Phase::kRunning);
  RegisterWorker1Again();
  EXPECT_EQ(state_->phase(), Phase::kFailed);
  EXPECT_THAT(std::string(state_->result().message()), HasSubstr("had not sent server 0"));
}

TEST_F(NodeRestartTest, AWorkersNewProcessWaitsForAWordOfEachServer) {
  RegisterAll();
  LoseWorker1();
  EXPECT_TRUE(RegisterWorker1Again(/*yes=*/false).empty());
  ASSERT_EQ(Others(kServer).size(), 1u) << "is it still there?";
  Heartbeat(kServer);
  EXPECT_TRUE(Others(kNewWorker).empty()) << "that may be older than its death";
  AnswerProbe(kServer);
  ASSERT_FALSE(Others(kNewWorker).empty());
  EXPECT_TRUE(Others(kNewWorker)[0].has_welcome());
}

TEST_F(NodeRestartTest, APlaceIsNotGivenUpWhileAProcessThatLivesWaitsForIt) {
  RegisterAll();
  state_->ConnectionGone(PeerId{kServer});
  RegisterServerAgain();
  SaySaved(state_->members().epoch(), kWorker1);
  const auto let_pass = [&](absl::Duration time, bool waits) {
    for (; time > absl::ZeroDuration(); time -= absl::Seconds(5)) {
      clock_.Advance(absl::Seconds(5));
      for (const uint64_t node : {kNewServer, kWorker0}) Heartbeat(node);
      if (waits) RegisterWorker1Again();  // in vain: worker 0 has not sent the server what it lacks
      Tick(kNewServer);
    }
  };
  let_pass(absl::Seconds(90), /*waits=*/true);
  EXPECT_EQ(state_->phase(), Phase::kRunning);
  let_pass(absl::Seconds(20), /*waits=*/false);
  EXPECT_EQ(state_->phase(), Phase::kFailed);
  EXPECT_THAT(std::string(state_->result().message()), HasSubstr("no new process took its place"));
}

TEST_F(NodeRestartTest, AProcessThatDiesWhileItWaitsTakesNoPlace) {
  RegisterAll();
  LoseWorker1();
  RegisterWorker1Again(/*yes=*/false);
  for (int i = 0; i < 4; ++i) {
    clock_.Advance(absl::Seconds(3));
    for (const uint64_t node : {kServer, kWorker0}) Heartbeat(node);
    Tick(kServer);
  }
  AnswerProbe(kServer);
  EXPECT_TRUE(Others(kNewWorker).empty());
  EXPECT_EQ(RegisterWorker1Again().size(), 2u);
}

TEST_F(NodeRestartTest, TwoWorkersMayBeGoneTogether) {
  RegisterAll();
  LoseWorker1();
  state_->ConnectionGone(PeerId{kWorker0});
  EXPECT_EQ(RegisterWorker1Again().size(), 2u);
  EXPECT_EQ(state_->phase(), Phase::kRunning);
}

TEST_F(NodeRestartTest, ASnapshotOfAnEarlierJobIsRefused) {
  const auto answer = RegisterServerAgain();
  ASSERT_EQ(answer.size(), 1u);
  EXPECT_THAT(answer[0].error().status().message(), HasSubstr("--snapshot_dir"));
}

}  // namespace
}  // namespace slimps
