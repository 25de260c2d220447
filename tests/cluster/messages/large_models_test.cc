// SPDX-License-Identifier: Apache-2.0
// Models of many tensors and tensors of many partitions: what is said of each of them does not fit
// into one message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/awaited.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"

namespace slimps {
namespace {

constexpr size_t kTensors = 20000;

// A mixture of experts: kTensors tensors of 1 to 4 elements.
struct Experts {
  Experts() : values(kTensors) {
    for (size_t k = 0; k < kTensors; ++k) values[k].assign(1 + k % 4, static_cast<float>(k));
    for (size_t k = 0; k < kTensors; ++k) {
      tensors.push_back({.key = absl::StrCat("model.layers.", k / 320, ".block_sparse_moe.experts.",
                                             k % 320 / 3, ".w", k % 3 + 1, ".weight.", k),
                         .shape = {static_cast<int64_t>(values[k].size())},
                         .value = values[k]});
    }
  }
  std::vector<std::vector<float>> values;
  std::vector<InitTensor> tensors;
};

// Pushes the same number as every gradient's elements.
void PushAll(KVStore& store, const Experts& experts, float gradient) {
  for (size_t k = 0; k < kTensors; ++k) {
    const std::vector<float> values(experts.values[k].size(), gradient);
    ASSERT_STATUS_OK(store.Push(experts.tensors[k].key, values, 0));
  }
}

// Pulls all tensors at once.
void PullAll(KVStore& store, Experts& experts) {
  std::vector<Awaited> pulled(kTensors);
  for (size_t k = 0; k < kTensors; ++k) {
    store.PullAsync(experts.tensors[k].key, experts.values[k], 0, pulled[k].Callback());
  }
  for (Awaited& one : pulled) ASSERT_STATUS_OK(one.Await());
}

TEST(LargeModels, TwentyThousandTensorsTrain) {
  InProcessCluster cluster({.workers = 2, .servers = 2});
  cluster.RunWorkers([](KVStore& store) {
    Experts experts;
    ASSERT_STATUS_OK(store.Init(experts.tensors));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(1)));
    ASSERT_STATUS_OK(store.Barrier());
    ASSERT_NO_FATAL_FAILURE(PushAll(store, experts, 2 * static_cast<float>(store.rank())));
    ASSERT_NO_FATAL_FAILURE(PullAll(store, experts));
    for (size_t k = 0; k < kTensors; ++k) {
      ASSERT_EQ(experts.values[k], std::vector<float>(1 + k % 4, static_cast<float>(k) - 1));
    }
  });
}

TEST(LargeModels, NumbersOfEachTensorAreSummed) {
  InProcessCluster cluster({.workers = 2, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    const auto sums = store.AllReduceSum(std::vector<double>(kTensors, 1.5));
    ASSERT_STATUS_OK(sums.status());
    EXPECT_EQ(*sums, std::vector<double>(kTensors, 3));
  });
}

TEST(LargeModels, APolicyDecidesForTwentyThousandTensors) {
  ClusterOptions options{.workers = 2, .servers = 1};
  options.store.policy = "accordion:low=topk:ratio=0.5,high=topk:ratio=0.25,every=8,min_elements=1";
  InProcessCluster cluster(options);
  cluster.RunWorkers([](KVStore& store) {
    Experts experts;
    ASSERT_STATUS_OK(store.Init(experts.tensors));
    std::optional<wire::CodecMap> decided;
    for (double have_it = 0, round = 1; have_it < 2; ++round) {
      ASSERT_LT(round, 100) << "expected a decision that reports have made";
      ASSERT_NO_FATAL_FAILURE(PushAll(store, experts, 1));
      decided = store.codec_map();
      // The sum also holds up workers: servers take few rounds ahead.
      const auto sums = store.AllReduceSum(
          std::vector<double>{decided.has_value() && decided->version() > 0 ? 1.0 : 0.0});
      ASSERT_STATUS_OK(sums.status());
      have_it = sums->front();
    }
    ASSERT_STATUS_OK(store.Wait());
    EXPECT_EQ(decided->entries_size(), static_cast<int>(kTensors));
  });
}

TEST(LargeModels, OneTensorHasTwentyThousandPartitions) {
  ClusterOptions options{.workers = 2, .servers = 1};
  options.store.partition_bytes = 4096;
  InProcessCluster cluster(options);
  cluster.RunWorkers([](KVStore& store) {
    std::vector<float> weights(20000 * 1024, 1);
    const InitTensor tensor{.key = "w", .shape = {20000, 1024}, .value = weights};
    ASSERT_STATUS_OK(store.Init({tensor}));
    const std::vector<float> gradient(weights.size(), static_cast<float>(store.rank() + 1));
    ASSERT_STATUS_OK(store.Push("w", gradient, 0));
    ASSERT_STATUS_OK(store.Pull("w", weights, 0));
    EXPECT_TRUE(std::ranges::all_of(weights, [](float x) { return x == 3; }));
  });
}

}  // namespace
}  // namespace slimps
