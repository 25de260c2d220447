// SPDX-License-Identifier: Apache-2.0
// Switches off each mechanism of the pipeline, over a whole cluster in one process. No mechanism
// changes a bit of the result.
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"

namespace slimps {
namespace {

constexpr int kRounds = 5;

// Trains tensors of all sizes on two servers. Returns the weights that rank 0 holds at the end.
std::vector<float> Train(const KVStoreOptions& options, bool one_call, FaultPlan faults = {}) {
  ClusterOptions cluster{.workers = 2, .servers = 2, .store = options, .worker_faults = faults};
  cluster.store.partition_bytes = 64 << 10;
  cluster.store.retry_interval = absl::Milliseconds(200);
  std::vector<float> result;
  InProcessCluster(cluster).RunWorkers([&](KVStore& store) {
    const std::vector<size_t> sizes = {1, 7, 64, 1000, 5000, 40000};
    std::vector<std::vector<float>> weights;
    std::vector<InitTensor> tensors;
    for (size_t i = 0; i < sizes.size(); ++i) weights.push_back(Random(sizes[i], i));
    for (size_t i = 0; i < sizes.size(); ++i) {
      tensors.push_back({.key = Key(absl::StrCat("w", i)),
                         .shape = {static_cast<int64_t>(sizes[i])},
                         .value = weights[i]});
    }
    ASSERT_STATUS_OK(store.Init(tensors));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(0.1, 0.9)));
    ASSERT_STATUS_OK(store.Barrier());
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = sizes.size(); i-- > 0;) {
        const std::vector<float> gradient = Random(sizes[i], 100 * round + 10 * i + store.rank());
        const int priority = -static_cast<int>(i);
        if (one_call) {
          ASSERT_STATUS_OK(store.PushPull(tensors[i].key, gradient, weights[i], priority));
        } else {
          ASSERT_STATUS_OK(store.Push(tensors[i].key, gradient, priority));
        }
      }
      for (size_t i = 0; i < sizes.size() && !one_call; ++i) {
        ASSERT_STATUS_OK(store.Pull(tensors[i].key, weights[i], 0));
      }
    }
    if (store.rank() != 0) return;
    for (const auto& tensor : weights) result.insert(result.end(), tensor.begin(), tensor.end());
  });
  return result;
}

class PipelineTest : public ::testing::TestWithParam<const char*> {
 protected:
  KVStoreOptions Options() const {
    KVStoreOptions options;
    options.compression = GetParam();
    options.fixed_threshold_bytes = 256;
    return options;
  }
};

TEST_P(PipelineTest, NoSwitchChangesABit) {
  const std::vector<float> expected = Train(Options(), /*one_call=*/false);
  ASSERT_FALSE(expected.empty());
  KVStoreOptions alone = Options(), unordered = Options(), unchecked = Options(),
                 cramped = Options();
  alone.coalesce = false;
  unordered.prioritise = false;
  unchecked.checksums = false;
  cramped.staging_bytes = 1;  // one tensor at a time
  EXPECT_EQ(Train(alone, false), expected);
  EXPECT_EQ(Train(unordered, false), expected);
  EXPECT_EQ(Train(unchecked, false), expected);
  EXPECT_EQ(Train(cramped, false), expected);
}

TEST_P(PipelineTest, PushAndPullInOneMessageAreThoseOfTwo) {
  const std::vector<float> expected = Train(Options(), /*one_call=*/false);
  EXPECT_EQ(Train(Options(), /*one_call=*/true), expected);
  KVStoreOptions alone = Options();
  alone.coalesce = false;
  EXPECT_EQ(Train(alone, /*one_call=*/true), expected);
}

TEST_P(PipelineTest, CombinedMessagesSurviveLossAndRepetition) {
  const std::vector<float> expected = Train(Options(), /*one_call=*/true);
  FaultPlan faults;
  faults.seed = 5;
  faults.drop = 0.05;
  faults.duplicate = 0.1;
  EXPECT_EQ(Train(Options(), /*one_call=*/true, faults), expected);
}

INSTANTIATE_TEST_SUITE_P(Codecs, PipelineTest, ::testing::Values("none", "1bit"));

}  // namespace
}  // namespace slimps
