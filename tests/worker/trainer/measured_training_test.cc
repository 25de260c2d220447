// SPDX-License-Identifier: Apache-2.0
// Training in rounds whose pushes are measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/trainer/train_job.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;

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

}  // namespace
}  // namespace slimps
