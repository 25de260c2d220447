// SPDX-License-Identifier: Apache-2.0
// Optimizer states saved from one job and loaded into another, over whole clusters.
#include "worker/saved/optimizer_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "proto/base/mutex.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

wire::OptimizerSpec Adam() {
  wire::OptimizerSpec spec;
  spec.set_kind(wire::OptimizerSpec::ADAM);
  spec.set_learning_rate(0.1);
  spec.set_beta1(0.9);
  spec.set_beta2(0.99);
  spec.set_epsilon(1e-8);
  return spec;
}

// What a job leaves behind, and the weights that all its workers had at the end.
struct Saved {
  std::vector<float> a, b;
  std::string states;
};

class Job {
 public:
  Job(const wire::OptimizerSpec& spec, ClusterOptions options)
      : spec_(spec), options_(std::move(options)) {}

  // Runs rounds `from` to `to`, starting from `start` if it is not null. Returns worker 0's result,
  // after checking that all workers hold the same.
  Saved Run(int from, int to, const Saved* start) {
    InProcessCluster cluster(options_);
    Mutex mutex;
    std::map<uint32_t, Saved> ends;
    cluster.RunWorkers([&](KVStore& store) {
      Saved now;
      now.a = start == nullptr ? Random(300, 1) : start->a;
      now.b = start == nullptr ? Random(7, 2) : start->b;
      ASSERT_STATUS_OK(store.Init({{.key = "a", .shape = {100, 3}, .value = now.a},
                                   {.key = "b", .shape = {7}, .value = now.b}}));
      ASSERT_STATUS_OK(store.SetOptimizer(spec_));
      ASSERT_STATUS_OK(store.Barrier());
      if (start != nullptr) ASSERT_STATUS_OK(store.LoadOptimizerStates(start->states));
      for (int round = from; round <= to; ++round) {
        const auto seed = static_cast<uint64_t>(10 * round) + store.rank();
        ASSERT_STATUS_OK(store.Push("a", Random(300, seed), 0));
        ASSERT_STATUS_OK(
            store.PushRowSparse("b", std::vector<int64_t>{round % 7, 6}, Random(2, seed), 0));
      }
      auto states = store.SaveOptimizerStates();
      ASSERT_STATUS_OK(states.status());
      now.states = *std::move(states);
      ASSERT_STATUS_OK(store.Pull("a", now.a, 0));
      ASSERT_STATUS_OK(store.Pull("b", now.b, 0));
      MutexLock lock(&mutex);
      ends[store.rank()] = std::move(now);
    });
    for (const auto& [rank, end] : ends) {
      EXPECT_EQ(end.states, ends.begin()->second.states) << "worker " << rank;
    }
    return ends.empty() ? Saved() : ends.begin()->second;
  }

 private:
  const wire::OptimizerSpec spec_;
  const ClusterOptions options_;
};

ClusterOptions Cluster(uint32_t servers, size_t partition_bytes,
                       wire::StoreMode mode = wire::DIST_SYNC) {
  ClusterOptions options{
      .workers = mode == wire::DIST_SYNC ? 2u : 1u, .servers = servers, .mode = mode};
  options.store.partition_bytes = partition_bytes;
  return options;
}

TEST(OptimizerStates, AJobThatIsResumedOnOtherServersGoesOnBitForBit) {
  wire::OptimizerSpec momentum = Sgd(0.1, 0.9);
  for (const wire::OptimizerSpec& spec : {Adam(), momentum}) {
    for (const auto mode : {wire::DIST_SYNC, wire::DIST_ASYNC}) {
      const Saved whole = Job(spec, Cluster(2, 200, mode)).Run(1, 6, nullptr);
      const Saved half = Job(spec, Cluster(2, 200, mode)).Run(1, 3, nullptr);
      EXPECT_NE(half.states, whole.states);
      const Saved resumed = Job(spec, Cluster(1, 1000, mode)).Run(4, 6, &half);
      EXPECT_EQ(resumed.a, whole.a);
      EXPECT_EQ(resumed.b, whole.b);
      EXPECT_EQ(resumed.states, whole.states);
      const auto parsed = ParseOptimizerStates(resumed.states);
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      EXPECT_EQ(parsed->keys.at("s:a").updates, 6u);
      EXPECT_EQ(parsed->keys.size(), 2u);
    }
  }
}

TEST(OptimizerStates, APlainOptimizerHasNoneButItsFileLoads) {
  const Saved saved = Job(Sgd(0.1), Cluster(2, 200)).Run(1, 2, nullptr);
  EXPECT_EQ(ParseOptimizerStates(saved.states)->tensors, 0u);
  Job(Sgd(0.1), Cluster(1, 200)).Run(3, 4, &saved);
}

TEST(OptimizerStates, WhatDoesNotFitIsRefusedAndChangesNothing) {
  const OptimizerStates good = {
      .kind = wire::OptimizerSpec::ADAM,
      .tensors = 2,
      .keys = {{"s:w", {.elements = 2, .updates = 5, .tensors = {{1, 1}, {1, 1}}}}}};
  InProcessCluster cluster(Cluster(1, 4));
  cluster.RunWorkers([&](KVStore& store) {
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {2}, .value = std::vector<float>(2)}}));
    ASSERT_STATUS_OK(store.SetOptimizer(Adam()));
    ASSERT_STATUS_OK(store.Barrier());
    const auto before = store.SaveOptimizerStates();
    ASSERT_STATUS_OK(before.status());
    const auto refusal = [&](const std::string& content, absl::StatusCode code) {
      const absl::Status status = store.LoadOptimizerStates(content);
      EXPECT_EQ(status.code(), code) << status;
      return std::string(status.message());
    };
    OptimizerStates bad = good;
    bad.kind = wire::OptimizerSpec::ADAMW;
    EXPECT_THAT(
        refusal(BuildOptimizerStates(bad), absl::StatusCode::kFailedPrecondition),
        HasSubstr("expected those of ADAM with 2 state tensors, as the store has it, got ADAMW"));
    bad = good;
    bad.keys["s:v"] = bad.keys["s:w"];
    EXPECT_THAT(refusal(BuildOptimizerStates(bad), absl::StatusCode::kInvalidArgument),
                HasSubstr("expected those of 1 keys, got 2"));
    bad.keys.erase("s:w");
    EXPECT_THAT(refusal(BuildOptimizerStates(bad), absl::StatusCode::kInvalidArgument),
                HasSubstr("key s:w is not in them"));
    bad.keys["s:w"] = {.elements = 1, .updates = 5, .tensors = {{1}, {1}}};
    EXPECT_THAT(refusal(BuildOptimizerStates(bad), absl::StatusCode::kInvalidArgument),
                HasSubstr("key s:w: expected 2 elements, got 1"));
    std::string damaged = BuildOptimizerStates(good);
    damaged[30] = static_cast<char>(damaged[30] ^ 1);
    EXPECT_THAT(refusal(damaged, absl::StatusCode::kDataLoss), HasSubstr("damaged"));
    // Only one worker brings damaged bytes. All workers get the error, and none waits.
    const std::string fine = BuildOptimizerStates(good);
    const absl::Status mixed = store.LoadOptimizerStates(store.rank() == 1 ? damaged : fine);
    EXPECT_EQ(mixed.code(),
              store.rank() == 1 ? absl::StatusCode::kDataLoss : absl::StatusCode::kAborted)
        << mixed;
    const auto after = store.SaveOptimizerStates();
    ASSERT_STATUS_OK(after.status());
    EXPECT_EQ(*after, *before);
    ASSERT_STATUS_OK(store.LoadOptimizerStates(fine));
    EXPECT_EQ(*store.SaveOptimizerStates(), fine);
    // A second load is not taken for a repeat of the first.
    ASSERT_STATUS_OK(store.LoadOptimizerStates(*before));
    EXPECT_EQ(*store.SaveOptimizerStates(), *before);
  });
}

TEST(OptimizerStates, WithoutAnOptimizerThereIsNothingToSave) {
  InProcessCluster cluster(Cluster(1, 100));
  cluster.RunWorkers([](KVStore& store) {
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {2}, .value = std::vector<float>(2)}}));
    const absl::Status refused = store.SaveOptimizerStates().status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("expected an optimizer"));
  });
}

}  // namespace
}  // namespace slimps
