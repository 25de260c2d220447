// SPDX-License-Identifier: Apache-2.0
// Residuals saved from one job and loaded into another, over whole clusters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

const std::vector<size_t> kSizes = {7, 900, 3000};

// What a job leaves behind: its weights, and what another job needs to go on with them.
struct Checkpoint {
  std::vector<std::vector<float>> weights;
  std::string states;
  std::map<uint32_t, std::string> residuals;  // by worker
};

// Compares all but one thing: how many updates a plain optimizer has made is not part of a job's
// state.
void ExpectSame(const Checkpoint& got, const Checkpoint& expected) {
  EXPECT_EQ(got.weights, expected.weights);
  EXPECT_TRUE(got.residuals == expected.residuals);
}

ClusterOptions Options(const std::string& compression, size_t partition_bytes = 2000,
                       wire::StoreMode mode = wire::DIST_SYNC) {
  ClusterOptions options{.workers = 2, .servers = 2, .mode = mode};
  options.store.compression = compression;
  options.store.fixed_threshold_bytes = 0;
  options.store.partition_bytes = partition_bytes;
  options.store.grad_scale = 4;
  return options;
}

enum class Residuals { kLoad, kForget };

// Trains rounds `from` to `to`, starting from `start` if it is not null.
Checkpoint Train(const ClusterOptions& options, int from, int to, const Checkpoint* start = nullptr,
                 Residuals residuals = Residuals::kLoad) {
  InProcessCluster cluster(options);
  Mutex mutex;
  Checkpoint end;
  cluster.RunWorkers([&](KVStore& store) {
    auto [weights, tensors] = RandomTensors(kSizes);
    for (size_t k = 0; start != nullptr && k < kSizes.size(); ++k) weights[k] = start->weights[k];
    ASSERT_STATUS_OK(store.Init(tensors));
    // A codec that has momentum itself must not meet momentum at the servers.
    wire::OptimizerSpec sgd =
        Sgd(0.05, options.store.compression.find("momentum") != std::string::npos ? 0 : 0.9);
    sgd.set_rescale_grad(0.25);
    ASSERT_STATUS_OK(store.SetOptimizer(sgd));
    ASSERT_STATUS_OK(store.Barrier());
    if (start != nullptr) {
      ASSERT_STATUS_OK(store.LoadOptimizerStates(start->states));
      if (residuals == Residuals::kLoad) {
        ASSERT_STATUS_OK(store.LoadResiduals(start->residuals.at(store.rank())));
      }
    }
    for (int round = from; round <= to; ++round) {
      for (size_t k = 0; k < kSizes.size(); ++k) {
        const auto seed = static_cast<uint64_t>(1000 * round) + 10 * k + store.rank();
        ASSERT_STATUS_OK(store.Push(tensors[k].key, Random(kSizes[k], seed), 0));
      }
    }
    const auto mine = store.SaveResiduals();
    ASSERT_STATUS_OK(mine.status());
    const auto states = store.SaveOptimizerStates();
    ASSERT_STATUS_OK(states.status());
    for (size_t k = 0; k < kSizes.size(); ++k) {
      ASSERT_STATUS_OK(store.Pull(tensors[k].key, weights[k], 0));
    }
    MutexLock lock(&mutex);
    end.weights = weights;
    end.states = *states;
    end.residuals[store.rank()] = *mine;
  });
  return end;
}

TEST(SavedResiduals, AJobCutInHalfIsTheJobThatRanThrough) {
  for (const char* codec : {"1bit", "topk:ratio=0.05", "topk:ratio=0.05,momentum=nesterov"}) {
    SCOPED_TRACE(codec);
    const ClusterOptions options = Options(codec);
    const Checkpoint whole = Train(options, 1, 8);
    const Checkpoint half = Train(options, 1, 4);
    EXPECT_NE(half.residuals, whole.residuals);
    EXPECT_NE(half.residuals.at(0), half.residuals.at(1)) << "each worker has its own";
    ExpectSame(Train(options, 5, 8, &half), whole);
    EXPECT_NE(Train(options, 5, 8, &half, Residuals::kForget).weights, whole.weights)
        << "without residuals it is another job";
  }
}

TEST(SavedResiduals, TheyMayBeTakenToOtherPartitions) {
  const Checkpoint half = Train(Options("topk:k=3"), 1, 4);
  // A raw push after loading sends all that was held back. The steps are the same bit for bit,
  // whatever the cut of the tensors.
  const Checkpoint same = Train(Options("none", 2000), 5, 5, &half);
  const Checkpoint finer = Train(Options("none", 700), 5, 5, &half);
  EXPECT_EQ(same.weights, finer.weights);
  const Checkpoint forgotten = Train(Options("none"), 5, 5, &half, Residuals::kForget);
  EXPECT_NE(same.weights, forgotten.weights);
}

TEST(SavedResiduals, WithoutRoundsToo) {
  ClusterOptions options = Options("1bit", 2000, wire::DIST_ASYNC);
  options.workers = 1;
  const Checkpoint whole = Train(options, 1, 6);
  const Checkpoint half = Train(options, 1, 3);
  ExpectSame(Train(options, 4, 6, &half), whole);
}

TEST(SavedResiduals, WhatDoesNotFitIsRefusedAndChangesNothing) {
  const Checkpoint saved = Train(Options("1bit"), 1, 2);
  InProcessCluster cluster(Options("1bit"));
  cluster.RunWorkers([&](KVStore& store) {
    auto [weights, tensors] = RandomTensors(kSizes);
    ASSERT_STATUS_OK(store.Init(tensors));
    const std::string& content = saved.residuals.at(store.rank());
    ASSERT_STATUS_OK(store.LoadResiduals(content));
    EXPECT_EQ(store.SaveResiduals().value(), content);
    const auto refusal = [&](const std::string& bad, absl::StatusCode code) {
      const absl::Status refused = store.LoadResiduals(bad);
      EXPECT_EQ(refused.code(), code) << refused;
      return std::string(refused.message());
    };
    std::string damaged = content;
    damaged[200] = static_cast<char>(damaged[200] ^ 1);
    EXPECT_THAT(refusal(damaged, absl::StatusCode::kDataLoss), HasSubstr("damaged"));
    EXPECT_THAT(refusal(saved.states, absl::StatusCode::kInvalidArgument),
                HasSubstr("expected content that begins with SLPSRESI"));
    EXPECT_EQ(store.SaveResiduals().value(), content);
    ASSERT_STATUS_OK(store.Barrier());
  });
  ClusterOptions other = Options("1bit");
  other.store.grad_scale = 8;
  InProcessCluster scaled(other);
  scaled.RunWorkers([&](KVStore& store) {
    auto [weights, tensors] = RandomTensors({7, 900});
    ASSERT_STATUS_OK(store.Init(tensors));
    const absl::Status refused = store.LoadResiduals(saved.residuals.at(store.rank()));
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("grad_scale 8, got times 4"));
    ASSERT_STATUS_OK(store.Barrier());
  });
}

TEST(SavedResiduals, LocalStoresSaySoThatTheyHaveNone) {
  const auto store = KVStore::Create("device", {});
  ASSERT_TRUE(store.ok());
  EXPECT_EQ((*store)->SaveResiduals().status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string((*store)->LoadResiduals("").message()), HasSubstr("device stores"));
}

}  // namespace
}  // namespace slimps
