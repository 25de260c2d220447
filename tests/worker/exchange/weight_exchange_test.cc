// SPDX-License-Identifier: Apache-2.0
#include "worker/exchange/weight_exchange.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/codec/codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/learning_rate.h"
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
  options.backup = MirroringBackup();
  return options;
}

// One worker of a job, with a model of "a" and "b".
struct Worker {
  Worker(FakeServer* server, uint32_t rank, std::vector<float> first)
      : a(std::move(first)), store(server, rank) {}

  absl::Status Start(const ExchangeOptions& options, const wire::OptimizerSpec& spec = Sgd()) {
    auto started = StartExchange(&store, parameters, spec, options);
    if (!started.ok()) return started.status();
    exchange = *std::move(started);
    return absl::OkStatus();
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
  wire::OptimizerSpec still = Sgd();
  still.set_learning_rate(0);
  EXPECT_THAT(std::string(worker.Start(options, still).message()),
              HasSubstr("learning_rate is 0, expected more than 0 with a loc_lr"));
  worker.store.set_type("dist_async");
  EXPECT_EQ(worker.Start(WithBackup()).code(), absl::StatusCode::kInvalidArgument);
}

TEST(WeightExchange, WeightsThatCameDuringBackwardAreWrittenAtTheStepsEnd) {
  for (const bool backup : {false, true}) {
    FakeServer server(1);
    Worker worker(&server, 0, {1, 2});
    ASSERT_TRUE(worker.Start(backup ? WithBackup() : ExchangeOptions()).ok());
    ASSERT_TRUE(worker.exchange->BeginStep().ok());
    const std::vector<float> gradient = {4, 8};
    worker.exchange->OnGradient(0, gradient);
    while (worker.store.events().back() != "arrived a 1") std::this_thread::yield();
    EXPECT_THAT(worker.a, ElementsAre(1, 2)) << "backward may still read them";
    ASSERT_TRUE(worker.exchange->EndStep().ok());
    EXPECT_THAT(worker.a, ElementsAre(-1, -2));
    ASSERT_TRUE(worker.exchange->Drain().ok());
  }
}

// Reads what another thread may write.
__attribute__((no_sanitize_thread)) float Peek(const std::vector<float>& values) {
  return *static_cast<const volatile float*>(values.data());
}

TEST(WeightExchange, SpareMemoryIsWrittenDuringBackwardAndExchangedAtTheStepsEnd) {
  for (const bool backup : {false, true}) {
    for (const bool overlap : {false, true}) {
      FakeServer server(1);
      FakeStore store(&server, 0);
      std::vector<float> memory[] = {{1, 2}, {1, 2}};
      const std::vector<Parameter> parameters = {
          {.name = "a", .shape = {2}, .values = memory[1], .spare = true}};
      ExchangeOptions options = backup ? WithBackup() : ExchangeOptions();
      options.overlap_forward = overlap;
      auto started = StartExchange(&store, parameters, Sgd(), options);
      ASSERT_TRUE(started.ok()) << started.status();
      WeightExchange& exchange = **started;
      const std::vector<float> gradient = {4, 8};
      for (int step = 0; step < 3; ++step) {
        std::vector<float>& weights = memory[step % 2];
        std::vector<float>& spare = memory[(step + 1) % 2];
        ASSERT_TRUE(exchange.BeginStep().ok());
        ASSERT_TRUE(exchange.SetMemory(0, spare).ok());
        const std::vector<float> before = weights;
        exchange.OnGradient(0, gradient);
        while (Peek(spare) != before[0] - 2) std::this_thread::yield();
        EXPECT_EQ(weights, before) << "backward may still read them";
        ASSERT_TRUE(exchange.EndStep().ok());
        ASSERT_TRUE(exchange.AwaitWeights(0).ok());
        EXPECT_THAT(spare, ElementsAre(before[0] - 2, before[1] - 4));
      }
      std::vector<float>& weights = memory[1];
      weights = {0, 0};
      ASSERT_TRUE(exchange.SetMemory(0, weights).ok());
      ASSERT_TRUE(exchange.Drain().ok());
      if (backup) {
        EXPECT_THAT(weights, ElementsAre(-5, -10));
      } else {
        EXPECT_THAT(weights, ElementsAre(0, 0)) << "the model has them; the caller may have others";
      }
      EXPECT_THAT(std::string(exchange.SetMemory(0, {weights.data(), 1}).message()),
                  HasSubstr("parameter a: memory of 1 elements; expected 2"));
    }
  }
}

TEST(WeightExchange, ADrainToSpareMemoryKeepsTheLocalWeights) {
  FakeServer server(1);
  FakeStore store(&server, 0);
  std::vector<float> memory[] = {{1, 2}, {1, 2}};
  const std::vector<Parameter> parameters = {
      {.name = "a", .shape = {2}, .values = memory[1], .spare = true}};
  ExchangeOptions options = WithBackup();
  options.backup->updater.loc_lr = 0.25;
  auto started = StartExchange(&store, parameters, Sgd(), options);
  ASSERT_TRUE(started.ok()) << started.status();
  WeightExchange& exchange = **started;
  const std::vector<float> gradient = {4, 8};
  ASSERT_TRUE(exchange.BeginStep().ok());
  exchange.OnGradient(0, gradient);
  ASSERT_TRUE(exchange.EndStep().ok());
  EXPECT_THAT(memory[1], ElementsAre(0, 0)) << "this worker's own step";
  ASSERT_TRUE(exchange.Drain().ok());
  EXPECT_THAT(memory[1], ElementsAre(-1, -2)) << "the servers'";
  ASSERT_TRUE(exchange.BeginStep().ok());
  EXPECT_THAT(memory[1], ElementsAre(0, 0));
  ASSERT_TRUE(exchange.SetMemory(0, memory[0]).ok());
  ASSERT_TRUE(exchange.Drain().ok());
  EXPECT_THAT(memory[0], ElementsAre(-1, -2));
  EXPECT_THAT(memory[1], ElementsAre(0, 0));
  exchange.OnGradient(0, gradient);
  EXPECT_THAT(std::string(exchange.SetMemory(0, memory[1]).message()),
              HasSubstr("parameter a: its gradient of this step has gone out"));
  ASSERT_TRUE(exchange.EndStep().ok());
  EXPECT_THAT(memory[0], ElementsAre(-2, -4)) << "from version 1";
}

class SteppedClock final : public Clock {
 public:
  SteadyTime Now() const override { return SteadyTime() + absl::Milliseconds(now_ms_.load()); }
  absl::Time WallNow() const override { return absl::UnixEpoch(); }
  void Advance() { now_ms_ += 5; }

 private:
  std::atomic<int> now_ms_{0};
};

// A round goes on for 5 ms, from the push of one gradient to the arrival of the other's weights.
TEST(WeightExchange, WhatGoesOnWhileNobodyWaitsIsOverlap) {
  for (const bool backup : {false, true}) {
    for (const bool overlap : {false, true}) {
      SteppedClock clock;
      FakeServer server(1);
      Worker worker(&server, 0, {1, 2});
      ExchangeOptions options = backup ? WithBackup() : ExchangeOptions();
      options.overlap_forward = overlap;
      options.clock = &clock;
      ASSERT_TRUE(worker.Start(options).ok());
      const std::vector<float> a = {4, 8}, b = {1};
      for (int step = 1; step <= 3; ++step) {
        ASSERT_TRUE(worker.exchange->BeginStep().ok());
        worker.exchange->OnGradient(0, a);
        clock.Advance();
        worker.exchange->OnGradient(1, b);
        for (const char* name : {"a ", "b "}) {
          const std::string arrived = absl::StrCat("arrived ", name, step);
          while (std::ranges::count(worker.store.events(), arrived) == 0) {
            std::this_thread::yield();
          }
        }
        ASSERT_TRUE(worker.exchange->EndStep().ok());
        for (const size_t index : {0, 1}) {
          ASSERT_TRUE(worker.exchange->AwaitWeights(index).ok());
        }
      }
      ASSERT_TRUE(worker.exchange->Drain().ok());
      EXPECT_EQ(worker.exchange->times().overlap, absl::Milliseconds(15)) << backup << overlap;
      EXPECT_EQ(worker.exchange->times().wait, absl::ZeroDuration());
    }
  }
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
    ExchangeOptions options = WithBackup();
    options.timeout = absl::Milliseconds(20);
    ASSERT_TRUE(worker.Start(options).ok());
    worker.store.AllowVersions(0);
    worker.store.set_measuring(this_step);
    ASSERT_TRUE(worker.exchange->BeginStep().ok());
    worker.store.set_measuring(next_step);
    // The weights do not come, so only a step that waits for them runs into its deadline.
    EXPECT_EQ(worker.exchange->EndStep().code(),
              this_step || next_step ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kOk);
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

// An optimizer that was set without momentum ignores one, and so does the local step: its momentum
// is the codec's.
TEST(WeightExchange, ACodecsMomentumStaysWhateverTheOptimizersIsSetTo) {
  const auto dgc = MakeCodec(*ParseCodecSpec("dgc:mu=0.5"));
  FakeServer server(1);
  Worker worker(&server, 0, {1, 2});
  worker.store.set_codec(dgc->get());
  ASSERT_TRUE(worker.Start(WithBackup()).ok());
  ASSERT_TRUE(worker.exchange->SetHyper(0, {.learning_rate = kLr, .momentum = 0}).ok());
  ASSERT_TRUE(worker.Step({4, 8}).ok());
  ASSERT_TRUE(worker.Step({4, 8}).ok());
  ASSERT_TRUE(worker.exchange->BeginStep().ok());
  EXPECT_THAT(worker.a, ElementsAre(-1 - kLr * 1.5 * 4, -2 - kLr * 1.5 * 8)) << "from version 1";
  ASSERT_TRUE(worker.exchange->EndStep().ok());
  ASSERT_TRUE(worker.exchange->Drain().ok());
}

// Two workers have different gradients. Each computes its next step on the servers' next weights
// plus a quarter of the momentum's step after that. Only the share of the other worker's gradient
// is missing.
TEST(WeightExchange, TheLocalStepGoesOnWithTheServersMomentum) {
  constexpr double kMomentum = 0.75;
  constexpr int kSteps = 6;
  wire::OptimizerSpec spec = Sgd();
  spec.set_momentum(kMomentum);
  spec.mutable_schedule()->set_kind(wire::LearningRateSchedule::LINEAR);
  spec.mutable_schedule()->set_total_rounds(2 * kSteps);
  FakeServer server(2);
  Worker first(&server, 0, {1, 2}), second(&server, 1, {1, 2});
  const auto gradient = [](int step, int rank, int element) {
    return 0.125f * static_cast<float>((step * 5 + rank * 3 + element * 7) % 9 - 4);
  };
  const auto run = [&](Worker* worker, int rank) {
    ASSERT_TRUE(worker->Start(WithBackup(), spec).ok());
    for (int step = 1; step <= kSteps; ++step) {
      ASSERT_TRUE(worker->exchange->BeginStep().ok());
      const std::vector<float> predicted = worker->a;
      const std::vector<float> mine = {gradient(step, rank, 0), gradient(step, rank, 1)};
      worker->exchange->OnGradient(0, mine);
      ASSERT_TRUE(worker->exchange->EndStep().ok());
      if (step == 1) continue;
      // Checks the round before: the worker predicted it from version step - 2, and the servers
      // have made its weights now.
      const double rate = LearningRateAt(kLr, spec.schedule(), static_cast<uint64_t>(step - 1));
      const std::vector<float> made = server.Read("a", static_cast<uint64_t>(step - 1));
      for (int k = 0; k < 2; ++k) {
        const double others = (gradient(step - 1, 1 - rank, k) - gradient(step - 1, rank, k)) / 2.0;
        const std::vector<float> before = server.Read("a", static_cast<uint64_t>(step - 2));
        const double way = made[k] + rate * others - before[k];
        EXPECT_NEAR(predicted[k], before[k] + (1 + 0.5 * kMomentum) * way, 1e-5) << "step " << step;
      }
    }
    ASSERT_TRUE(worker->exchange->Drain().ok());
  };
  std::thread other([&] { run(&second, 1); });
  run(&first, 0);
  other.join();
}

TEST(LocalStepOf, AVoteStepsBySignsAndACodecsMomentumIsThisWorkersOwn) {
  FakeServer server(2);
  FakeStore store(&server, 0, /*grad_scale=*/32);
  wire::OptimizerSpec spec = Sgd();
  const auto signsgd = MakeCodec(*ParseCodecSpec("signsgd"));
  store.set_codec(signsgd->get());
  const auto votes = LocalUpdater::Create(LocalStepOf(spec, store));
  ASSERT_TRUE(votes.ok()) << votes.status();
  LocalUpdaterState state;
  const std::vector<float> base = {1, 1, 1}, gradient = {3e-4f, -2e6f, 0};
  std::vector<float> updated(3);
  votes->Step(base, gradient, kLr, state, updated);
  EXPECT_THAT(updated, ElementsAre(1 - kLr, 1 + kLr, 1));

  spec.set_rescale_grad(1.0 / 32);
  const auto dgc = MakeCodec(*ParseCodecSpec("dgc:mu=0.5"));
  store.set_codec(dgc->get());
  const LocalUpdaterOptions own = LocalStepOf(spec, store);
  EXPECT_EQ(own.moments, Moments::kOwn);
  EXPECT_EQ(own.update.momentum, 0.5);
  EXPECT_FALSE(own.update.nesterov);
  EXPECT_EQ(own.update.scale, 1);
}

TEST(LocalStepOf, TheGradientIsScaledAsTheServersScaleAMean) {
  FakeServer server(4);
  const FakeStore store(&server, 0, /*grad_scale=*/32);
  wire::OptimizerSpec spec = Sgd();
  spec.set_rescale_grad(0.25);
  EXPECT_EQ(LocalStepOf(spec, store).update.scale, 0.25 * 32);
  spec.set_average(false);
  EXPECT_EQ(LocalStepOf(spec, store).update.scale, 0.25 * 32 * 4);
}

TEST(LocalStepOf, LooksAheadTheFurtherTheLessItKnows) {
  wire::OptimizerSpec spec = Sgd();
  spec.set_momentum(0.9);
  for (const auto& [workers, ahead] : {std::pair(1, 0.0), std::pair(2, 0.5), std::pair(8, 0.875)}) {
    FakeServer server(static_cast<uint32_t>(workers));
    EXPECT_EQ(LocalStepOf(spec, FakeStore(&server, 0)).look_ahead, ahead) << workers;
  }
}

TEST(LocalStepOf, IsHalfOfPlainSgdBesideOtherWorkers) {
  wire::OptimizerSpec spec = Sgd();
  for (const auto& [momentum, workers, weight] :
       {std::tuple(0.0, 1u, 1.0), std::tuple(0.0, 2u, 0.5), std::tuple(0.0, 8u, 0.5),
        std::tuple(0.9, 2u, 1.0)}) {
    spec.set_momentum(momentum);
    FakeServer server(workers);
    EXPECT_EQ(LocalStepOf(spec, FakeStore(&server, 0)).own_weight, weight) << workers;
  }
  spec.set_momentum(0);
  FakeServer server(2);
  FakeStore store(&server, 0);
  const auto dgc = MakeCodec(*ParseCodecSpec("dgc"));
  store.set_codec(dgc->get());
  EXPECT_EQ(LocalStepOf(spec, store).own_weight, 1) << "the codec has a momentum";
}

TEST(LocalStepOf, IsTheServersOptimizer) {
  FakeServer server(1);
  const FakeStore store(&server, 0);
  wire::OptimizerSpec spec = Sgd();
  spec.set_momentum(0.9);
  spec.set_nesterov(true);
  spec.set_weight_decay(0.01);
  spec.set_clip_gradient(3);
  const LocalUpdaterOptions sgd = LocalStepOf(spec, store);
  EXPECT_EQ(sgd.update.kind, UpdateKind::kSgd);
  EXPECT_EQ(sgd.moments, Moments::kServers);
  EXPECT_EQ(sgd.learning_rate, kLr);
  EXPECT_EQ(sgd.update.momentum, 0.9);
  EXPECT_TRUE(sgd.update.nesterov);
  EXPECT_EQ(sgd.update.weight_decay, 0.01);
  EXPECT_EQ(sgd.update.clip, 3);
  for (const auto& [kind, local] : {std::pair(wire::OptimizerSpec::ADAM, UpdateKind::kAdam),
                                    std::pair(wire::OptimizerSpec::ADAMW, UpdateKind::kAdamW)}) {
    wire::OptimizerSpec adam;
    adam.set_kind(kind);
    adam.set_beta1(0.8);
    adam.set_beta2(0.9);
    adam.set_epsilon(1e-6);
    const UpdateOptions made = LocalStepOf(adam, store).update;
    EXPECT_EQ(made.kind, local);
    EXPECT_EQ(std::vector({made.beta1, made.beta2, made.epsilon}), std::vector({0.8, 0.9, 1e-6}));
  }
}

}  // namespace
}  // namespace slimps
