// SPDX-License-Identifier: Apache-2.0
// Learning rate, weight decay and momentum by key and round, over a whole cluster, against plain
// arithmetic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

// SGD with momentum as torch defines it, in the order of operations that servers promise. In double
// it distinguishes a wrong formula from a different rounding.
template <typename Float>
class PlainSgd {
 public:
  PlainSgd(const std::vector<float>& weights, double momentum)
      : weights_(weights.begin(), weights.end()), buf_(weights.size()), momentum_(momentum) {}

  void Step(const std::vector<float>& a, const std::vector<float>& b, const Hyper& hyper) {
    const auto rate = static_cast<Float>(hyper.learning_rate);
    const auto decay = static_cast<Float>(hyper.weight_decay);
    const auto momentum = static_cast<Float>(hyper.momentum.value_or(momentum_));
    for (size_t i = 0; i < weights_.size(); ++i) {
      const Float mean = (Float{a[i]} + Float{b[i]}) * Float{0.5};
      const Float decayed = std::fma(decay, weights_[i], mean);
      buf_[i] = momentum * buf_[i] + decayed;
      weights_[i] = std::fma(-rate, buf_[i], weights_[i]);
    }
  }
  const std::vector<Float>& weights() const { return weights_; }

 private:
  std::vector<Float> weights_, buf_;
  const double momentum_;
};

// Returns the hyperparameters of two parameter groups, each with its own schedule.
Hyper HyperOf(int group, int round) {
  if (group == 0) return {.learning_rate = 0.1 / round, .weight_decay = 1e-4};
  return {.learning_rate = round < 4 ? 0.03 : 0.003,
          .weight_decay = 0.01 * (round % 3),
          .momentum = 0.95 - 0.01 * round};
}

// Returns a weight with a gradient of zero after many small steps of momentum SGD.
double Decayed(double weight, double learning_rate, double weight_decay, double mu, int rounds) {
  double momentum = 0;
  for (int round = 0; round < rounds; ++round) {
    momentum = mu * momentum + weight_decay * weight;
    weight -= learning_rate * momentum;
  }
  return weight;
}

TEST(Hyper, WeightDecayBehindACodecsMomentumIsThatOfMomentumSgd) {
  constexpr int kRounds = 100;
  constexpr double kRate = 0.1, kDecay = 0.01;
  const double expected =
      Decayed(1, kRate, kDecay, 0.9, kRounds);  // 0.37; 0.9 without the momentum
  for (const bool by_key : {false, true}) {
    for (const bool codec_first : {false, true}) {
      ClusterOptions options{.workers = 2, .servers = 1};
      options.store.fixed_threshold_bytes = 2000;
      if (codec_first) options.store.compression = "dgc:mu=0.9";
      InProcessCluster cluster(options);
      cluster.RunWorkers([&](KVStore& store) {
        const std::vector<float> ones(1000, 1.0f), zeros(1000, 0.0f);
        std::vector<float> raw(100), encoded(1000);
        ASSERT_STATUS_OK(
            store.Init({{.key = "raw", .shape = {100}, .value = std::span(ones).first(100)},
                        {.key = "encoded", .shape = {1000}, .value = ones}}));
        wire::OptimizerSpec sgd = Sgd(kRate);
        if (!by_key) sgd.set_weight_decay(kDecay);
        ASSERT_STATUS_OK(store.SetOptimizer(sgd));
        if (!codec_first) {
          ASSERT_STATUS_OK(store.SetGradientCompression("dgc:mu=0.9"));
        }
        ASSERT_STATUS_OK(store.Barrier());
        for (const char* key : {"raw", "encoded"}) {
          if (by_key) {
            ASSERT_STATUS_OK(store.SetHyper(key, Hyper{kRate, kDecay}));
          }
        }
        for (int round = 0; round < kRounds; ++round) {
          ASSERT_STATUS_OK(store.Push("raw", std::span(zeros).first(100), 0));
          ASSERT_STATUS_OK(store.Push("encoded", zeros, 0));
          // No worker gets so far ahead that a server refuses its pushes for a while.
          ASSERT_STATUS_OK(store.Pull("raw", raw, 0));
          ASSERT_STATUS_OK(store.Pull("encoded", encoded, 0));
        }
        EXPECT_NEAR(raw[7], expected, 0.05);
        EXPECT_NEAR(encoded[7], expected, 0.05);
      });
    }
  }
}

TEST(Hyper, TwoGroupsWithSchedulesOfTheirOwnStepAsPlainArithmetic) {
  constexpr size_t kSizes[] = {300, 5000};
  for (const size_t partition_bytes : {size_t{4} << 20, size_t{800}}) {
    ClusterOptions options{.workers = 2, .servers = 2};
    options.store.partition_bytes = partition_bytes;
    InProcessCluster cluster(options);
    cluster.RunWorkers([&](KVStore& store) {
      auto [weights, tensors] = RandomTensors({kSizes[0], kSizes[1]});
      std::vector<PlainSgd<float>> exact;
      std::vector<PlainSgd<double>> close;
      for (const std::vector<float>& initial : weights) {
        exact.emplace_back(initial, 0.9);
        close.emplace_back(initial, 0.9);
      }
      ASSERT_STATUS_OK(store.Init(tensors));
      ASSERT_STATUS_OK(
          store.SetOptimizer(Sgd(/*learning_rate=*/1e6, 0.9)));  // overridden in each round
      ASSERT_STATUS_OK(store.Barrier());
      for (int round = 1; round <= 8; ++round) {
        for (int k = 0; k < 2; ++k) {
          const auto gradient = [&](uint32_t worker) {
            return Random(kSizes[k], static_cast<uint64_t>(100 * round + 10 * k) + worker);
          };
          ASSERT_STATUS_OK(store.SetHyper(tensors[k].key, HyperOf(k, round)));
          ASSERT_STATUS_OK(store.Push(tensors[k].key, gradient(store.rank()), 0));
          exact[k].Step(gradient(0), gradient(1), HyperOf(k, round));
          close[k].Step(gradient(0), gradient(1), HyperOf(k, round));
        }
        for (int k = 0; k < 2; ++k) {
          ASSERT_STATUS_OK(store.Pull(tensors[k].key, weights[k], 0));
          ASSERT_EQ(weights[k], exact[k].weights()) << "key " << k << " round " << round;
          for (size_t i = 0; i < kSizes[k]; ++i) {
            ASSERT_NEAR(weights[k][i], close[k].weights()[i], 1e-5) << k << " " << i;
          }
        }
      }
    });
  }
}

TEST(Hyper, EveryKindOfPushCarriesWhatWasSetWhenItWasMade) {
  InProcessCluster cluster({.workers = 1, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    std::vector<float> w(4);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {2, 2}, .value = w}}));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(1)));
    const std::vector<float> ones(4, 1.0f);
    ASSERT_STATUS_OK(store.SetHyper("w", Hyper{.learning_rate = 2}));
    ASSERT_STATUS_OK(store.Push("w", ones, 0));
    ASSERT_STATUS_OK(store.SetHyper("w", Hyper{.learning_rate = 64}));
    ASSERT_STATUS_OK(store.Pull("w", w, 0));
    EXPECT_EQ(w, std::vector<float>(4, -2.0f));
    ASSERT_STATUS_OK(store.SetHyper("w", Hyper{.learning_rate = 4}));
    ASSERT_STATUS_OK(
        store.PushRowSparse("w", std::vector<int64_t>{1}, std::vector<float>{1, 1}, 0));
    ASSERT_STATUS_OK(store.SetHyper("w", std::nullopt));
    ASSERT_STATUS_OK(store.PushNothing("w"));
    ASSERT_STATUS_OK(store.Pull("w", w, 0));
    EXPECT_EQ(w, (std::vector<float>{-2, -2, -6, -6}));
    ASSERT_STATUS_OK(store.PushPull("w", ones, w, 0));
    EXPECT_EQ(w, (std::vector<float>{-3, -3, -7, -7})) << "the optimizer's own again";
    ASSERT_STATUS_OK(store.SetHyper("w", Hyper{.learning_rate = 0.5}));
    ASSERT_STATUS_OK(store.PushPull("w", ones, w, 0));
    EXPECT_EQ(w, (std::vector<float>{-3.5, -3.5, -7.5, -7.5})) << "one message with the pull";
  });
}

TEST(Hyper, RankZerosCountsWhereAWorkerWithoutGradientBringsIt) {
  InProcessCluster cluster({.workers = 2, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    std::vector<float> w(3);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {3}, .value = w}}));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(1)));
    ASSERT_STATUS_OK(store.Barrier());
    ASSERT_STATUS_OK(store.SetHyper("w", Hyper{.learning_rate = store.rank() == 0 ? 2.0 : 64.0}));
    if (store.rank() == 0) {
      ASSERT_STATUS_OK(store.PushNothing("w"));
    } else {
      ASSERT_STATUS_OK(store.Push("w", std::vector<float>(3, 2.0f), 0));
    }
    ASSERT_STATUS_OK(store.Pull("w", w, 0));
    EXPECT_EQ(w, std::vector<float>(3, -2.0f)) << "the mean of 0 and 2, times 2";
  });
}

TEST(Hyper, ARoundInWhichNobodyHasAGradientIsSkipped) {
  InProcessCluster cluster({.workers = 2, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    std::vector<float> w(3, 4.0f);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {3}, .value = w}}));
    wire::OptimizerSpec decaying = Sgd(1, 0.5);
    decaying.set_weight_decay(0.25);
    ASSERT_STATUS_OK(store.SetOptimizer(decaying));
    ASSERT_STATUS_OK(store.Barrier());
    ASSERT_STATUS_OK(store.PushPull("w", std::vector<float>(3), w, 0));
    EXPECT_EQ(w, std::vector<float>(3, 3.0f));
    const auto before = store.SaveOptimizerStates();
    ASSERT_TRUE(before.ok()) << before.status();
    ASSERT_STATUS_OK(store.PushNothing("w"));
    ASSERT_STATUS_OK(store.Pull("w", w, 0));
    EXPECT_EQ(w, std::vector<float>(3, 3.0f));
    EXPECT_EQ(store.SaveOptimizerStates().value(), *before) << "nor was an update counted";
  });
}

TEST(Hyper, StoresWithoutRoundsStepEachPushByItsOwn) {
  for (const auto mode : {wire::DIST_ASYNC, wire::DIST_SSP}) {
    ClusterOptions options{.workers = 2, .servers = 1, .mode = mode};
    InProcessCluster cluster(options);
    cluster.RunWorkers([](KVStore& store) {
      std::vector<float> w(3);
      ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {3}, .value = w}}));
      ASSERT_STATUS_OK(store.SetOptimizer(Sgd(1000)));
      ASSERT_STATUS_OK(store.Barrier());
      ASSERT_STATUS_OK(store.SetHyper("w", Hyper{.learning_rate = store.rank() == 0 ? 2.0 : 8.0}));
      ASSERT_STATUS_OK(store.Push("w", std::vector<float>(3, 1.0f), 0));
      ASSERT_STATUS_OK(store.Wait());
      ASSERT_STATUS_OK(store.Barrier());
      ASSERT_STATUS_OK(store.Pull("w", w, 0));
      EXPECT_EQ(w, std::vector<float>(3, -10.0f));
    });
  }
}

TEST(Hyper, WhatMakesNoSenseIsRefusedHereAndTheStoreGoesOn) {
  InProcessCluster cluster({.workers = 1, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    std::vector<float> w(2);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {2}, .value = w}}));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(1)));
    EXPECT_EQ(store.SetHyper("v", Hyper{}).code(), absl::StatusCode::kNotFound);
    for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
      const absl::Status refused = store.SetHyper("w", Hyper{.learning_rate = bad});
      EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << bad;
      EXPECT_THAT(std::string(refused.message()), HasSubstr("key s:w: learning_rate: expected"));
    }
    ASSERT_STATUS_OK(store.PushPull("w", std::vector<float>{1, 2}, w, 0));
    EXPECT_EQ(w, (std::vector<float>{-1, -2}));
  });
}

}  // namespace
}  // namespace slimps
