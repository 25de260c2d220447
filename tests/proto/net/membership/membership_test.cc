// SPDX-License-Identifier: Apache-2.0
#include "proto/net/membership/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <memory>
#include <stop_token>
#include <thread>

#include "proto/limits.h"
#include "tests/proto/base/wait_until.h"
#include "tests/proto/net/membership/membership_fixture.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

Membership::BarrierVisit Sum(const std::string& name, std::vector<double> values,
                             const std::string& purpose = "") {
  return {.name = name, .group = wire::WORKER, .purpose = purpose, .values = std::move(values)};
}

TEST_F(MembershipTest, NodesJoinWithRanksAndTheWholeRoster) {
  TestScheduler scheduler(network_, Scheduler());
  JoinAll();
  EXPECT_EQ(worker(1).rank(), 1u);
  const wire::Roster roster = worker(0).roster();
  ASSERT_EQ(roster.nodes_size(), 3);
  EXPECT_EQ(roster.nodes(0).endpoints(0), "inproc://server");
  const wire::Header header = worker(1).MakeHeader();
  EXPECT_EQ(header.job_id(), "slimps");
  EXPECT_EQ(header.sender().role(), wire::WORKER);
  EXPECT_EQ(header.sender().rank(), 1u);
  EXPECT_EQ(header.membership_epoch(), roster.epoch());
  // Servers recognise workers by their incarnations. Workers do not need incarnations.
  const wire::Roster of_server = server().roster();
  EXPECT_EQ(IncarnationOf(header), IncarnationOf(of_server.nodes(2)));
  EXPECT_FALSE(IncarnationOf(of_server.nodes(0)).is_set());
  for (const wire::RosterEntry& entry : roster.nodes()) {
    EXPECT_FALSE(IncarnationOf(entry).is_set()) << entry.DebugString();
  }
}

TEST_F(MembershipTest, AJobEndsInOrder) {
  TestScheduler scheduler(network_, Scheduler());
  JoinAll();
  EXPECT_TRUE(worker(0).Leave().ok());
  EXPECT_FALSE(server().down().has_value());
  EXPECT_TRUE(worker(1).Leave().ok());
  EXPECT_EQ(nodes_[0]->AwaitDown(), absl::OkStatus());
  EXPECT_TRUE(server().Leave().ok());
  EXPECT_TRUE(scheduler.AwaitDone());
  EXPECT_TRUE(scheduler.service().result().ok());
}

TEST_F(MembershipTest, BarriersHoldAndSum) {
  TestScheduler scheduler(network_, Scheduler());
  JoinAll();
  for (int visit = 0; visit < 3; ++visit) {
    std::thread other([&] {
      const auto sums = worker(1).BarrierSum(Sum("b", {1.0, 20.0}), kLong);
      ASSERT_TRUE(sums.ok()) << sums.status();
      EXPECT_EQ(sums->at(1), 30.0);
    });
    const auto sums = worker(0).BarrierSum(Sum("b", {2.0, 10.0}), kLong);
    ASSERT_TRUE(sums.ok()) << sums.status();
    EXPECT_EQ(sums->at(0), 3.0);
    other.join();
  }
  // The call is refused before any worker waits in the barrier.
  EXPECT_EQ(worker(0).BarrierSum(Sum("b", {1, NAN}), kLong).status().code(),
            absl::StatusCode::kInvalidArgument);
  const absl::Status late = worker(0).Barrier("alone", wire::WORKER, absl::Milliseconds(20));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), HasSubstr("\"alone\""));
}

TEST_F(MembershipTest, AfterASumThatTimedOutTheNextOneIsOfTheSameVisits) {
  TestScheduler scheduler(network_, Scheduler());
  JoinAll();
  // Worker 0 makes two visits more than worker 1, and gives both up.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const absl::Status alone = worker(0).BarrierSum(Sum("b", {1}), absl::Milliseconds(20)).status();
    EXPECT_EQ(alone.code(), absl::StatusCode::kDeadlineExceeded) << alone;
    EXPECT_THAT(std::string(alone.message()), HasSubstr("worker 0 waited 20ms for worker 1"));
  }
  const absl::Status late = worker(1).BarrierSum(Sum("b", {10}), kLong).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("worker 1 comes too late"));
  EXPECT_THAT(std::string(late.message()), HasSubstr("worker 0 waited 20ms"));
  std::thread other([&] {
    EXPECT_THAT(worker(1).BarrierSum(Sum("b", {20}), kLong).value(), testing::ElementsAre(22));
  });
  EXPECT_THAT(worker(0).BarrierSum(Sum("b", {2}), kLong).value(), testing::ElementsAre(22));
  other.join();
}

TEST_F(MembershipTest, SumsForDifferentPurposesAreAnErrorThatNamesBoth) {
  TestScheduler scheduler(network_, Scheduler());
  JoinAll();
  std::thread other([&] {
    const absl::Status status = worker(1).BarrierSum(Sum("b", {1}, "the loss"), kLong).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  });
  const absl::Status status =
      worker(0).BarrierSum(Sum("b", {1}, "saving optimizer states"), kLong).status();
  other.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker 1 comes for the loss"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("worker 0 comes: for saving optimizer states"));
}

TEST_F(MembershipTest, ANodeThatVanishesIsNamedToTheOthers) {
  SchedulerOptions options = Scheduler();
  options.heartbeat_timeout = absl::Seconds(2);
  TestScheduler scheduler(network_, options);
  JoinAll();
  nodes_[2]->Vanish();
  for (const size_t node : {0, 1}) {
    const std::optional<absl::Status> down = nodes_[node]->AwaitDown();
    ASSERT_TRUE(down.has_value());
    EXPECT_EQ(down->code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(down->message()), HasSubstr("worker 1 (host alpha"));
  }
  EXPECT_FALSE(worker(0).Barrier("b", wire::WORKER, kLong).ok());
  EXPECT_TRUE(scheduler.AwaitDone());
  EXPECT_THAT(std::string(scheduler.service().result().message()), HasSubstr("worker 1"));
}

TEST_F(MembershipTest, AReportedFailureEndsTheJobForEveryone) {
  TestScheduler scheduler(network_, Scheduler());
  JoinAll();
  worker(0).ReportFailure(absl::InvalidArgumentError("NaN in key s:w"));
  nodes_[2]->Listen();
  for (const size_t node : {0, 2}) {
    const std::optional<absl::Status> down = nodes_[node]->AwaitDown();
    ASSERT_TRUE(down.has_value());
    EXPECT_THAT(std::string(down->message()), HasSubstr("NaN in key s:w"));
  }
  EXPECT_TRUE(scheduler.AwaitDone());
}

TEST_F(MembershipTest, WhoFailedMayGoOnceTheSchedulerKnowsWhy) {
  TestScheduler scheduler(network_, Scheduler());
  JoinAll();
  EXPECT_TRUE(worker(0).AwaitFailureReported(kLong)) << "nothing to report";
  worker(0).ReportFailure(absl::InternalError("disk full"));
  EXPECT_TRUE(worker(0).AwaitFailureReported(kLong));
  EXPECT_THAT(std::string(scheduler.service().result().message()), HasSubstr("disk full"));
  worker(1).ReportFailure(absl::InternalError("so am I"));
  EXPECT_TRUE(worker(1).AwaitFailureReported(kLong)) << "the job is over already";
}

TEST_F(MembershipTest, AReportThatNobodyTakesIsGivenUpAfterTheTimeout) {
  TestScheduler scheduler(network_, Scheduler());
  JoinAll();
  nodes_[1]->Vanish();
  worker(0).ReportFailure(absl::InternalError("disk full"));
  EXPECT_FALSE(worker(0).AwaitFailureReported(absl::Milliseconds(20)));
}

TEST_F(MembershipTest, WhatNoMessageCanCarryEndsTheJoinAtOnce) {
  TestScheduler scheduler(network_, Scheduler());
  MembershipOptions options;
  options.role = wire::WORKER;
  options.scheduler_address = "inproc://scheduler";
  options.num_workers = 2;
  options.join_timeout = absl::InfiniteDuration();
  options.job_id = "caf\xe9";
  TestNode job(network_, options);
  const absl::Status bad_job = job.membership().Join();
  EXPECT_EQ(bad_job.code(), absl::StatusCode::kInvalidArgument) << bad_job;
  EXPECT_THAT(std::string(bad_job.message()), HasSubstr("job_id: expected UTF-8, got"));
  options.job_id = "slimps";
  options.host = "caf\xe9";
  TestNode host(network_, options);
  const absl::Status bad_host = host.membership().Join();
  EXPECT_EQ(bad_host.code(), absl::StatusCode::kInvalidArgument) << bad_host;
  EXPECT_THAT(std::string(bad_host.message()), HasSubstr("host: expected UTF-8, got"));
}

TEST_F(MembershipTest, ABarrierThatNoMessageCanCarryFailsAtOnce) {
  TestScheduler scheduler(network_, Scheduler());
  JoinAll();
  const absl::Status status = worker(0).Barrier("caf\xe9", wire::WORKER, absl::InfiniteDuration());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("name: expected UTF-8"));
}

TEST_F(MembershipTest, ALostSchedulerIsNoticed) {
  SchedulerOptions options = Scheduler();
  options.heartbeat_timeout = absl::Seconds(2);
  TestScheduler scheduler(network_, options);
  JoinAll();
  scheduler.Stop();
  const std::optional<absl::Status> down = nodes_[1]->AwaitDown();
  ASSERT_TRUE(down.has_value());
  EXPECT_THAT(std::string(down->message()), HasSubstr("inproc://scheduler has been silent"));
}

TEST_F(MembershipTest, ReportsAreMadeOnlyForASchedulerThatWantsThem) {
  for (const bool wants : {false, true}) {
    SchedulerOptions options = Scheduler();
    options.wants_reports = wants;
    network_ = std::make_shared<InProcessNetwork>();
    nodes_.clear();
    TestScheduler scheduler(network_, options);
    JoinAll();
    std::atomic<int> reports = 0, with_details = 0;
    worker(0).SetReporter([&](bool details) {
      ++reports;
      with_details += details;
      return std::string("a report");
    });
    const uint64_t before = nodes_[1]->messages_sent();
    ASSERT_TRUE(WaitUntil([&] { return nodes_[1]->messages_sent() >= before + 3; }));
    worker(0).Stop();  // the reporter's counters end here
    EXPECT_EQ(reports > 0, wants);
    EXPECT_EQ(with_details, 0) << "nobody has asked";
  }
}

TEST_F(MembershipTest, AHeartbeatGoesWithoutAReportThatIsTooLarge) {
  SchedulerOptions options = Scheduler();
  options.wants_reports = true;
  TestScheduler scheduler(network_, options);
  JoinAll();
  std::atomic<int> reports = 0;
  worker(0).SetReporter([&](bool) {
    ++reports;
    return std::string(kDefaultLimits.max_report_bytes + 1, 'x');
  });
  const uint64_t before = nodes_[1]->messages_sent();
  ASSERT_TRUE(WaitUntil([&] { return reports >= 3 && nodes_[1]->messages_sent() >= before + 3; }));
  EXPECT_FALSE(worker(0).down().has_value());
  worker(0).Stop();
}

TEST_F(MembershipTest, StopWaitsForTheHandlerThatTheHeartbeatRuns) {
  SchedulerOptions options = Scheduler();
  options.heartbeat_timeout = absl::Seconds(2);
  TestScheduler scheduler(network_, options);
  JoinAll();
  std::promise<void> entered, go;
  std::atomic<bool> told{false};
  worker(1).SetDownHandler([&](const absl::Status&) {
    entered.set_value();
    go.get_future().wait();
    worker(1).Stop();  // called from its own handler, Stop waits for nobody
    told = true;
  });
  scheduler.Stop();
  entered.get_future().wait();
  auto stopped = std::async(std::launch::async, [&] {
    worker(1).Stop();
    return told.load();
  });
  EXPECT_EQ(stopped.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  go.set_value();
  EXPECT_TRUE(stopped.get());
  worker(1).Stop();
}

TEST_F(MembershipTest, AfterStopNobodyIsTold) {
  TestScheduler scheduler(network_, Scheduler());
  JoinAll();
  bool told = false;
  worker(1).SetDownHandler([&](const absl::Status&) { told = true; });
  worker(1).Stop();
  scheduler.service().Abort(absl::CancelledError("over"));
  EXPECT_EQ(worker(1).Barrier("b", wire::WORKER, kLong), absl::CancelledError("over"));
  EXPECT_FALSE(told);
}

TEST_F(MembershipTest, ASchedulerThatIsNotThereIsNamed) {
  MembershipOptions options;
  options.role = wire::WORKER;
  options.scheduler_address = "inproc://nobody";
  options.join_timeout = absl::Milliseconds(50);
  TestNode node(network_, options);
  const absl::Status status = node.membership().Join();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(), "scheduler inproc://nobody did not answer within 50ms");
}

TEST_F(MembershipTest, JoiningIsStopped) {
  std::stop_source stop;
  MembershipOptions options;
  options.role = wire::WORKER;
  options.scheduler_address = "inproc://nobody";
  options.join_timeout = absl::Hours(1);
  options.stop = stop.get_token();
  TestNode waiting(network_, options);
  std::thread stopper([&stop] { stop.request_stop(); });
  absl::Status status = waiting.membership().Join();
  stopper.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(status.message(), "joining the job at scheduler inproc://nobody was stopped");
  TestNode late(network_, options);  // stopped before it began
  status = late.membership().Join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

TEST_F(MembershipTest, MissingNodesAreNamed) {
  SchedulerOptions options = Scheduler();
  options.roster_timeout = absl::Seconds(2);
  TestScheduler scheduler(network_, options);
  auto node = Node(wire::WORKER);
  const absl::Status status = node->membership().Join();
  EXPECT_THAT(std::string(status.message()), HasSubstr("roster incomplete after 2s"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("waiting for 1 server and"));
}

TEST_F(MembershipTest, ARefusedNodeLearnsWhy) {
  TestScheduler scheduler(network_, Scheduler());
  MembershipOptions options;
  options.role = wire::WORKER;
  options.scheduler_address = "inproc://scheduler";
  options.num_workers = 5;
  options.join_timeout = kLong;
  TestNode wrong_counts(network_, options);
  EXPECT_THAT(std::string(wrong_counts.membership().Join().message()), HasSubstr("5 workers"));
  options.num_workers = 2;
  options.job_id = "other";
  TestNode other_job(network_, options);
  EXPECT_THAT(std::string(other_job.membership().Join().message()), HasSubstr("runs another job"));
}

TEST_F(MembershipTest, VerbsOfTheSchedulerFromAnyoneElseAreDropped) {
  TestScheduler scheduler(network_, Scheduler());
  JoinAll();
  Message forged;
  forged.header = worker(0).MakeHeader();
  forged.header.mutable_shutdown();
  EXPECT_TRUE(worker(1).HandleMessage(PeerId{12345}, forged));
  EXPECT_FALSE(worker(1).down().has_value());
  forged.header.mutable_push();
  EXPECT_FALSE(worker(1).HandleMessage(PeerId{12345}, forged));
}

TEST_F(MembershipTest, AHandlerIsToldOnceEvenWhenItIsSetLate) {
  TestScheduler scheduler(network_, Scheduler());
  JoinAll();
  scheduler.service().Abort(absl::CancelledError("over"));
  EXPECT_EQ(worker(1).Barrier("b", wire::WORKER, kLong), absl::CancelledError("over"));
  std::vector<absl::Status> told;
  for (int i = 0; i < 2; ++i) {
    worker(1).SetDownHandler([&](absl::Status why) { told.push_back(std::move(why)); });
  }
  EXPECT_THAT(told, testing::ElementsAre(absl::CancelledError("over")));
}

}  // namespace
}  // namespace slimps
