// SPDX-License-Identifier: Apache-2.0
// What those who watch a job see of the scheduler's state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "scheduler/barrier.h"
#include "scheduler/decisions/threshold_decision.h"
#include "tests/scheduler/scheduler_state_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr NodePlace kFirst = {wire::WORKER, 0};
constexpr NodePlace kSecond = {wire::WORKER, 1};

TEST_F(SchedulerStateTest, TheViewHasWhoIsThereAndForHowLongItIsSilent) {
  Register(kWorker0);
  clock_.Advance(absl::Seconds(2));
  const JobView forming = state_->View(clock_.Now(), 0);
  EXPECT_EQ(JobView::Phase::kForming, forming.phase);
  EXPECT_EQ("job", forming.id);
  EXPECT_THAT(forming.nodes,
              ElementsAre(NodeView{
                  .place = kFirst, .host = "alpha", .pid = kWorker0, .unheard = absl::Seconds(2)}));
}

TEST_F(SchedulerStateTest, TheViewHasServersBeforeWorkersAndWhoHasLeft) {
  RegisterAll();
  const JobView running = state_->View(clock_.Now(), 0);
  EXPECT_EQ(JobView::Phase::kRunning, running.phase);
  ASSERT_THAT(running.nodes, SizeIs(3));
  EXPECT_EQ(NodePlace(wire::SERVER, 0), running.nodes[0].place);
  Goodbye(kWorker0);
  EXPECT_EQ(NodeView::State::kLeft, state_->View(clock_.Now(), 0).nodes[1].state);
}

TEST_F(SchedulerStateTest, OnlyTheNewestReportOfANodeIsKept) {
  SchedulerOptions options = options_;
  options.wants_reports = true;
  state_.emplace(options, clock_.Now());
  RegisterAll();
  for (int i = 0; i < 100; ++i) {
    for (const uint64_t node : {kServer, kWorker0}) {
      wire::Header header = HeaderOf(node);
      header.mutable_heartbeat()->set_report(absl::StrCat("report ", i));
      Tell(node, header);
    }
  }
  const std::vector<SchedulerState::Report> reports = state_->TakeReports();
  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_EQ("report 99", reports[0].bytes);
  EXPECT_THAT(state_->TakeReports(), IsEmpty());
}

TEST_F(SchedulerStateTest, TheViewOfAFailedJobSaysWhyAlsoAtItsEnd) {
  Register(kWorker0);
  state_->Abort(absl::CancelledError("stopped"), clock_.Now());
  clock_.Advance(absl::Seconds(60));
  Tick(kWorker0);
  const JobView view = state_->View(clock_.Now(), 0);
  EXPECT_EQ(JobView::Phase::kFailed, view.phase);
  EXPECT_THAT(view.why, testing::HasSubstr("stopped"));
}

TEST(BarrierViewTest, AnOpenBarrierSaysWhoHasNotCome) {
  BarrierTable barriers({.num_workers = 2, .num_servers = 1});
  wire::Barrier barrier;
  barrier.set_name("loss");
  barrier.set_group(wire::WORKER);
  barrier.set_ticket(3);
  barrier.set_purpose("the mean loss");
  barrier.add_values(1);
  ASSERT_TRUE(barriers.Arrive(kFirst, barrier).ok());
  EXPECT_THAT(barriers.Open(),
              ElementsAre(OpenBarrier{"loss", 3, "the mean loss", true, {kSecond}}));
  ASSERT_TRUE(barriers.Arrive(kSecond, barrier).ok());
  EXPECT_THAT(barriers.Open(), IsEmpty());
}

TEST(DecisionViewTest, WorkersThatHaveNotReportedAreNamedWhenOthersHave) {
  ThresholdDecision decision(2);
  EXPECT_THAT(decision.Unreported(), IsEmpty());
  wire::ThresholdReport report;
  ASSERT_TRUE(decision.Add(0, report).ok());
  EXPECT_THAT(decision.Unreported(), ElementsAre(1));
  ASSERT_TRUE(decision.Add(1, report).ok());
  EXPECT_THAT(decision.Unreported(), IsEmpty());
  report.set_generation(1);
  ASSERT_TRUE(decision.Add(1, report).ok());
  EXPECT_THAT(decision.Unreported(), ElementsAre(0));
  decision.Leave(0);
  EXPECT_THAT(decision.Unreported(), IsEmpty());
}

}  // namespace
}  // namespace slimps
