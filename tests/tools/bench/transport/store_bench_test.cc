// SPDX-License-Identifier: Apache-2.0
// The worker's end of the bench on whole clusters in one process: its counts, and that it rejects
// wrong weights.
#include "tools/bench/transport/store_bench.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cluster/in_process_cluster.h"

namespace slimps {
namespace {

absl::StatusOr<std::string> Answer(StoreBench* bench, const char* line) {
  return bench->Answer(*ParseCommand(line));
}

size_t Samples(const std::string& json) {
  const std::string samples = json.substr(json.find('['));
  if (samples == "[]}") return 0;
  return 1 + static_cast<size_t>(std::count(samples.begin(), samples.end(), ','));
}

void ExpectSamples(StoreBench* bench, const char* line, size_t samples) {
  const absl::StatusOr<std::string> json = Answer(bench, line);
  ASSERT_TRUE(json.ok()) << line << ": " << json.status();
  EXPECT_EQ(Samples(*json), samples) << line;
}

void MeasureEverything(KVStore& store) {
  const auto bench = StoreBench::Create(&store);
  ASSERT_TRUE(bench.ok()) << bench.status();
  ExpectSamples(bench->get(), "push_pull bytes=4096 keys=5 rounds=3", 15);
  ExpectSamples(bench->get(), "push_pull bytes=4096 keys=5 rounds=2 lend=1", 10);
  ExpectSamples(bench->get(), "latency bytes=1024 count=4 pause_us=1", 4);
  const absl::StatusOr<std::string> verified = Answer(bench->get(), "verify");
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_EQ(*verified, "{\"verified_bytes\": 21504}");
}

TEST(StoreBench, MeasuresEveryPushPullAndVerifiesTheWeights) {
  for (const auto& [workers, servers] : {std::pair(1u, 1u), std::pair(2u, 2u), std::pair(3u, 1u)}) {
    InProcessCluster cluster({.workers = workers, .servers = servers});
    cluster.RunWorkers(MeasureEverything);
  }
}

TEST(StoreBench, ModelRoundsCountRoundsAndPartsHoldTheSameBytes) {
  InProcessCluster cluster({.workers = 1, .servers = 2});
  cluster.RunWorkers([](KVStore& store) {
    const auto bench = StoreBench::Create(&store);
    ASSERT_TRUE(bench.ok()) << bench.status();
    ExpectSamples(bench->get(), "model name=resnet50 part_bytes=0 rounds=2", 2);
    EXPECT_EQ(*Answer(bench->get(), "verify"), "{\"verified_bytes\": 102228128}");
    ExpectSamples(bench->get(), "model name=resnet50 part_bytes=4194304 rounds=1 lend=1", 1);
    EXPECT_EQ(*Answer(bench->get(), "verify"), "{\"verified_bytes\": 204456256}");
  });
}

TEST(StoreBench, RefusesWhatItDoesNotKnow) {
  InProcessCluster cluster({.workers = 1, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    const auto bench = StoreBench::Create(&store);
    ASSERT_TRUE(bench.ok()) << bench.status();
    EXPECT_EQ(Answer(bench->get(), "pull").status().message(),
              "command: expected push_pull, latency, model or verify, got \"pull\"");
    EXPECT_TRUE(
        absl::IsNotFound(Answer(bench->get(), "model name=alex part_bytes=0 rounds=1").status()));
    for (const char* line :
         {"push_pull bytes=3 keys=1 rounds=1", "push_pull bytes=4 keys=0 rounds=1",
          "push_pull bytes=4 keys=1 rounds=0", "latency bytes=4 count=0 pause_us=0",
          "latency bytes=4 count=1 pause_us=9999999"}) {
      EXPECT_TRUE(absl::IsInvalidArgument(Answer(bench->get(), line).status())) << line;
    }
  });
}

TEST(TensorSet, WeightsThatAreNotSgdsAreFound) {
  InProcessCluster cluster({.workers = 1, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    wire::OptimizerSpec other = BenchOptimizer();
    other.set_learning_rate(2 * other.learning_rate());
    ASSERT_STATUS_OK(store.SetOptimizer(other));
    auto set = TensorSet::Init(&store, "w", {100, 7});
    ASSERT_TRUE(set.ok()) << set.status();
    EXPECT_TRUE((*set)->Check().ok());  // nothing pushed yet
    ASSERT_TRUE((*set)->RunPipelined(3, Gradients::kCopied).ok());
    const absl::Status checked = (*set)->Check();
    EXPECT_EQ(checked.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(
        checked.message().find("key s:w/0 element 0 after 3 rounds: expected -0.00292969, got "
                               "-0.00585938"),
        std::string::npos)
        << checked;
  });
}

TEST(EqualParts, AddUpAndAreNoLargerThanAsked) {
  EXPECT_EQ(EqualParts(16, 8), (std::vector<size_t>{2, 2}));
  EXPECT_EQ(EqualParts(20, 8), (std::vector<size_t>{2, 2, 1}));
  EXPECT_EQ(EqualParts(4, 8), (std::vector<size_t>{1}));
}

}  // namespace
}  // namespace slimps
