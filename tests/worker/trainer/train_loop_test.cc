// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/train_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <thread>

#include "absl/time/clock.h"
#include "proto/base/clock.h"
#include "tests/worker/trainer/fake_model.h"
#include "tests/worker/trainer/fake_store.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kLr = 0.125;

TrainOptions Options(size_t batch) {
  TrainOptions options;
  options.batch = batch;
  options.optimizer.set_kind(wire::OptimizerSpec::SGD);
  options.optimizer.set_learning_rate(kLr);
  options.optimizer.set_rescale_grad(1);
  options.optimizer.set_average(true);
  options.exchange.timeout = absl::Seconds(20);
  return options;
}

TrainOptions BackupOptions(size_t batch) {
  TrainOptions options = Options(batch);
  options.exchange.backup = BackupModelOptions();
  options.exchange.backup->updater.learning_rate = kLr;
  return options;
}

size_t IndexOf(const std::vector<std::string>& events, const std::string& event) {
  const auto found = std::find(events.begin(), events.end(), event);
  EXPECT_NE(found, events.end()) << event << " is missing";
  return static_cast<size_t>(found - events.begin());
}

// Runs `workers` workers on threads of their own. Calls `prepare` for each before it starts.
struct Job {
  struct Worker {
    Worker(FakeServer* server, uint32_t rank) : store(server, rank) {}
    FakeModel model;
    FakeStore store;
    absl::StatusOr<TrainingReport> report = absl::UnknownError("not run");
  };

  Job(uint32_t count, const TrainOptions& options, size_t samples,
      std::function<void(Worker*)> prepare = nullptr)
      : server(count) {
    const Dataset data = FakeData(samples);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < count; ++rank) {
      Worker* worker = &workers.emplace_back(&server, rank);
      if (prepare) prepare(worker);
    }
    for (Worker& worker : workers) {
      threads.emplace_back(
          [&] { worker.report = Train(options, data, &worker.model, &worker.store, nullptr); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  FakeServer server;
  std::deque<Worker> workers;
};

TEST(SyncTraining, PullsAStepsWeightsAfterPushingAllItsGradients) {
  Job job(1, Options(4), 8);
  ASSERT_TRUE(job.workers[0].report.ok()) << job.workers[0].report.status();
  EXPECT_THAT(job.workers[0].store.events(),
              ElementsAre("push b 1", "push a 1", "pull a 1", "arrived a 1", "pull b 1",
                          "arrived b 1", "push b 2", "push a 2", "pull a 2", "arrived a 2",
                          "pull b 2", "arrived b 2", "wait"));
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

TEST(SyncTraining, TimeOfEvaluationsIsLeftOut) {
  constexpr absl::Duration kEvaluation = absl::Milliseconds(20);
  TrainOptions options = Options(4);
  options.epochs = 4;
  options.evaluate_epochs = true;
  absl::Duration evaluating;
  const SteadyTime start = MachineClock()->Now();
  Job job(1, options, 8, [&](Job::Worker* worker) {
    worker->model.before_evaluation = [&] {
      absl::SleepFor(kEvaluation);
      evaluating += kEvaluation;
    };
  });
  ASSERT_TRUE(job.workers[0].report.ok());
  EXPECT_EQ(evaluating, 3 * kEvaluation);
  EXPECT_LE(job.workers[0].report->seconds, MachineClock()->Now() - start - evaluating);
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

TEST(SyncTraining, AFailedPullEndsTheRunWithItsError) {
  Job job(1, Options(1), 4, [](Job::Worker* worker) {
    worker->store.FailPullsFrom(2, absl::UnavailableError("server 1 is gone"));
  });
  EXPECT_EQ(job.workers[0].report.status(), absl::UnavailableError("server 1 is gone"));
  EXPECT_EQ(job.workers[0].model.seen().size(), 2u);
}

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

TEST(SyncTraining, AScheduleWithoutAnEndEndsWithTheRun) {
  TrainOptions options = Options(2);
  options.optimizer.mutable_schedule()->set_kind(wire::LearningRateSchedule::LINEAR);
  Job job(2, options, 24);
  EXPECT_EQ(job.server.optimizer().schedule().total_rounds(), 6u);
  options.max_steps = 4;
  Job shorter(2, options, 24);
  EXPECT_EQ(shorter.server.optimizer().schedule().total_rounds(), 4u);
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

void RecordBackward(Job::Worker* worker) {
  worker->model.before_compute = [worker](size_t step) {
    worker->store.Record(absl::StrCat("compute ", step));
  };
  worker->model.after_backward = [worker](size_t step) {
    worker->store.Record(absl::StrCat("computed ", step));
  };
}

TEST(Measuring, GradientsLeaveDuringBackwardUnlessTheTableIsMeasured) {
  for (const bool measuring : {false, true}) {
    Job job(1, Options(4), 8, [&](Job::Worker* worker) {
      RecordBackward(worker);
      worker->store.set_measuring(measuring);
    });
    ASSERT_TRUE(job.workers[0].report.ok()) << job.workers[0].report.status();
    const std::vector<std::string> events = job.workers[0].store.events();
    EXPECT_EQ(IndexOf(events, "push b 2") > IndexOf(events, "computed 2"), measuring);
    EXPECT_EQ(IndexOf(events, "push a 2") > IndexOf(events, "computed 2"), measuring);
  }
}

TEST(Measuring, NothingIsPulledBeforeTheLastPushIsAcknowledged) {
  for (const TrainOptions& options : {Options(4), BackupOptions(4)}) {
    Job job(1, options, 4, [](Job::Worker* worker) { worker->store.set_measuring(true); });
    ASSERT_TRUE(job.workers[0].report.ok()) << job.workers[0].report.status();
    EXPECT_THAT(job.workers[0].store.events(),
                ElementsAre("push b 1", "push a 1", "wait", "pull a 1", "arrived a 1", "pull b 1",
                            "arrived b 1", "wait"));
  }
}

TEST(Measuring, WithTheBackupModelTheRoundArrivesBeforeTheNextStepAndWeightsAreTheSame) {
  Job free(2, BackupOptions(2), 24);
  Job measured(2, BackupOptions(2), 24, [](Job::Worker* worker) {
    RecordBackward(worker);
    worker->store.set_measuring(true);
  });
  for (auto& worker : measured.workers) {
    ASSERT_TRUE(worker.report.ok()) << worker.report.status();
    const std::vector<std::string> events = worker.store.events();
    for (int step = 2; step <= 6; ++step) {
      EXPECT_LT(IndexOf(events, absl::StrCat("arrived b ", step - 1)),
                IndexOf(events, absl::StrCat("compute ", step)));
    }
  }
  EXPECT_EQ(free.workers[0].model.a(), measured.workers[0].model.a());
  EXPECT_EQ(free.workers[0].model.seen(), measured.workers[0].model.seen());
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
  const auto report = Train(options, FakeData(3), &model, &store, [&](const StepReport& step) {
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
