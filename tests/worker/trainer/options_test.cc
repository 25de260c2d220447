// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace slimps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

WorkerFlags Good() {
  WorkerFlags flags;
  flags.store["scheduler"] = "127.0.0.1:9000";
  return flags;
}

std::string ErrorAfter(const std::function<void(WorkerFlags*)>& change) {
  WorkerFlags flags = Good();
  change(&flags);
  const auto options = CheckWorkerFlags(flags);
  EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument) << options.status();
  return std::string(options.status().message());
}

TEST(WorkerFlags, DefaultsWithASchedulerAreGood) {
  const auto options = CheckWorkerFlags(Good());
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->store.scheduler_address, "tcp://127.0.0.1:9000");
  EXPECT_FALSE(options->store.fixed_threshold_bytes.has_value());
  EXPECT_FALSE(options->train.exchange.backup.has_value());
  EXPECT_FALSE(options->train.max_steps.has_value());
}

TEST(WorkerFlags, WrongChoicesNameFlagValueAndWhatIsAllowed) {
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->model = "vgg"; }),
              AllOf(HasSubstr("--model=vgg"),
                    HasSubstr("logistic, mlp, lenet, resnet20, lstm, char_transformer")));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->dataset = "svhn"; }), HasSubstr("--dataset=svhn"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->optimizer = "lamb"; }),
              AllOf(HasSubstr("--optimizer=lamb"), HasSubstr("adamw")));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->backup_model = "yes"; }), HasSubstr("on, off"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->local_optimizer = "adamw"; }),
              HasSubstr("--local_optimizer"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->kvstore = "local"; }), HasSubstr("dist_async"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->non_finite = "x"; }), HasSubstr("stop, skip"));
}

TEST(WorkerFlags, NumbersOutsideTheirRangeAreRefused) {
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->epochs = 0; }), HasSubstr("--epochs=0"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->batch = -1; }), HasSubstr("--batch=-1"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->seed = -1; }), HasSubstr("--seed"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->store["rank"] = "1"; }),
              HasSubstr("--rank: expected -1 to 0 with 1 workers, got 1"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->lr = -0.1; }), HasSubstr("--lr=-0.1"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->lr = std::numeric_limits<double>::quiet_NaN(); }),
              HasSubstr("--lr=nan"));
  EXPECT_THAT(
      ErrorAfter([](WorkerFlags* f) { f->store["partition_bytes"] = "3"; }),
      HasSubstr("--partition_bytes: expected a whole number from 4 to 65011712, got \"3\""));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->store["partition_bytes"] = "65011713"; }),
              HasSubstr("--partition_bytes: expected a whole number from 4 to 65011712, got"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->compute_threads = 0; }),
              HasSubstr("--compute_threads"));
}

TEST(WorkerFlags, UnknownCodecNamesTheFlag) {
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->store["compression"] = "9bit"; }),
              HasSubstr("--compression=9bit"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->store["compression"] = "2bit:limit=3"; }),
              HasSubstr("--compression=2bit:limit=3"));
}

TEST(WorkerFlags, AMisspeltCodecOrOptionComesWithTheNearestOne) {
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->store["compression"] = "topq:ratio=0.1"; }),
              HasSubstr("'topk'"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->store["compression"] = "topk:ration=0.1"; }),
              HasSubstr("'ratio'"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->store["compression"] = "topk:ratio=2"; }),
              HasSubstr("--compression=topk:ratio=2"));
}

TEST(WorkerFlags, MeasuringAgainNeedsRoundsInCommonAndAFewBetween) {
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->store["remeasure_every"] = "7"; }),
              HasSubstr("--remeasure_every: expected 0 or a whole number from 8 to 1000000"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->store["remeasure_every"] = "-1"; }),
              HasSubstr("--remeasure_every: expected 0 or"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) {
                f->store["remeasure_every"] = "20";
                f->kvstore = "dist_async";
              }),
              HasSubstr("remeasure_every=20 with dist_async: expected 0"));
}

TEST(WorkerFlags, StalenessIsForTheStoreThatBoundsIt) {
  WorkerFlags flags = Good();
  flags.kvstore = "dist_ssp";
  flags.store["staleness"] = "3";
  const auto options = CheckWorkerFlags(flags);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->store.staleness, 3u);
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->store["staleness"] = "3"; }),
              HasSubstr("staleness=3 with dist_sync: expected 0"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) {
                f->kvstore = "dist_ssp";
                f->store["staleness"] = "-1";
              }),
              HasSubstr("--staleness: expected a whole number from 0"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) {
                f->kvstore = "dist_ssp";
                f->backup_model = "on";
              }),
              AllOf(HasSubstr("--backup_model=on"), HasSubstr("dist_ssp has no rounds")));
}

TEST(WorkerFlags, CodecsThatTheRestDoesNotGoWithAreRefusedWithTheReason) {
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) {
                f->store["compression"] = "dgc";
                f->optimizer = "momentum";
              }),
              AllOf(HasSubstr("--compression=dgc --optimizer=momentum"), HasSubstr("twice")));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) {
                f->store["compression"] = "signsgd";
                f->kvstore = "dist_async";
              }),
              AllOf(HasSubstr("--kvstore=dist_async"), HasSubstr("majority")));
}

TEST(WorkerFlags, PullsHaveACodecAndAThresholdOfTheirOwn) {
  WorkerFlags flags = Good();
  EXPECT_EQ(CheckWorkerFlags(flags)->store.pull_compression, "none");
  EXPECT_FALSE(CheckWorkerFlags(flags)->store.fixed_pull_threshold_bytes.has_value());
  flags.store["threshold"] = "7";
  flags.store["pull_compression"] = "topk:ratio=0.1";
  flags.store["pull_threshold"] = "4096";
  const auto options = CheckWorkerFlags(flags);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->store.pull_compression, "topk:ratio=0.1");
  EXPECT_EQ(options->store.fixed_pull_threshold_bytes, 4096u);
  EXPECT_EQ(options->store.fixed_threshold_bytes, 7u);
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->store["pull_compression"] = "9bit"; }),
              HasSubstr("--pull_compression=9bit"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->store["pull_threshold"] = "many"; }),
              HasSubstr("--pull_threshold: expected auto or"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) {
                f->store["pull_compression"] = "1bit";
                f->kvstore = "dist_async";
              }),
              AllOf(HasSubstr("--pull_compression=1bit"), HasSubstr("expected dist_sync")));
}

TEST(WorkerFlags, APolicyTakesItsCodecsFromItsOwnOptions) {
  WorkerFlags flags = Good();
  EXPECT_EQ(CheckWorkerFlags(flags)->store.policy, "threshold");
  flags.store["policy"] = "lgreco:codec=topk:ratio=0.02";
  flags.store["pull_compression"] = "policy";
  const auto options = CheckWorkerFlags(flags);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->store.policy, "lgreco:codec=topk:ratio=0.02");
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->store["policy"] = "lgrec"; }),
              AllOf(HasSubstr("--policy=lgrec"), HasSubstr("did you mean 'lgreco'?")));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) {
                f->store["policy"] = "gravac";
                f->store["compression"] = "1bit";
              }),
              AllOf(HasSubstr("--compression=1bit"), HasSubstr("--policy=gravac"),
                    HasSubstr("expected compression none")));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) {
                f->store["policy"] = "joint";
                f->kvstore = "dist_async";
              }),
              HasSubstr("policy joint with dist_async: expected dist_sync"));
}

TEST(WorkerFlags, AMajorityOfSignsIsNotRescaled) {
  WorkerFlags flags = Good();
  flags.store["compression"] = "signsgd";
  const auto options = CheckWorkerFlags(flags);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->train.optimizer.rescale_grad(), 1);
}

TEST(WorkerFlags, ThresholdIsAutoOrBytes) {
  WorkerFlags flags = Good();
  flags.store["threshold"] = "0";
  EXPECT_EQ(CheckWorkerFlags(flags)->store.fixed_threshold_bytes, 0u);
  flags.store["threshold"] = "4096";
  EXPECT_EQ(CheckWorkerFlags(flags)->store.fixed_threshold_bytes, 4096u);
  for (const char* bad : {"", "-1", "4k", "Auto"}) {
    EXPECT_THAT(ErrorAfter([&](WorkerFlags* f) { f->store["threshold"] = bad; }),
                HasSubstr("--threshold: expected"));
  }
}

TEST(WorkerFlags, SchedulerMustBeGivenWithAPort) {
  for (const char* bad : {"host:", "host", "host:99999"}) {
    EXPECT_THAT(ErrorAfter([&](WorkerFlags* f) { f->store["scheduler"] = bad; }),
                HasSubstr("--scheduler: expected host:port of slimps_scheduler"));
  }
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->store.clear(); }),
              AllOf(HasSubstr("--scheduler"), HasSubstr("DMLC_PS_ROOT_URI")));
}

TEST(WorkerFlags, BackupModelWithoutRoundsIsRefusedWithTheReason) {
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) {
                f->backup_model = "on";
                f->kvstore = "dist_async";
              }),
              AllOf(HasSubstr("--backup_model=on"), HasSubstr("dist_async has no rounds")));
}

TEST(WorkerFlags, ModelsAndDataThatDoNotFitAreRefused) {
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->model = "lstm"; }),
              HasSubstr("lstm or char_transformer with text"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->dataset = "mnist"; }), HasSubstr("--data_dir"));
}

TEST(WorkerFlags, CodecsSeeGradientsSummedOverTheBatchAndServersUndoThat) {
  WorkerFlags flags = Good();
  flags.batch = 64;
  const auto options = CheckWorkerFlags(flags);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->store.grad_scale, 64);
  EXPECT_EQ(options->train.optimizer.rescale_grad(), 1.0 / 64);
  EXPECT_TRUE(options->train.optimizer.average());
}

TEST(WorkerFlags, MomentumBelongsToTheOptimizersNamedAfterIt) {
  WorkerFlags flags = Good();
  EXPECT_EQ(CheckWorkerFlags(flags)->train.optimizer.momentum(), 0);
  flags.optimizer = "nesterov";
  const auto nesterov = CheckWorkerFlags(flags);
  EXPECT_EQ(nesterov->train.optimizer.momentum(), 0.9);
  EXPECT_TRUE(nesterov->train.optimizer.nesterov());
  flags.optimizer = "adamw";
  EXPECT_EQ(CheckWorkerFlags(flags)->train.optimizer.kind(), wire::OptimizerSpec::ADAMW);
}

TEST(WorkerFlags, AFlagThatOthersLeaveNoEffectIsRefused) {
  struct Case {
    const char* flag;
    const char* value;
    const char* needs;
    std::function<void(WorkerFlags*)> give_effect;
  };
  const auto backup = [](WorkerFlags* f) { f->backup_model = "on"; };
  const Case cases[] = {{"momentum", "0.9", "--optimizer=momentum or nesterov",
                         [](WorkerFlags* f) { f->optimizer = "momentum"; }},
                        {"freeze_after", "3", "--optimizer=onebit_adam",
                         [](WorkerFlags* f) { f->optimizer = "onebit_adam"; }},
                        {"local_optimizer", "sgd", "--backup_model=on", backup},
                        {"loc_lr", "0.1", "--backup_model=on", backup}};
  for (const Case& one : cases) {
    const auto give = [&](WorkerFlags* f) { f->given[one.flag] = one.value; };
    EXPECT_EQ(ErrorAfter(give).find("--" + std::string(one.flag) + "=" + one.value +
                                    " has no effect without " + one.needs),
              0u)
        << ErrorAfter(give);
    WorkerFlags flags = Good();
    give(&flags);
    one.give_effect(&flags);
    EXPECT_EQ(CheckWorkerFlags(flags).status(), absl::OkStatus()) << one.flag;
  }
  WorkerFlags idle = Good();
  idle.given = {{"momentum", "0"}, {"loc_lr", "0"}};
  EXPECT_EQ(CheckWorkerFlags(idle).status(), absl::OkStatus()) << "they ask for nothing";
}

TEST(WorkerFlags, AThresholdWithoutACodecIsSaid) {
  WorkerFlags flags = Good();
  flags.given = {{"threshold", "4096"}, {"pull_threshold", "0"}};
  EXPECT_THAT(CheckWorkerFlags(flags)->notes,
              testing::ElementsAre("--threshold=4096 has no effect without --compression",
                                   "--pull_threshold=0 has no effect without --pull_compression"));
  flags.store["compression"] = "1bit";
  flags.store["pull_compression"] = "1bit";
  EXPECT_THAT(CheckWorkerFlags(flags)->notes, testing::IsEmpty());
}

TEST(WorkerFlags, NesterovWithoutMomentumIsRefused) {
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) {
                f->optimizer = "nesterov";
                f->momentum = 0;
              }),
              AllOf(HasSubstr("--momentum=0: expected"), HasSubstr("--optimizer=nesterov")));
  WorkerFlags flags = Good();
  flags.optimizer = "momentum";
  flags.momentum = 0;
  EXPECT_TRUE(CheckWorkerFlags(flags).ok()) << "plain sgd";
}

TEST(WorkerFlags, OnebitAdamTakesTheLengthOfItsWarmUpAndNoBackupModel) {
  WorkerFlags flags = Good();
  flags.optimizer = "onebit_adam";
  flags.freeze_after = 110;
  const auto options = CheckWorkerFlags(flags);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->train.optimizer.kind(), wire::OptimizerSpec::ONEBIT_ADAM);
  EXPECT_EQ(options->train.optimizer.freeze_after(), 110u);
  EXPECT_EQ(options->train.optimizer.beta2(), 0.999);
  flags.freeze_after = 0;
  EXPECT_TRUE(CheckWorkerFlags(flags).ok()) << "until the variance is stable";
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->freeze_after = -1; }),
              HasSubstr("--freeze_after=-1"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) {
                f->optimizer = "onebit_adam";
                f->freeze_after = 3;
                f->backup_model = "on";
              }),
              HasSubstr("the backup model"));
}

TEST(WorkerFlags, ClippingTakesRoundsAndGradients) {
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) {
                f->clip_norm = 1;
                f->kvstore = "dist_async";
              }),
              HasSubstr("clip_norm with dist_async: expected dist_sync"));
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) {
                f->clip_norm = 1;
                f->optimizer = "onebit_adam";
              }),
              HasSubstr("clip_norm with optimizer onebit_adam: expected sgd, adam or adamw"));
}

TEST(WorkerFlags, SchedulesOfTheLearningRate) {
  WorkerFlags flags = Good();
  const auto kind = [&] { return CheckWorkerFlags(flags)->train.optimizer.schedule().kind(); };
  EXPECT_EQ(kind(), wire::LearningRateSchedule::CONSTANT);
  flags.lr_schedule = "cosine";
  EXPECT_EQ(kind(), wire::LearningRateSchedule::COSINE);
  flags.lr_schedule = "linear";
  EXPECT_EQ(kind(), wire::LearningRateSchedule::LINEAR);
  EXPECT_EQ(CheckWorkerFlags(flags)->train.warmup, 0);
  flags.lr_schedule = "one_cycle";
  EXPECT_EQ(kind(), wire::LearningRateSchedule::COSINE);
  EXPECT_EQ(CheckWorkerFlags(flags)->train.warmup, 0.3);
  EXPECT_THAT(ErrorAfter([](WorkerFlags* f) { f->lr_schedule = "poly"; }),
              AllOf(HasSubstr("--lr_schedule=poly"), HasSubstr("cosine")));
}

TEST(WorkerFlags, LocalLearningRateDefaultsToTheGlobalOne) {
  WorkerFlags flags = Good();
  flags.backup_model = "on";
  flags.lr = 0.5;
  EXPECT_FALSE(CheckWorkerFlags(flags)->train.exchange.backup->updater.loc_lr.has_value());
  EXPECT_EQ(CheckWorkerFlags(flags)->train.exchange.backup->updater.moments, Moments::kServers);
  flags.local_optimizer = "momentum";
  EXPECT_EQ(CheckWorkerFlags(flags)->train.exchange.backup->updater.learning_rate, 0.5);
  EXPECT_EQ(CheckWorkerFlags(flags)->train.exchange.backup->updater.moments, Moments::kOwn);
  flags.loc_lr = 0.25;
  EXPECT_EQ(CheckWorkerFlags(flags)->train.exchange.backup->updater.loc_lr, 0.25);
}

}  // namespace
}  // namespace slimps
