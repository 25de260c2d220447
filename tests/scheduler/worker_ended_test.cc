// SPDX-License-Identifier: Apache-2.0
// Workers whose processes have ended by themselves, as their launcher says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/scheduler/scheduler_state_fixture.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;
using Phase = SchedulerState::Phase;

class WorkerEndedTest : public SchedulerStateTest {
 protected:
  std::string Result() const { return std::string(state_->result().message()); }
};

TEST_F(WorkerEndedTest, AfterItsGoodbyeTheJobGoesOn) {
  RegisterAll();
  Goodbye(kWorker1);
  state_->WorkerEnded(1, kWorker1, clock_.Now());
  EXPECT_EQ(state_->phase(), Phase::kRunning);
  Goodbye(kWorker0);
  state_->WorkerEnded(0, kWorker0, clock_.Now());
  EXPECT_EQ(state_->phase(), Phase::kEnding);
  EXPECT_TRUE(state_->result().ok());
}

TEST_F(WorkerEndedTest, WithoutAGoodbyeItIsNamedAtOnceWithTheCause) {
  RegisterAll();
  state_->WorkerEnded(1, kWorker1, clock_.Now());
  EXPECT_EQ(state_->phase(), Phase::kFailed);
  EXPECT_THAT(Result(), HasSubstr("worker 1 (host alpha, pid 3) has ended without closing its "
                                  "store: by os._exit"));
}

TEST_F(WorkerEndedTest, AnotherProcessMayHaveItsRank) {
  RegisterAll();
  state_->WorkerEnded(1, kWorker0, clock_.Now());
  EXPECT_EQ(state_->phase(), Phase::kRunning);
}

TEST_F(WorkerEndedTest, BeforeItJoinedNobodyWaitsForIt) {
  Register(kWorker0);
  state_->WorkerEnded(1, kWorker1, clock_.Now());
  EXPECT_EQ(state_->phase(), Phase::kFailed);
  EXPECT_THAT(Result(), HasSubstr("worker 1 has ended before all nodes had joined: does its "
                                  "program make a store"));
}

TEST_F(WorkerEndedTest, AJobThatHasFailedKeepsItsReason) {
  RegisterAll();
  state_->Abort(absl::CancelledError("enough"), clock_.Now());
  state_->WorkerEnded(1, kWorker1, clock_.Now());
  EXPECT_EQ(Result(), "enough");
}

}  // namespace
}  // namespace slimps
