// SPDX-License-Identifier: Apache-2.0
// Training with the backup model: a step computes while the round before it is under way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/trainer/train_job.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

// At each of `steps` steps, holds a round's weights back until the next step computes.
void ArriveDuringNextStep(Job::Worker* worker, size_t steps) {
  worker->store.AllowVersions(0);
  worker->model.before_compute = [worker, steps](size_t step) {
    worker->store.Record(absl::StrCat("compute ", step));
    if (step < steps) {
      worker->store.AllowVersions(step - 1);
    } else {
      worker->store.AllowAll();
    }
  };
}

// The order of events shows it: a round's weights pass only when the next step already computes. A
// loop that waited for them would run into its deadline.
TEST(BackupTraining, NextStepComputesWhileTheRoundIsUnderWay) {
  Job job(2, BackupOptions(2), 24, [](Job::Worker* worker) { ArriveDuringNextStep(worker, 6); });
  for (auto& worker : job.workers) {
    ASSERT_TRUE(worker.report.ok()) << worker.report.status();
    const std::vector<std::string> events = worker.store.events();
    for (int round = 1; round <= 5; ++round) {
      const size_t compute = IndexOf(events, absl::StrCat("compute ", round + 1));
      EXPECT_LT(IndexOf(events, absl::StrCat("push a ", round)), compute);
      EXPECT_LT(IndexOf(events, absl::StrCat("pull a ", round)), compute);
      EXPECT_GT(IndexOf(events, absl::StrCat("arrived a ", round)), compute);
    }
  }
}

TEST(BackupTraining, NoStepBeginsTwoRoundsAheadOfItsWeights) {
  Job job(2, BackupOptions(2), 24, [](Job::Worker* worker) { ArriveDuringNextStep(worker, 6); });
  for (auto& worker : job.workers) {
    const std::vector<std::string> events = worker.store.events();
    for (int step = 3; step <= 6; ++step) {
      const size_t compute = IndexOf(events, absl::StrCat("compute ", step));
      EXPECT_LT(IndexOf(events, absl::StrCat("arrived a ", step - 2)), compute);
      EXPECT_LT(IndexOf(events, absl::StrCat("arrived b ", step - 2)), compute);
    }
  }
}

// Here the weights arrive at once. The lag is still one round.
TEST(BackupTraining, EveryStepComputesOnTheGlobalWeightsOneRoundBackPlusItsOwnStep) {
  Job job(2, BackupOptions(2), 24);
  for (auto& worker : job.workers) {
    ASSERT_TRUE(worker.report.ok()) << worker.report.status();
    const FakeModel& model = worker.model;
    ASSERT_EQ(model.seen().size(), 6u);
    EXPECT_EQ(model.seen()[0], job.server.Read("a", 0));
    for (size_t i = 1; i < 6; ++i) {  // w_loc(i+1) = w_i - loc_lr * g_i, and w_i is version i-1
      const std::vector<float> global = job.server.Read("a", i - 1);
      for (size_t k = 0; k < 4; ++k) {
        EXPECT_FLOAT_EQ(model.seen()[i][k],
                        global[k] - static_cast<float>(kLr) * model.a_gradients()[i - 1][k]);
      }
    }
  }
}

TEST(BackupTraining, TheLocalStepFollowsTheServersSchedule) {
  TrainOptions options = BackupOptions(2);
  options.optimizer.mutable_schedule()->set_kind(wire::LearningRateSchedule::LINEAR);
  Job job(2, options, 24);
  const FakeModel& model = job.workers[0].model;
  ASSERT_EQ(model.seen().size(), 6u);
  for (size_t i = 1; i < 6; ++i) {
    const float rate = static_cast<float>(kLr * (1 - static_cast<double>(i - 1) / 6));
    const std::vector<float> global = job.server.Read("a", i - 1);
    for (size_t k = 0; k < 4; ++k) {
      EXPECT_FLOAT_EQ(model.seen()[i][k], global[k] - rate * model.a_gradients()[i - 1][k]);
    }
  }
}

TEST(BackupTraining, WeightsDoNotDependOnWhenTheyArrive) {
  Job early(2, BackupOptions(2), 24);
  Job late(2, BackupOptions(2), 24, [](Job::Worker* worker) { ArriveDuringNextStep(worker, 6); });
  Job mixed(2, BackupOptions(2), 24, [](Job::Worker* worker) {
    if (worker->store.rank() == 1) ArriveDuringNextStep(worker, 6);
  });
  ASSERT_TRUE(early.workers[0].report.ok());
  EXPECT_EQ(early.workers[0].model.a(), late.workers[0].model.a());
  EXPECT_EQ(early.workers[0].model.a(), mixed.workers[0].model.a());
  EXPECT_EQ(early.workers[0].model.seen(), late.workers[0].model.seen());
  EXPECT_EQ(early.workers[1].model.seen(), mixed.workers[1].model.seen());
}

TEST(BackupTraining, EndsWithTheNewestGlobalWeightsOnEveryWorker) {
  Job job(2, BackupOptions(2), 24);
  for (auto& worker : job.workers) {
    EXPECT_EQ(worker.model.a(), job.server.Read("a", 6));
    EXPECT_EQ(worker.model.b(), job.server.Read("b", 6));
  }
}

TEST(BackupTraining, AWorkerWhosePartEndsEarlierFollowsTheOthers) {
  Job job(2, BackupOptions(1), 5);
  for (auto& worker : job.workers) {
    ASSERT_TRUE(worker.report.ok()) << worker.report.status();
    EXPECT_EQ(worker.report->steps, 3u);
    EXPECT_EQ(worker.model.a(), job.server.Read("a", 3));
  }
}

TEST(BackupTraining, ASkippedGradientLeavesNoLocalStep) {
  TrainOptions options = BackupOptions(1);
  options.exchange.non_finite = NonFinite::kSkip;
  Job job(1, options, 4, [](Job::Worker* worker) { worker->model.nan_in_step = 2; });
  ASSERT_TRUE(job.workers[0].report.ok()) << job.workers[0].report.status();
  EXPECT_EQ(job.workers[0].model.seen()[2], job.server.Read("a", 1));
}

TEST(BackupTraining, AFailedPullEndsTheRunWithItsError) {
  Job job(1, BackupOptions(1), 6, [](Job::Worker* worker) {
    worker->store.FailPullsFrom(2, absl::UnavailableError("server 1 is gone"));
  });
  EXPECT_EQ(job.workers[0].report.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(job.workers[0].report.status().message(), HasSubstr("server 1 is gone"));
}

TEST(BackupTraining, WeightsThatNeverComeEndTheRunAtItsDeadline) {
  TrainOptions options = BackupOptions(1);
  options.exchange.timeout = absl::Milliseconds(20);
  Job job(1, options, 4, [](Job::Worker* worker) { worker->store.AllowVersions(1); });
  EXPECT_EQ(job.workers[0].report.status().code(), absl::StatusCode::kDeadlineExceeded);
  job.workers[0].store.AllowAll();  // what arrives afterwards still has a place
}

TEST(BackupTraining, IsRefusedWithoutRounds) {
  Job job(1, BackupOptions(1), 4,
          [](Job::Worker* worker) { worker->store.set_type("dist_async"); });
  EXPECT_EQ(job.workers[0].report.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(job.workers[0].report.status().message(), HasSubstr("dist_async"));
}

}  // namespace
}  // namespace slimps
