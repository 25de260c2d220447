// SPDX-License-Identifier: Apache-2.0
// 1-bit Adam over a whole cluster in one process: Adam without compression until the variance is
// frozen, then one bit per element both ways, with the same weights on all workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/mutex.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr int kFreezeAfter = 4;

wire::OptimizerSpec OnebitAdam(uint64_t freeze_after = kFreezeAfter) {
  wire::OptimizerSpec spec;
  spec.set_kind(wire::OptimizerSpec::ONEBIT_ADAM);
  spec.set_learning_rate(0.01);
  spec.set_beta1(0.9);
  spec.set_beta2(0.99);
  spec.set_epsilon(1e-8);
  spec.set_weight_decay(0.1);
  spec.set_average(true);
  spec.set_rescale_grad(1.0 / 3);
  spec.set_freeze_after(freeze_after);
  return spec;
}

wire::OptimizerSpec AdamW() {
  wire::OptimizerSpec spec = OnebitAdam(0);
  spec.set_kind(wire::OptimizerSpec::ADAMW);
  return spec;
}

ClusterOptions Options(const std::string& codec = "1bit") {
  ClusterOptions options{.workers = 2, .servers = 2};
  options.store.compression = codec;
  options.store.fixed_threshold_bytes = 0;
  options.store.pull_compression = codec;
  options.store.fixed_pull_threshold_bytes = 0;
  options.store.partition_bytes = 8000;
  options.store.grad_scale = 3;
  options.store.retry_interval = absl::Milliseconds(100);
  return options;
}

const std::vector<size_t> kSizes = {1, 300, 5000};

// What a job leaves behind.
struct Saved {
  std::vector<std::vector<float>> weights;
  std::string states;
  std::map<uint32_t, std::string> residuals;  // by worker
};

struct Outcome {
  std::vector<std::vector<std::vector<float>>> seen;  // by round and tensor
  std::vector<uint64_t> pushed, pulled;  // payload bytes of one worker after each round
  Saved saved;
};

struct Training {
  ClusterOptions cluster = Options();
  wire::OptimizerSpec optimizer = OnebitAdam();
  int from = 1;
  int to = 12;
  const Saved* start = nullptr;
  bool workers_without_gradients = false;
  bool lends = false;  // gradients are lent instead of pushed
  double grows = 1;    // each round's gradients by the round's before
  bool late = false;   // some gradients of the last tensor come late, others never (TakeLate)
};

// Elements of the last tensor, in two of its partitions, that only worker 1 has gradients of, from
// round kLateFrom on.
constexpr int kLateFrom = 8;
bool IsLate(size_t i) { return i >= 1900 && i < 2100; }
bool IsNever(size_t i) { return i >= 4000 && i < 4200; }

void TakeLate(int round, uint32_t rank, std::vector<float>* gradient) {
  for (size_t i = 0; i < gradient->size(); ++i) {
    if (IsNever(i) || (IsLate(i) && (round < kLateFrom || rank != 1))) (*gradient)[i] = 0;
  }
}

Outcome Train(const Training& run) {
  Mutex mutex;
  std::map<uint32_t, Outcome> outcomes;
  std::map<uint32_t, std::string> residuals;
  InProcessCluster cluster(run.cluster);
  cluster.RunWorkers([&](KVStore& store) {
    auto [weights, tensors] = RandomTensors(kSizes);
    if (run.start != nullptr) weights = run.start->weights;
    for (size_t k = 0; k < tensors.size(); ++k) tensors[k].value = weights[k];
    ASSERT_STATUS_OK(store.Init(tensors));
    ASSERT_STATUS_OK(store.SetOptimizer(run.optimizer));
    ASSERT_STATUS_OK(store.Barrier());
    if (run.start != nullptr) {
      ASSERT_STATUS_OK(store.LoadOptimizerStates(run.start->states));
      ASSERT_STATUS_OK(store.LoadResiduals(run.start->residuals.at(store.rank())));
    }
    Outcome outcome;
    for (int round = run.from; round <= run.to; ++round) {
      std::vector<std::vector<float>> gradients;  // on loan until they are pulled
      for (size_t k = 0; k < kSizes.size(); ++k) {
        if (run.workers_without_gradients && round % 3 == static_cast<int>(store.rank())) {
          ASSERT_STATUS_OK(store.PushNothing(tensors[k].key));
        } else {
          std::vector<float>& gradient =
              gradients.emplace_back(Random(kSizes[k], 1000 * round + 10 * k + store.rank()));
          for (float& value : gradient) value *= static_cast<float>(std::pow(run.grows, round));
          if (run.late) TakeLate(round, store.rank(), &gradient);
          ASSERT_STATUS_OK(
              run.lends ? store.PushLent(tensors[k].key, {{.values = gradient, .place = {}}}, 0)
                        : store.Push(tensors[k].key, gradient, 0));
        }
      }
      for (size_t k = 0; k < kSizes.size(); ++k) {
        std::fill(weights[k].begin(), weights[k].end(), 1e30f);
        ASSERT_STATUS_OK(store.Pull(tensors[k].key, weights[k], 0));
      }
      outcome.seen.push_back(weights);
      outcome.pushed.push_back(store.totals().bytes_pushed);
      outcome.pulled.push_back(store.totals().bytes_pulled);
    }
    const auto states = store.SaveOptimizerStates();
    ASSERT_STATUS_OK(states.status());
    const auto kept = store.SaveResiduals();
    ASSERT_STATUS_OK(kept.status());
    MutexLock lock(&mutex);
    outcome.saved = {.weights = weights, .states = *states, .residuals = {}};
    outcomes[store.rank()] = std::move(outcome);
    residuals[store.rank()] = *kept;
  });
  outcomes[0].saved.residuals = residuals;
  EXPECT_EQ(outcomes.size(), run.cluster.workers);
  for (const auto& [rank, outcome] : outcomes) {
    EXPECT_TRUE(outcome.seen == outcomes[0].seen) << "worker " << rank << " differs";
  }
  return outcomes[0];
}

TEST(OnebitAdam, WarmsUpAsAdamwWithoutCompression) {
  ClusterOptions whole = Options("none");
  const Outcome adamw = Train({.cluster = whole, .optimizer = AdamW()});
  const Outcome onebit = Train({});
  for (size_t round = 0; round < adamw.seen.size(); ++round) {
    EXPECT_EQ(onebit.seen[round] == adamw.seen[round], round < kFreezeAfter) << round;
  }
}

TEST(OnebitAdam, PushesAndPullsOneBitPerElementOnceFrozen) {
  const Outcome outcome = Train({});
  size_t elements = 0;
  for (const size_t size : kSizes) elements += size;
  for (size_t round = 1; round < outcome.pushed.size(); ++round) {
    const uint64_t pushed = outcome.pushed[round] - outcome.pushed[round - 1];
    const uint64_t pulled = outcome.pulled[round] - outcome.pulled[round - 1];
    if (round < kFreezeAfter) {
      EXPECT_EQ(pushed, 4 * elements) << round;
    } else {
      EXPECT_LT(pushed, elements / 6) << round;
      EXPECT_LT(pulled, elements / 6) << round;
    }
  }
}

TEST(OnebitAdam, UncompressedMomentaMakeAdamsStepsWithTheFrozenVariance) {
  const Outcome compressed_by_nothing = Train({.cluster = Options("none")});
  const Outcome adamw = Train({.cluster = Options("none"), .optimizer = AdamW()});
  // One step later the variance is 1 % of a gradient's square behind: the steps are close.
  const auto& a = compressed_by_nothing.seen[kFreezeAfter][2];
  const auto& b = adamw.seen[kFreezeAfter][2];
  const auto& before = adamw.seen[kFreezeAfter - 1][2];
  double apart = 0, step = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    apart += std::abs(a[i] - b[i]);
    step += std::abs(b[i] - before[i]);
  }
  EXPECT_LT(apart, 0.4 * step);
  EXPECT_GT(apart, 0);
}

// kSizes' last tensor has 5000 elements, and noise of one bit for each of them.
TEST(OnebitAdam, ElementsWithoutAGradientStayUntilTheyGetOne) {
  for (const char* codec : {"none", "1bit"}) {
    Training run{.cluster = Options(codec), .optimizer = OnebitAdam(), .to = 20, .late = true};
    run.optimizer.set_weight_decay(0);
    const double rate = run.optimizer.learning_rate();
    const Outcome outcome = Train(run);
    for (size_t round = 1; round < outcome.seen.size(); ++round) {
      const std::vector<float>&before = outcome.seen[round - 1][2], &now = outcome.seen[round][2];
      double most = 0, sum = 0;
      for (size_t i = 0; i < now.size(); ++i) {
        const double moved = std::abs(now[i] - before[i]);
        if (IsNever(i)) {
          EXPECT_EQ(moved, 0) << codec << " round " << round + 1 << " element " << i;
        }
        if (!IsLate(i)) continue;
        most = std::max(most, moved);
        sum += moved;
      }
      if (round + 1 < kLateFrom) {
        EXPECT_EQ(most, 0) << codec << " round " << round + 1;
      } else {
        EXPECT_LT(most, 5 * rate) << codec << " round " << round + 1;
        EXPECT_GT(sum / 200, rate / 50) << codec << " round " << round + 1;
      }
    }
  }
}

TEST(OnebitAdam, AllWorkersHoldTheSameBitsWhateverTheNetworkDoes) {
  const Training run{.workers_without_gradients = true, .late = true};
  const Outcome reference = Train(run);
  Training other = run;
  other.cluster.shard_threads = 2;
  other.cluster.servers = 3;
  EXPECT_TRUE(Train(other).seen == reference.seen) << "shards";
  other.cluster.worker_faults = {.seed = 3, .drop = 0.05, .duplicate = 0.1, .delay = 0.1};
  EXPECT_TRUE(Train(other).seen == reference.seen) << "faults";
}

TEST(OnebitAdam, ASavedJobGoesOnWithTheSameBits) {
  const Outcome whole = Train({.late = true});
  // In the warm-up, at its end, and before and after late gradients.
  for (const int stop : {2, 4, 7, 8}) {
    const Outcome first = Train({.to = stop, .late = true});
    const Outcome second = Train({.from = stop + 1, .start = &first.saved, .late = true});
    for (size_t i = 0; i < second.seen.size(); ++i) {
      EXPECT_TRUE(second.seen[i] == whole.seen[stop + i]) << "stopped after " << stop << ", " << i;
    }
  }
}

TEST(OnebitAdam, OtherCodecsCompressMomentaToo) {
  for (const char* codec : {"qsgd:bits=4,norm=max,error_feedback=on", "topk:ratio=0.1"}) {
    const Outcome outcome = Train({.cluster = Options(codec)});
    EXPECT_LT(outcome.pushed.back() - outcome.pushed[kFreezeAfter],
              outcome.pushed[kFreezeAfter - 1]);
  }
}

// Returns the first round, from 1, whose pushes were compressed; 0: none was.
size_t FirstCompressed(const Outcome& outcome) {
  for (size_t i = 1; i < outcome.pushed.size(); ++i) {
    if (outcome.pushed[i] - outcome.pushed[i - 1] < outcome.pushed[0]) return i + 1;
  }
  return 0;
}

TEST(OnebitAdam, WithoutANumberTheWarmUpEndsWhenTheVarianceIsStable) {
  Training run{.optimizer = OnebitAdam(0), .to = 24};
  run.optimizer.set_beta2(0.8);  // so it looks after each 5 rounds
  const Outcome stable = Train(run);
  EXPECT_EQ(FirstCompressed(stable), 12u) << "after update 11, which follows the second look";
  Training given = run;
  given.optimizer.set_freeze_after(11);
  EXPECT_TRUE(Train(given).seen == stable.seen);
  run.lends = true;
  EXPECT_TRUE(Train(run).seen == stable.seen);
  run.optimizer.mutable_schedule()->set_warmup_rounds(14);
  EXPECT_EQ(FirstCompressed(Train(run)), 17u) << "the learning rate's own warm-up";
  run.grows = 0.95;
  EXPECT_EQ(FirstCompressed(Train(run)), 0u) << "the variance falls";
}

// Updates that plain AdamW made say nothing of the variance that 1-bit Adam begins with.
TEST(OnebitAdam, TheRuleComparesItsOwnUpdatesOnly) {
  InProcessCluster cluster(Options());
  cluster.RunWorkers([&](KVStore& store) {
    auto [weights, tensors] = RandomTensors(kSizes);
    ASSERT_STATUS_OK(store.Init(tensors));
    wire::OptimizerSpec optimizer = AdamW();
    for (int round = 1; round <= 20; ++round) {
      if (round == 1 || round == 11) {
        ASSERT_STATUS_OK(store.SetOptimizer(optimizer));
        ASSERT_STATUS_OK(store.Barrier());
        optimizer = OnebitAdam(0);
        optimizer.set_beta2(0.8);  // so it looks after each 5 rounds
      }
      const uint64_t before = store.totals().bytes_pushed;
      for (size_t k = 0; k < kSizes.size(); ++k) {
        // Gradients that fall fast: the variance is never stable.
        std::vector<float> gradient = Random(kSizes[k], 1000 * round + 10 * k + store.rank());
        for (float& value : gradient) value *= static_cast<float>(std::pow(0.5, round));
        ASSERT_STATUS_OK(store.Push(tensors[k].key, gradient, 0));
      }
      for (size_t k = 0; k < kSizes.size(); ++k) {
        ASSERT_STATUS_OK(store.Pull(tensors[k].key, weights[k], 0));
      }
      size_t raw = 0;
      for (const size_t size : kSizes) raw += size * sizeof(float);
      if (round <= 10) continue;
      EXPECT_EQ(store.totals().bytes_pushed - before, raw) << "round " << round;
    }
  });
}

TEST(OnebitAdam, TheOthersGoOnWhenAWorkerLeaves) {
  ClusterOptions options = Options();
  Mutex mutex;
  std::vector<std::vector<float>> ends;
  InProcessCluster cluster(options);
  cluster.RunWorkers([&](KVStore& store) {
    auto [weights, tensors] = RandomTensors(kSizes);
    ASSERT_STATUS_OK(store.Init(tensors));
    ASSERT_STATUS_OK(store.SetOptimizer(OnebitAdam()));
    ASSERT_STATUS_OK(store.Barrier());
    const Key key = tensors[2].key;
    std::vector<float> before = weights[2];
    for (int round = 1; round <= (store.rank() == 1 ? 7 : 12); ++round) {
      before = weights[2];
      ASSERT_STATUS_OK(store.Push(key, Random(kSizes[2], 10 * round + store.rank()), 0));
      ASSERT_STATUS_OK(store.Pull(key, weights[2], 0));
      EXPECT_NE(weights[2], before) << round;
    }
    if (store.rank() == 1) ASSERT_STATUS_OK(store.Leave());
    ASSERT_STATUS_OK(store.Barrier());
    ASSERT_STATUS_OK(store.Pull(key, weights[2], 0));
    MutexLock lock(&mutex);
    ends.push_back(weights[2]);
  });
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_TRUE(ends[0] == ends[1]) << "what the worker that left pulls is what the other stepped to";
}

TEST(OnebitAdam, APushBeforeThePullOfTheRoundBeforeIsRefused) {
  ClusterOptions options = Options();
  options.workers = 1;
  options.job_fails = true;
  InProcessCluster cluster(options);
  cluster.RunWorkers([&](KVStore& store) {
    std::vector<float> weights = Random(300, 1);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {300}, .value = weights}}));
    ASSERT_STATUS_OK(store.SetOptimizer(OnebitAdam(1)));
    ASSERT_STATUS_OK(store.Barrier());
    for (int round = 1; round <= 2; ++round) {
      ASSERT_STATUS_OK(store.Push("w", Random(300, round), 0));
      ASSERT_STATUS_OK(store.Pull("w", weights, 0));
    }
    ASSERT_STATUS_OK(store.Push("w", Random(300, 3), 0));
    (void)store.Push("w", Random(300, 4), 0);
    const absl::Status refused = store.Wait();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
    EXPECT_THAT(refused.message(), HasSubstr("pull that first"));
  });
}

TEST(OnebitAdam, WhatDoesNotGoTogetherIsRefused) {
  struct Refused {
    ClusterOptions cluster;
    wire::OptimizerSpec optimizer;
    const char* why;
  };
  const auto with = [](auto change) {
    ClusterOptions options = Options();
    change(options);
    return options;
  };
  wire::OptimizerSpec clipped = OnebitAdam();
  clipped.set_clip_gradient(1);
  wire::OptimizerSpec adam = AdamW();
  adam.set_freeze_after(3);
  const std::vector<Refused> cases = {
      {with([](auto& o) { o.mode = wire::DIST_SSP, o.store.pull_compression = "none"; }),
       OnebitAdam(), "dist_sync"},
      {with([](auto& o) { o.store.fixed_threshold_bytes.reset(); }), OnebitAdam(),
       "fixed thresholds"},
      {with([](auto& o) { o.store.compression = "signsgd"; }), OnebitAdam(), "averaged"},
      {with([](auto& o) { o.store.compression = "dgc"; }), OnebitAdam(), "momentum"},
      {with([](auto& o) { o.store.compression = "powersgd"; }), OnebitAdam(), "one exchange"},
      {Options(), clipped, "clip_gradient"},
      {Options(), adam, "freeze_after"},
  };
  for (const Refused& refused : cases) {
    InProcessCluster cluster(refused.cluster);
    cluster.RunWorkers([&](KVStore& store) {
      const absl::Status status = store.SetOptimizer(refused.optimizer);
      if (store.rank() != 0 && status.ok()) return;  // the servers' answer goes to rank 0
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << refused.why;
      EXPECT_THAT(status.message(), HasSubstr(refused.why));
    });
  }
}

TEST(OnebitAdam, RowsAreRefused) {
  InProcessCluster cluster(Options("none"));
  cluster.RunWorkers([&](KVStore& store) {
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {10, 3}, .value = std::vector<float>(30)}}));
    ASSERT_STATUS_OK(store.SetOptimizer(OnebitAdam()));
    const absl::Status refused =
        store.PushRowSparse("w", std::vector<int64_t>{1}, std::vector<float>(3), 0);
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(refused.message(), HasSubstr("onebit_adam"));
    ASSERT_STATUS_OK(store.Barrier());
  });
}

}  // namespace
}  // namespace slimps
