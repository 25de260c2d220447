// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/train_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "tests/worker/trainer/train_job.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SyncTraining, PullsATensorsWeightsInTheWakeOfItsPush) {
  Job job(1, Options(4), 8);
  ASSERT_TRUE(job.workers[0].report.ok()) << job.workers[0].report.status();
  EXPECT_THAT(job.workers[0].store.events(),
              ElementsAre("push b 1", "pull b 1", "arrived b 1", "push a 1", "pull a 1",
                          "arrived a 1", "push b 2", "pull b 2", "arrived b 2", "push a 2",
                          "pull a 2", "arrived a 2", "wait"));
}

TEST(SyncTraining, FrontLayersHaveTheHigherPriority) {
  Job job(1, Options(4), 4);
  const FakeStore& store = job.workers[0].store;
  EXPECT_GT(store.priority("s:a"), store.priority("s:b"));
}

TEST(SyncTraining, TwoWorkersTakeTheStepsOfOneProcessWithTwiceTheBatch) {
  TrainOptions options = Options(4);
  options.epochs = 3;
  Job two(2, options, 32);
  options.batch = 8;
  Job one(1, options, 32);
  ASSERT_TRUE(two.workers[0].report.ok() && two.workers[1].report.ok());
  EXPECT_EQ(two.workers[0].report->steps, one.workers[0].report->steps);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(two.workers[0].model.a()[i], one.workers[0].model.a()[i], 1e-6);
  }
  EXPECT_EQ(two.workers[0].model.a(), two.workers[1].model.a());
}

TEST(SyncTraining, AWorkerWhosePartEndsEarlierContributesNothingToTheRest) {
  Job job(2, Options(1), 5);  // parts of 3 and 2 samples
  for (const auto& worker : job.workers) {
    ASSERT_TRUE(worker.report.ok()) << worker.report.status();
    EXPECT_EQ(worker.report->steps, 3u);
    EXPECT_EQ(worker.report->samples, 5u);  // over all workers
  }
  const std::vector<std::string> events = job.workers[1].store.events();
  EXPECT_LT(IndexOf(events, "push a 2"), IndexOf(events, "nothing a 3"));
  EXPECT_EQ(job.workers[0].model.a(), job.workers[1].model.a());
}

TEST(SyncTraining, AParameterWithoutGradientCountsAsZero) {
  Job job(1, Options(4), 8, [](Job::Worker* worker) { worker->model.without_b = true; });
  ASSERT_TRUE(job.workers[0].report.ok());
  IndexOf(job.workers[0].store.events(), "nothing b 1");
  EXPECT_THAT(job.workers[0].model.b(), ElementsAre(0.25f, -3));
}

TEST(SyncTraining, MaxStepsEndsTheRun) {
  TrainOptions options = Options(1);
  options.epochs = 2;
  options.max_steps = 3;
  Job job(1, options, 2);
  ASSERT_TRUE(job.workers[0].report.ok());
  EXPECT_EQ(job.workers[0].report->steps, 3u);
}

std::vector<size_t> StepsOf(const TrainingReport& report) {
  std::vector<size_t> steps;
  for (const EpochReport& epoch : report.epochs) steps.push_back(epoch.steps);
  return steps;
}

TEST(SyncTraining, EveryEpochLeavesARowAndTheLastIsTheRunsEnd) {
  TrainOptions options = Options(4);
  options.epochs = 3;
  Job job(2, options, 16);  // 2 steps an epoch; a step is 6 floats each way and worker
  for (const auto& worker : job.workers) {
    ASSERT_TRUE(worker.report.ok()) << worker.report.status();
    const std::vector<EpochReport>& epochs = worker.report->epochs;
    EXPECT_THAT(StepsOf(*worker.report), ElementsAre(2, 4, 6));
    for (size_t i = 0; i < epochs.size(); ++i) {
      EXPECT_EQ(epochs[i].bytes_pushed, (i + 1) * 2 * 2 * 6 * sizeof(float));
      EXPECT_EQ(epochs[i].bytes_pulled, epochs[i].bytes_pushed);
      EXPECT_FALSE(epochs[i].test.has_value());
      EXPECT_GE(epochs[i].seconds, i == 0 ? absl::ZeroDuration() : epochs[i - 1].seconds);
    }
    EXPECT_EQ(epochs.back().bytes_pushed, worker.report->bytes_pushed);
    EXPECT_EQ(epochs.back().seconds, worker.report->seconds);
  }
}

TEST(SyncTraining, ARunThatEndsInAnEpochHasItsRowAtItsEnd) {
  TrainOptions options = Options(4);
  options.epochs = 3;
  for (const auto& [max_steps, rows] :
       {std::pair(1, std::vector<size_t>{1}), std::pair(2, std::vector<size_t>{2}),
        std::pair(3, std::vector<size_t>{2, 3})}) {
    options.max_steps = max_steps;
    Job job(1, options, 8);
    ASSERT_TRUE(job.workers[0].report.ok());
    EXPECT_EQ(StepsOf(*job.workers[0].report), rows);
  }
}

TEST(SyncTraining, RankZeroEvaluatesAfterEachEpochWhenAsked) {
  TrainOptions options = Options(4);
  options.epochs = 3;
  options.evaluate_epochs = true;
  Job job(2, options, 16);
  for (const auto& worker : job.workers) {
    ASSERT_TRUE(worker.report.ok());
    for (const EpochReport& epoch : worker.report->epochs) {
      // The caller makes the last row itself, after it has drained the run.
      const bool last = epoch.steps == worker.report->steps;
      ASSERT_EQ(epoch.test.has_value(), worker.store.rank() == 0 && !last);
      EXPECT_EQ(epoch.test.value_or(LossSums{.labels = 16}).labels, 16u);
    }
  }
}

TEST(SyncTraining, RankZeroEvaluatesAfterEverySoManySteps) {
  TrainOptions options = Options(4);
  options.epochs = 3;
  options.evaluate_every = 2;
  Job job(2, options, 24);  // 3 steps an epoch
  for (const auto& worker : job.workers) {
    ASSERT_TRUE(worker.report.ok());
    std::vector<size_t> steps;
    for (const EpochReport& row : worker.report->evaluations) {
      steps.push_back(row.steps);
      EXPECT_EQ(row.test.has_value(), worker.store.rank() == 0);
      EXPECT_GT(row.bytes_pushed, 0u);
    }
    EXPECT_EQ(steps, (std::vector<size_t>{2, 4, 6, 8}));
    EXPECT_EQ(worker.report->epochs.size(), 3u);
  }
}

TEST(SyncTraining, TimeOfEvaluationsIsLeftOut) {
  constexpr absl::Duration kStep = absl::Milliseconds(3);
  FakeClock clock;
  TrainOptions options = Options(4);
  options.epochs = 4;
  options.evaluate_epochs = true;
  options.evaluate_every = 3;
  options.exchange.clock = &clock;
  int evaluations = 0;
  Job job(1, options, 8, [&](Job::Worker* worker) {  // 2 steps an epoch
    worker->model.before_compute = [&](size_t) { clock.Advance(kStep); };
    worker->model.before_evaluation = [&] {
      clock.Advance(absl::Seconds(1));
      ++evaluations;
    };
  });
  const auto& report = job.workers[0].report;
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(evaluations, 5);
  EXPECT_EQ(report->seconds, 8 * kStep);
  for (const auto* rows : {&report->epochs, &report->evaluations}) {
    for (const EpochReport& row : *rows) EXPECT_EQ(row.seconds, row.steps * kStep);
  }
}

TEST(SyncTraining, NonFiniteGradientStopsTheRunAndNamesTheKey) {
  Job job(1, Options(1), 4, [](Job::Worker* worker) { worker->model.nan_in_step = 2; });
  EXPECT_EQ(job.workers[0].report.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(job.workers[0].report.status().message(), HasSubstr("s:a"));
}

TEST(SyncTraining, NonFiniteGradientIsSkippedWhenAsked) {
  TrainOptions options = Options(1);
  options.exchange.non_finite = NonFinite::kSkip;
  Job job(1, options, 4, [](Job::Worker* worker) { worker->model.nan_in_step = 2; });
  ASSERT_TRUE(job.workers[0].report.ok()) << job.workers[0].report.status();
  const std::vector<std::string> events = job.workers[0].store.events();
  EXPECT_LT(IndexOf(events, "push b 2"), IndexOf(events, "nothing a 2"));
  EXPECT_EQ(job.workers[0].model.seen()[2], job.workers[0].model.seen()[1]);
}

TEST(SyncTraining, FiguresAreSummedOverWorkersWithoutInitialisation) {
  Job job(2, Options(2), 8);
  for (const auto& worker : job.workers) {
    ASSERT_TRUE(worker.report.ok());
    // 2 workers, 2 steps, 6 elements.
    EXPECT_EQ(worker.report->bytes_pushed, 2u * 2 * 6 * 4);
    EXPECT_EQ(worker.report->bytes_pulled, 2u * 2 * 6 * 4);
    EXPECT_EQ(worker.report->samples, 8u);
  }
}

TEST(SyncTraining, VeryManyEpochsHaveARowEach) {
  TrainOptions options = Options(4);
  options.epochs = 9000;
  const Job job(/*count=*/1, options, /*samples=*/4);
  ASSERT_TRUE(job.workers[0].report.ok()) << job.workers[0].report.status();
  EXPECT_EQ(job.workers[0].report->epochs.size(), 9000u);
}

TEST(SyncTraining, AFailedPullEndsTheRunWithItsError) {
  Job job(1, Options(1), 4, [](Job::Worker* worker) {
    worker->store.FailPullsFrom(2, absl::UnavailableError("server 1 is gone"));
  });
  EXPECT_EQ(job.workers[0].report.status(), absl::UnavailableError("server 1 is gone"));
  EXPECT_EQ(job.workers[0].model.seen().size(), 2u);
}

TEST(SyncTraining, AScheduleWithoutAnEndEndsWithTheRun) {
  TrainOptions options = Options(2);
  options.optimizer.mutable_schedule()->set_kind(wire::LearningRateSchedule::LINEAR);
  Job job(2, options, 24);
  EXPECT_EQ(job.server.optimizer().schedule().total_rounds(), 6u);
  options.max_steps = 4;
  Job shorter(2, options, 24);
  EXPECT_EQ(shorter.server.optimizer().schedule().total_rounds(), 4u);
}

TEST(SyncTraining, AWarmUpIsAPartOfTheRun) {
  TrainOptions options = Options(2);
  options.optimizer.mutable_schedule()->set_kind(wire::LearningRateSchedule::COSINE);
  options.warmup = 0.34;
  Job job(2, options, 24);
  EXPECT_EQ(job.server.optimizer().schedule().warmup_rounds(), 2u);
  EXPECT_EQ(job.server.optimizer().schedule().total_rounds(), 4u);
}

TEST(Training, RefusesABatchOfNothing) {
  EXPECT_EQ(Job(1, Options(0), 4).workers[0].report.status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Training, ReportsEveryStep) {
  FakeServer server(1);
  FakeStore store(&server, 0);
  FakeModel model;
  TrainOptions options = Options(2);
  options.epochs = 2;
  std::vector<std::string> seen;
  const auto report = Train(options, FakeData(3), &model, &store, [&](const StepProgress& step) {
    seen.push_back(absl::StrCat(step.epoch, "/", step.epochs, " ", step.step, "/", step.steps, " ",
                                step.samples));
  });
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(seen, ElementsAre("1/2 1/4 2", "1/2 2/4 1", "2/2 3/4 2", "2/2 4/4 1"));
}

TEST(Evaluation, CoversTheWholeTestSplitOnce) {
  FakeModel model;
  const auto sums = EvaluateTestSplit(FakeData(601), &model);
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(sums->labels, 601u);
  EXPECT_DOUBLE_EQ(sums->MeanLoss(), 1.0);
}

}  // namespace
}  // namespace slimps
