// SPDX-License-Identifier: Apache-2.0
// Training over real servers in one process. It is compared with plain libtorch, and bit for bit
// with itself under other cuts of the job and other timings of the network.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "server/service/directory.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/worker/trainer/reference_training.h"
#include "tests/worker/trainer/synthetic_data.h"
#include "worker/kvstore_options.h"
#include "worker/trainer/options.h"
#include "worker/trainer/train_loop.h"

namespace slimps {
namespace {

using Weights = std::vector<std::vector<float>>;

constexpr uint64_t kSeed = 3;
constexpr size_t kWholeBatch = 16;

struct Job {
  ClusterOptions cluster;
  int64_t steps = 50;
  std::string compression = "none";
  std::string threshold = "auto";
  std::string backup_model = "off";
  std::string optimizer = "sgd";
};

// Trains lenet. Returns rank 0's weights, after checking that the other workers have the same bits.
Weights TrainLenet(Job job, const Dataset& data) {
  SetComputeThreads(1);
  WorkerFlags flags;
  flags.model = "lenet";
  flags.optimizer = job.optimizer;
  flags.lr = 0.05;
  flags.batch = static_cast<int64_t>(kWholeBatch / job.cluster.workers);
  flags.epochs = 10;
  flags.max_steps = job.steps;
  flags.seed = kSeed;
  flags.store = {{"scheduler", "unused:1"},
                 {"num_workers", std::to_string(job.cluster.workers)},
                 {"compression", job.compression},
                 {"threshold", job.threshold}};
  flags.backup_model = job.backup_model;
  const auto options = CheckWorkerFlags(flags);
  EXPECT_TRUE(options.ok()) << options.status();
  const KVStoreOptions given = job.cluster.store;
  job.cluster.store = options->store;
  job.cluster.store.partition_bytes = given.partition_bytes;
  job.cluster.store.retry_interval = given.retry_interval;

  std::vector<std::unique_ptr<Model>> models;
  for (uint32_t rank = 0; rank < job.cluster.workers; ++rank) {
    models.push_back(*MakeModel("lenet", data, kSeed + rank));  // rank 0's weights count
  }
  InProcessCluster(job.cluster).RunWorkers([&](KVStore& store) {
    const auto report = Train(options->train, data, models[store.rank()].get(), &store, nullptr);
    EXPECT_TRUE(report.ok()) << report.status();
  });
  Weights weights;
  for (const Parameter& parameter : models[0]->parameters()) {
    weights.emplace_back(parameter.values.begin(), parameter.values.end());
  }
  for (const auto& model : models) {
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_TRUE(
          std::equal(weights[i].begin(), weights[i].end(), model->parameters()[i].values.begin()))
          << "workers disagree on " << model->parameters()[i].name;
    }
  }
  return weights;
}

float LargestDifference(const Weights& a, const Weights& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < a[i].size(); ++k)
      largest = std::max(largest, std::abs(a[i][k] - b[i][k]));
  }
  return largest;
}

TEST(PartitionBytes, AWorkerMayAskForWhatAServerTakesAndNoMore) {
  const uint64_t bytes = DirectoryLimits{}.max_partition_elements * sizeof(float);
  KVStoreOptions options;
  EXPECT_TRUE(SetOption("partition_bytes", std::to_string(bytes), &options).ok()) << bytes;
  EXPECT_FALSE(SetOption("partition_bytes", std::to_string(bytes + 1), &options).ok()) << bytes;
}

class Training : public ::testing::Test {
 protected:
  const Dataset data_ = SyntheticImages(160, {1, 28, 28});
};

TEST_F(Training, FiftyStepsOfLenetAreWithin1e5OfPlainLibtorchWithTheWholeBatch) {
  const Weights reference = TrainInPlainLibtorch(
      {.model = "lenet", .steps = 50, .batch = kWholeBatch, .seed = kSeed, .learning_rate = 0.05},
      data_);
  const Weights ours = TrainLenet({.cluster = {.workers = 2, .servers = 2}}, data_);
  EXPECT_LT(LargestDifference(reference, ours), 1e-5f);
  // The comparison can fail: another training is further away.
  const Weights fewer = TrainLenet({.cluster = {.workers = 2, .servers = 2}, .steps = 49}, data_);
  EXPECT_GT(LargestDifference(reference, fewer), 1e-5f);
}

TEST_F(Training, FiftyStepsOfLenetAreTheSameBitsHoweverTheJobIsCut) {
  const Weights reference = TrainLenet({.cluster = {.workers = 2, .servers = 1}}, data_);
  EXPECT_EQ(TrainLenet({.cluster = {.workers = 2, .servers = 1}}, data_), reference) << "repeated";
  EXPECT_EQ(TrainLenet({.cluster = {.workers = 2, .servers = 2, .shard_threads = 2}}, data_),
            reference);
  ClusterOptions shuffled{.workers = 2, .servers = 3, .shard_threads = 2};
  shuffled.store.partition_bytes = 50'000;
  shuffled.store.retry_interval = absl::Milliseconds(50);
  shuffled.worker_faults = {.seed = 3, .duplicate = 0.05, .reorder = 0.2};
  EXPECT_EQ(TrainLenet({.cluster = shuffled}, data_), reference)
      << "small partitions, shuffled arrival";
}

TEST_F(Training, BackupModelAndCompressionRepeatBitForBitWhateverTheTiming) {
  const Job quiet{.cluster = {.workers = 2, .servers = 2},
                  .steps = 30,
                  .compression = "1bit",
                  .threshold = "4096",
                  .backup_model = "on"};
  const Weights reference = TrainLenet(quiet, data_);
  Job slow = quiet;
  slow.cluster.worker_transport.emulate_link_latency = absl::Milliseconds(7);
  EXPECT_EQ(TrainLenet(slow, data_), reference);
  Job disturbed = quiet;
  disturbed.cluster.servers = 3;
  disturbed.cluster.store.retry_interval = absl::Milliseconds(50);
  disturbed.cluster.worker_faults = {.seed = 9, .drop = 0.03, .duplicate = 0.05, .reorder = 0.1};
  EXPECT_EQ(TrainLenet(disturbed, data_), reference);
}

}  // namespace
}  // namespace slimps
