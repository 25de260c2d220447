#include "scheduler/scheduler_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "compress/policy/measured_rounds.h"
#include "proto/base/clock.h"
#include "proto/base/hash.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;
using Phase = SchedulerState::Phase;

// Node n is peer n and has incarnation n. 1 is the server, 2 and 3 are workers 0 and 1.
constexpr uint64_t kServer = 1;
constexpr uint64_t kWorker0 = 2;
constexpr uint64_t kWorker1 = 3;

class SchedulerStateTest : public testing::Test {
 protected:
  static wire::Header HeaderOf(uint64_t node) {
    wire::Header header;
    header.set_job_id("job");
    header.set_incarnation(node);
    header.set_request_id(next_request_++);
    header.mutable_sender()->set_role(node == kServer ? wire::SERVER : wire::WORKER);
    return header;
  }

  // The messages that `node` got for it.
  std::vector<wire::Header> Tell(uint64_t node, const wire::Header& header) {
    return Sort(state_.Handle(PeerId{node}, header, clock_.Now()), node);
  }
  std::vector<wire::Header> Tick(uint64_t node) { return Sort(state_.Tick(clock_.Now()), node); }
  std::vector<wire::Header> Register(uint64_t node) {
    wire::Header header = HeaderOf(node);
    header.mutable_register_()->set_role(node == kServer ? wire::SERVER : wire::WORKER);
    header.mutable_register_()->set_wanted_rank(-1);
    header.mutable_register_()->set_num_workers(2);
    header.mutable_register_()->set_num_servers(1);
    header.mutable_register_()->set_host("alpha");
    header.mutable_register_()->set_pid(node);
    header.mutable_register_()->add_endpoints("tcp://127.0.0.1:1");
    return Tell(node, header);
  }
  std::vector<wire::Header> Heartbeat(uint64_t node) {
    wire::Header header = HeaderOf(node);
    header.mutable_heartbeat()->set_sequence(5);
    return Tell(node, header);
  }
  std::vector<wire::Header> Goodbye(uint64_t node) {
    wire::Header header = HeaderOf(node);
    header.mutable_goodbye();
    return Tell(node, header);
  }
  void RegisterAll() {
    for (const uint64_t node : {kServer, kWorker0, kWorker1}) Register(node);
    ASSERT_EQ(state_.phase(), Phase::kRunning);
    others_.clear();
  }
  // Until it has been quiet for long enough after the last goodbye.
  void LetItBeQuiet() {
    clock_.Advance(absl::Milliseconds(300));
    state_.Tick(clock_.Now());
  }
  // What others than the addressed node got in the last step.
  std::vector<wire::Header> Others(uint64_t node) { return Of(others_, node); }

  FakeClock clock_;
  SchedulerState state_{{.job_id = "job",
                         .num_workers = 2,
                         .num_servers = 1,
                         .heartbeat_interval = absl::Seconds(1),
                         .heartbeat_timeout = absl::Seconds(10),
                         .roster_timeout = absl::Seconds(60),
                         .shutdown_grace = absl::Seconds(5)},
                        clock_.Now()};

 private:
  static std::vector<wire::Header> Of(const SchedulerState::Outbox& outbox, uint64_t node) {
    std::vector<wire::Header> headers;
    for (const auto& outgoing : outbox) {
      if (outgoing.to == PeerId{node}) headers.push_back(outgoing.header);
    }
    return headers;
  }
  std::vector<wire::Header> Sort(SchedulerState::Outbox outbox, uint64_t node) {
    others_ = outbox;
    return Of(outbox, node);
  }
  static inline uint64_t next_request_ = 100;
  SchedulerState::Outbox others_;
};

TEST_F(SchedulerStateTest, RegisterIsAnsweredWithRankIntervalsAndRosterSoFar) {
  const auto answer = Register(kWorker0);
  ASSERT_EQ(answer.size(), 2u);
  EXPECT_EQ(answer[0].welcome().rank(), 0u);
  EXPECT_EQ(answer[0].welcome().heartbeat_interval_ms(), 1000u);
  EXPECT_EQ(answer[0].welcome().heartbeat_timeout_ms(), 10000u);
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
  EXPECT_EQ(state_.phase(), Phase::kRunning);
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
  EXPECT_EQ(state_.phase(), Phase::kFailed);
  EXPECT_THAT(std::string(state_.result().message()), HasSubstr("silent for over 10s"));
}

TEST_F(SchedulerStateTest, AFailedJobIsDoneWhenTheRestHasLeft) {
  RegisterAll();
  wire::Header error = HeaderOf(kWorker1);
  error.mutable_error()->mutable_status()->set_code(3);
  error.mutable_error()->mutable_status()->set_message("NaN in key s:w");
  Tell(kWorker1, error);
  EXPECT_EQ(state_.phase(), Phase::kFailed);
  EXPECT_THAT(std::string(state_.result().message()), HasSubstr("worker 1"));
  EXPECT_THAT(std::string(state_.result().message()), HasSubstr("NaN in key s:w"));
  ASSERT_EQ(Others(kServer).size(), 2u);
  EXPECT_THAT(Others(kServer)[0].node_down().reason(), HasSubstr("NaN in key s:w"));
  Goodbye(kServer);
  EXPECT_EQ(state_.phase(), Phase::kFailed);
  LetItBeQuiet();
  EXPECT_EQ(state_.phase(), Phase::kFailed);
  Goodbye(kWorker0);
  LetItBeQuiet();
  EXPECT_EQ(state_.phase(), Phase::kDone);
}

TEST_F(SchedulerStateTest, AFailedJobIsDoneWhenTheGraceIsOver) {
  RegisterAll();
  state_.Abort(absl::CancelledError("stopped"), clock_.Now());
  EXPECT_EQ(state_.phase(), Phase::kFailed);
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Tick(kServer).size(), 1u);  // told again: the first may be lost
  clock_.Advance(absl::Seconds(4));
  Tick(kServer);
  EXPECT_EQ(state_.phase(), Phase::kDone);
  EXPECT_EQ(state_.result().message(), "stopped");
}

TEST_F(SchedulerStateTest, TheLastWorkersGoodbyeShutsTheServersDownInOrder) {
  RegisterAll();
  EXPECT_EQ(Goodbye(kWorker0)[0].body_case(), wire::Header::kAck);
  EXPECT_TRUE(Others(kServer).empty());
  Goodbye(kWorker1);
  ASSERT_EQ(Others(kServer).size(), 1u);
  EXPECT_EQ(Others(kServer)[0].shutdown().reason().code(), 0u);
  EXPECT_EQ(state_.phase(), Phase::kEnding);
  EXPECT_EQ(Goodbye(kServer)[0].body_case(), wire::Header::kAck);
  LetItBeQuiet();
  EXPECT_EQ(state_.phase(), Phase::kDone);
  EXPECT_TRUE(state_.result().ok());
}

// An acknowledgement sent right before the scheduler ended was lost with its connection, and the
// node that waited for it failed a job that had gone well.
TEST_F(SchedulerStateTest, TheEndWaitsUntilNoGoodbyeIsRepeated) {
  RegisterAll();
  for (const uint64_t node : {kWorker0, kWorker1, kServer}) Goodbye(node);
  clock_.Advance(absl::Milliseconds(299));
  Tick(kServer);
  EXPECT_EQ(state_.phase(), Phase::kEnding);
  EXPECT_EQ(Goodbye(kServer)[0].body_case(), wire::Header::kAck);
  clock_.Advance(absl::Milliseconds(299));
  Tick(kServer);
  EXPECT_EQ(state_.phase(), Phase::kEnding);
  clock_.Advance(absl::Milliseconds(1));
  Tick(kServer);
  EXPECT_EQ(state_.phase(), Phase::kDone);
}

TEST_F(SchedulerStateTest, ARepeatedGoodbyeIsAcknowledgedAgain) {
  RegisterAll();
  Goodbye(kWorker0);
  const auto again = Goodbye(kWorker0);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].body_case(), wire::Header::kAck);
  EXPECT_EQ(state_.phase(), Phase::kRunning);
}

TEST_F(SchedulerStateTest, AServerThatIsGoneDoesNotHoldTheEndForEver) {
  RegisterAll();
  Goodbye(kWorker0);
  Goodbye(kWorker1);
  clock_.Advance(absl::Seconds(5));
  Tick(kServer);
  EXPECT_EQ(state_.phase(), Phase::kDone);
  EXPECT_TRUE(state_.result().ok());
}

TEST_F(SchedulerStateTest, AServerThatLeavesEarlyFailsTheJob) {
  RegisterAll();
  Goodbye(kServer);
  EXPECT_EQ(state_.phase(), Phase::kFailed);
  ASSERT_EQ(Others(kWorker0).size(), 2u);
  EXPECT_THAT(Others(kWorker0)[0].node_down().reason(),
              HasSubstr("left while workers are in the job"));
}

TEST_F(SchedulerStateTest, AnIncompleteRosterFailsSayingWhoIsMissing) {
  Register(kWorker0);
  for (int i = 0; i < 60; ++i) {
    EXPECT_EQ(state_.phase(), Phase::kForming);
    clock_.Advance(absl::Seconds(1));
    Heartbeat(kWorker0);
    if (i < 59) Tick(kWorker0);
  }
  const auto told = Tick(kWorker0);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].shutdown().reason().message(),
            "roster incomplete after 1m: waiting for 1 server and 1 worker");
  EXPECT_EQ(state_.result().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(SchedulerStateTest, ANodeThatFallsSilentWhileFormingLosesItsPlace) {
  Register(kWorker0);
  clock_.Advance(absl::Seconds(11));
  Tick(kWorker0);
  EXPECT_EQ(state_.phase(), Phase::kForming);
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
  state_.Abort(absl::CancelledError("stopped"), clock_.Now());
  EXPECT_THAT(Register(99)[0].error().status().message(), HasSubstr("the job is over: stopped"));
}

TEST_F(SchedulerStateTest, BarriersAreReleasedToThoseWhoCame) {
  RegisterAll();
  wire::Header barrier = HeaderOf(kWorker0);
  barrier.mutable_barrier()->set_name("b");
  barrier.mutable_barrier()->set_ticket(1);
  barrier.mutable_barrier()->set_group(wire::WORKER);
  EXPECT_TRUE(Tell(kWorker0, barrier).empty());
  barrier.set_incarnation(kWorker1);
  EXPECT_EQ(Tell(kWorker1, barrier)[0].barrier_release().name(), "b");
  EXPECT_EQ(Others(kWorker0).size(), 1u);
  EXPECT_TRUE(Others(kServer).empty());
}

TEST_F(SchedulerStateTest, ABarrierBeforeTheRosterIsCompleteIsRefused) {
  Register(kWorker0);
  wire::Header barrier = HeaderOf(kWorker0);
  barrier.mutable_barrier()->set_name("b");
  barrier.mutable_barrier()->set_ticket(1);
  EXPECT_EQ(Tell(kWorker0, barrier)[0].barrier_release().status().code(), 9u);
}

TEST_F(SchedulerStateTest, LeavingReleasesBarriersAndDeclarationsThatWaitForTheLeaver) {
  RegisterAll();
  wire::Header barrier = HeaderOf(kWorker0);
  barrier.mutable_barrier()->set_name("b");
  barrier.mutable_barrier()->set_ticket(1);
  barrier.mutable_barrier()->set_group(wire::WORKER);
  Tell(kWorker0, barrier);
  wire::Header declare = HeaderOf(kWorker0);
  declare.mutable_declare_keys()->set_partition_elements(10);
  wire::KeyInfo* key = declare.mutable_declare_keys()->add_keys();
  key->set_name("s:w");
  key->set_key(HashText("s:w"));
  key->add_shape(3);
  EXPECT_TRUE(Tell(kWorker0, declare).empty());
  Goodbye(kWorker1);
  const auto told = Others(kWorker0);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].placement().status().code(), 9u);
  EXPECT_EQ(told[0].request_id(), declare.request_id());
  EXPECT_EQ(told[1].barrier_release().status().code(), 0u);
}

TEST_F(SchedulerStateTest, APlacementAnswersEveryWorkersDeclaration) {
  RegisterAll();
  wire::Header declare = HeaderOf(kWorker0);
  declare.mutable_declare_keys()->set_partition_elements(10);
  wire::KeyInfo* key = declare.mutable_declare_keys()->add_keys();
  key->set_name("s:w");
  key->set_key(HashText("s:w"));
  key->add_shape(25);
  EXPECT_TRUE(Tell(kWorker0, declare).empty());
  wire::Header from_other = declare;
  from_other.set_incarnation(kWorker1);
  from_other.set_request_id(7);
  const auto answer = Tell(kWorker1, from_other);
  ASSERT_EQ(answer.size(), 1u);
  EXPECT_EQ(answer[0].request_id(), 7u);
  EXPECT_EQ(answer[0].placement().keys(0).partitions_size(), 3);
  ASSERT_EQ(Others(kWorker0).size(), 1u);
  EXPECT_EQ(Others(kWorker0)[0].request_id(), declare.request_id());
  declare.set_incarnation(kServer);
  EXPECT_THAT(Tell(kServer, declare)[0].error().status().message(), HasSubstr("only workers"));
}

TEST_F(SchedulerStateTest, DeclarationsThatWaitAreBounded) {
  RegisterAll();
  for (int i = 0; i < 64; ++i) {
    wire::Header declare = HeaderOf(kWorker0);
    declare.mutable_declare_keys()->set_partition_elements(10);
    wire::KeyInfo* key = declare.mutable_declare_keys()->add_keys();
    key->set_name("s:w");
    key->set_key(HashText("s:w"));
    key->add_shape(25);
    EXPECT_TRUE(Tell(kWorker0, declare).empty());
  }
  wire::Header declare = HeaderOf(kWorker0);
  declare.mutable_declare_keys()->set_partition_elements(10);
  EXPECT_EQ(Tell(kWorker0, declare)[0].error().status().code(), 8u);
}

TEST_F(SchedulerStateTest, TheThresholdDecisionGoesToAllWorkersOnce) {
  RegisterAll();
  wire::Header report = HeaderOf(kWorker0);
  report.mutable_threshold_report()->set_codec("1bit");
  report.mutable_threshold_report()->set_ready_round(21);
  EXPECT_EQ(Tell(kWorker0, report)[0].body_case(), wire::Header::kAck);
  report.set_incarnation(kWorker1);
  const auto told = Tell(kWorker1, report);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1].codec_map().from_round(), 22u);
  EXPECT_EQ(Others(kWorker0).size(), 1u);
  EXPECT_TRUE(Others(kServer).empty());
  const auto again = Tell(kWorker1, report);  // the broadcast was lost
  EXPECT_EQ(again[1].codec_map().version(), 1u);
  EXPECT_TRUE(Others(kWorker0).empty());
}

TEST_F(SchedulerStateTest, LaterThresholdDecisionsGoToAllWorkersAndAgainToWhoeverMissedThem) {
  RegisterAll();
  wire::Header report = HeaderOf(kWorker0);
  report.mutable_threshold_report()->set_codec("1bit");
  report.mutable_threshold_report()->set_ready_round(21);
  Tell(kWorker0, report);
  report.set_incarnation(kWorker1);
  Tell(kWorker1, report);
  report.mutable_threshold_report()->set_generation(3);
  report.mutable_threshold_report()->set_ready_round(34);
  EXPECT_EQ(Tell(kWorker1, report).size(),
            1u);  // only the acknowledgement: worker 0 has not reported
  EXPECT_EQ(Tell(kWorker1, report).size(), 1u);
  report.set_incarnation(kWorker0);
  const auto told = Tell(kWorker0, report);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1].codec_map().version(), 4u);
  EXPECT_EQ(told[1].codec_map().from_round(), 38u);
  ASSERT_EQ(Others(kWorker1).size(), 1u);
  EXPECT_EQ(Others(kWorker1)[0].codec_map().version(), 4u);
  EXPECT_TRUE(Others(kServer).empty());
  report.set_incarnation(kWorker1);
  const auto again = Tell(kWorker1, report);
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[1].codec_map().version(), 4u);
  EXPECT_TRUE(Others(kWorker0).empty());
}

TEST_F(SchedulerStateTest, AWorkerWhoseLastReportCameReleasesADecision) {
  RegisterAll();
  wire::Header report = HeaderOf(kWorker0);
  report.mutable_threshold_report()->set_codec("1bit");
  report.mutable_threshold_report()->set_ready_round(21);
  EXPECT_EQ(Tell(kWorker0, report).size(), 1u);
  wire::Header last = HeaderOf(kWorker1);
  last.mutable_threshold_report()->set_generation(MeasuredRounds::kLastGeneration);
  const auto told = Tell(kWorker1, last);
  ASSERT_EQ(told.size(), 2u);  // it is still in the job
  EXPECT_EQ(told[1].codec_map().version(), 1u);
  ASSERT_EQ(Others(kWorker0).size(), 1u);
  EXPECT_EQ(Others(kWorker0)[0].codec_map().version(), 1u);
}

}  // namespace
}  // namespace slimps
