#include "worker/exchange/weight_exchange.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/trainer/fake_store.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kLr = 0.5;

wire::OptimizerSpec Sgd() {
  wire::OptimizerSpec spec;
  spec.set_kind(wire::OptimizerSpec::SGD);
  spec.set_learning_rate(kLr);
  spec.set_rescale_grad(1);
  spec.set_average(true);
  return spec;
}

ExchangeOptions WithBackup() {
  ExchangeOptions options{.timeout = absl::Seconds(20)};
  options.backup = LocalStepOf(Sgd());
  return options;
}

// One worker of a job of `workers`, whose model is "a" and "b".
struct Worker {
  Worker(FakeServer* server, uint32_t rank, std::vector<float> first)
      : a(std::move(first)), store(server, rank) {}

  absl::Status Start(const ExchangeOptions& options, const wire::OptimizerSpec& spec = Sgd()) {
    auto started = StartExchange(&store, parameters, spec, options);
    if (started.ok()) exchange = *std::move(started);
    return started.status();
  }
  absl::Status Step(std::vector<float> gradient) {
    const absl::Status begun = exchange->BeginStep();
    if (!begun.ok()) return begun;
    exchange->OnGradient(0, gradient);
    return exchange->EndStep();
  }

  std::vector<float> a, b = {7};
  const std::vector<Parameter> parameters = {{.name = "a", .shape = {2}, .values = a},
                                             {.name = "b", .shape = {1}, .values = b}};
  FakeStore store;
  std::unique_ptr<WeightExchange> exchange;
};

TEST(StartExchange, EveryWorkerBeginsFromTheFirstOnesValues) {
  FakeServer server(2);
  Worker first(&server, 0, {1, 2}), second(&server, 1, {3, 4});
  std::thread other([&] { EXPECT_TRUE(second.Start({}).ok()); });
  EXPECT_TRUE(first.Start({}).ok());
  other.join();
  EXPECT_THAT(second.a, ElementsAre(1, 2));
  EXPECT_EQ(server.optimizer().learning_rate(), kLr);
}

TEST(StartExchange, AnOptimizerThatOneWorkerIsRefusedStopsAll) {
  FakeServer server(2);
  Worker first(&server, 0, {1, 2}), second(&server, 1, {3, 4});
  first.store.RefuseOptimizers(absl::FailedPreconditionError("another kind"));
  std::thread other([&] {
    EXPECT_THAT(std::string(second.Start({}).message()), HasSubstr("refused at 1 other workers"));
  });
  EXPECT_THAT(std::string(first.Start({}).message()), HasSubstr("another kind"));
  other.join();
}

TEST(StartExchange, WhatCannotTrainIsRefused) {
  FakeServer server(1);
  Worker worker(&server, 0, {1, 2});
  const absl::Status sums = worker.Start({}, wire::OptimizerSpec());
  EXPECT_EQ(sums.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(sums.message()), HasSubstr("without a server optimizer"));
  ExchangeOptions options = WithBackup();
  options.backup->updater.loc_lr = 0.1;
  options.backup->updater.learning_rate = 0;
  EXPECT_THAT(std::string(worker.Start(options).message()),
              HasSubstr("expected that to be above 0, got 0"));
  worker.store.set_type("dist_async");
  EXPECT_EQ(worker.Start(WithBackup()).code(), absl::StatusCode::kInvalidArgument);
}

TEST(WeightExchange, ADrainInTheMiddleShowsTheNewestWeightsUntilTheNextStep) {
  FakeServer server(1);
  Worker worker(&server, 0, {1, 2});
  ExchangeOptions options = WithBackup();
  options.backup->updater.loc_lr = 0.25;
  ASSERT_TRUE(worker.Start(options).ok());
  ASSERT_TRUE(worker.Step({4, 8}).ok());
  ASSERT_TRUE(worker.exchange->BeginStep().ok());
  EXPECT_THAT(worker.a, ElementsAre(0, 0)) << "this worker's own step";
  ASSERT_TRUE(worker.exchange->Drain().ok());
  EXPECT_THAT(worker.a, ElementsAre(-1, -2)) << "the servers'";
  EXPECT_THAT(worker.b, ElementsAre(7));
  const std::vector<float> gradient = {4, 8};
  worker.exchange->OnGradient(0, gradient);
  ASSERT_TRUE(worker.exchange->EndStep().ok());
  ASSERT_TRUE(worker.exchange->BeginStep().ok());
  EXPECT_THAT(worker.a, ElementsAre(-2, -4)) << "from version 1";
  ASSERT_TRUE(worker.exchange->EndStep().ok());
  ASSERT_TRUE(worker.exchange->Drain().ok());
}

TEST(WeightExchange, AStepOfAMeasuredRoundAndTheOneBeforeEndWithTheirWeights) {
  struct Case {
    bool this_step, next_step;
  };
  for (const auto& [this_step, next_step] : {Case{true, false}, {false, true}, {false, false}}) {
    FakeServer server(1);
    Worker worker(&server, 0, {1, 2});
    ASSERT_TRUE(worker.Start(WithBackup()).ok());
    worker.store.AllowVersions(0);
    worker.store.set_measuring(this_step);
    ASSERT_TRUE(worker.exchange->BeginStep().ok());
    worker.store.set_measuring(next_step);
    std::atomic<bool> ended = false;
    std::thread step([&] {
      EXPECT_TRUE(worker.exchange->EndStep().ok());
      ended = true;
    });
    if (this_step || next_step) {
      absl::SleepFor(absl::Milliseconds(20));
      EXPECT_FALSE(ended);
      worker.store.AllowAll();
    }
    step.join();
    worker.store.AllowAll();
    ASSERT_TRUE(worker.exchange->Drain().ok());
  }
}

TEST(WeightExchange, HyperparametersReachServersAndLocalStep) {
  for (const bool backup : {false, true}) {
    FakeServer server(1);
    Worker worker(&server, 0, {1, 2});
    ExchangeOptions options = backup ? WithBackup() : ExchangeOptions();
    if (backup) options.backup->updater.loc_lr = kLr / 4;
    ASSERT_TRUE(worker.Start(options).ok());
    ASSERT_TRUE(worker.exchange->SetHyper(0, {.learning_rate = 1, .weight_decay = 2}).ok());
    EXPECT_THAT(worker.store.hypers(), ElementsAre("a 1 2"));
    EXPECT_FALSE(worker.exchange->SetHyper(0, {.learning_rate = -1}).ok());
    if (!backup) continue;
    ASSERT_TRUE(worker.Step({4, 8}).ok());
    ASSERT_TRUE(worker.exchange->BeginStep().ok());
    EXPECT_THAT(worker.a, ElementsAre(1 - 0.25 * (4 + 2 * 1), 2 - 0.25 * (8 + 2 * 2)));
    ASSERT_TRUE(worker.exchange->EndStep().ok());
    ASSERT_TRUE(worker.exchange->Drain().ok());
  }
}

TEST(LocalStepOf, IsTheServersOptimizer) {
  wire::OptimizerSpec spec = Sgd();
  spec.set_momentum(0.9);
  spec.set_nesterov(true);
  spec.set_weight_decay(0.01);
  spec.set_clip_gradient(3);
  const LocalUpdaterOptions sgd = LocalStepOf(spec).updater;
  EXPECT_EQ(sgd.optimizer, LocalOptimizer::kSgd);
  EXPECT_EQ(sgd.learning_rate, kLr);
  EXPECT_EQ(sgd.momentum, 0.9);
  EXPECT_TRUE(sgd.nesterov);
  EXPECT_EQ(sgd.weight_decay, 0.01);
  EXPECT_EQ(sgd.clip_gradient, 3);
  EXPECT_EQ(sgd.rescale_grad, 1) << "the gradient is this worker's, as backward made it";
  for (const auto& [kind, local] :
       {std::pair(wire::OptimizerSpec::ADAM, LocalOptimizer::kAdam),
        std::pair(wire::OptimizerSpec::ADAMW, LocalOptimizer::kAdamW)}) {
    wire::OptimizerSpec adam;
    adam.set_kind(kind);
    adam.set_beta1(0.8);
    adam.set_beta2(0.9);
    adam.set_epsilon(1e-6);
    const LocalUpdaterOptions made = LocalStepOf(adam).updater;
    EXPECT_EQ(made.optimizer, local);
    EXPECT_EQ(std::vector({made.beta1, made.beta2, made.epsilon}), std::vector({0.8, 0.9, 1e-6}));
  }
}

}  // namespace
}  // namespace slimps
