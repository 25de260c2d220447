// SPDX-License-Identifier: Apache-2.0
// Policies that adapt, over whole clusters: workers measure, the scheduler decides, and every
// worker pushes by the decision from the same round on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/trace/trace.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/policies/trained_job.h"
#include "tests/cluster/random_values.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<size_t> kSizes = {6000, 9000, 300, 20};
constexpr char kLgreco[] = "lgreco:codec=topk:ratio=0.05,every=8";

// Returns a gradient like no other tensor's: the first one has few large elements, and the second
// has equal ones. A third of the way through training they change places.
std::vector<float> Gradient(size_t k, int round, uint32_t worker) {
  std::vector<float> values =
      Random(kSizes[k], static_cast<uint64_t>(1000 * round) + 10 * k + worker);
  const bool few = (k == 0) == (round <= 20);
  for (float& x : values) x = few ? x * x * x * x * x : std::copysign(1.0f, x);
  return values;
}

ClusterOptions Options(const std::string& policy) {
  ClusterOptions options{.workers = 2, .servers = 2};
  options.store.policy = policy;
  options.store.partition_bytes = 10000;
  return options;
}

Outcome Train(const ClusterOptions& options, int from, int to, const Outcome* start = nullptr) {
  const TrainedJob job = {.options = options,
                          .shapes = {{6000}, {9000}, {300}, {20}},
                          .optimizer = Sgd(0.05, 0.9),
                          .gradient_of = Gradient};
  return job.Train(from, to, start);
}

// Returns what was decided from `after` on: for each decision its round and its entries.
std::vector<std::string> Decided(const std::vector<wire::CodecMap>& decisions, int after) {
  std::vector<std::string> decided;
  for (wire::CodecMap map : decisions) {
    const auto round = static_cast<int64_t>(map.from_round()) - after;
    if (round <= 1) continue;
    map.set_from_round(static_cast<uint64_t>(round));
    map.clear_version();
    decided.push_back(map.SerializeAsString());
  }
  return decided;
}

TEST(Policies, LgrecoChangesLevelsAndAllWorkersAgree) {
  const Outcome end = Train(Options(kLgreco), 1, 45);
  const std::vector<wire::CodecMap>& decisions = end.decisions.at(0);
  ASSERT_GE(decisions.size(), 3u) << "one before any report, and two kinds of gradients";
  EXPECT_EQ(Decided(decisions, 0), Decided(end.decisions.at(1), 0));
  std::set<std::string> first;
  for (const wire::CodecMap& map : decisions) {
    EXPECT_THAT(map.reason(), HasSubstr("lgreco"));
    if (map.entries_size() > 0) first.insert(map.entries(0).codec());
  }
  EXPECT_GE(first.size(), 2u) << "the level of a tensor follows its gradients";
  ASSERT_EQ(end.codecs.size(), kSizes.size());
  for (const KeyCodec& one : end.codecs) {
    if (one.key == Key("w3")) {
      EXPECT_EQ(one.codec, "none") << "too small";
    } else {
      EXPECT_THAT(one.codec, HasSubstr("topk:ratio="));
      EXPECT_NE(one.reason, "");
    }
  }
  // At the same total error, fewer bytes than with the uniform setting.
  const Outcome uniform = Train(Options("uniform:codec=topk:ratio=0.05"), 1, 45);
  EXPECT_LT(end.totals.bytes_pushed, uniform.totals.bytes_pushed);
  EXPECT_EQ(uniform.decisions.at(0).size(), 1u);
}

TEST(Policies, ATraceHasEachDecisionThatComesWithItsReason) {
  TraceLog::Global().Start("test");
  const Outcome end = Train(Options(kLgreco), 1, 20);
  TraceLog::Global().Stop();
  size_t seen = 0;
  for (const TraceEvent& event : TraceLog::Global().Events()) {
    if (event.stage != TraceStage::kDecide) continue;
    ++seen;
    EXPECT_THAT(event.key, HasSubstr("times fewer"));
    EXPECT_GT(event.round, 8u);
  }
  // Two workers take each but the first, which no report made.
  ASSERT_GE(end.decisions.at(0).size(), 2u);
  EXPECT_EQ(seen, 2 * (end.decisions.at(0).size() - 1));
}

TEST(Policies, AJobCutInTwoDecidesAsOneThatRanThrough) {
  const ClusterOptions options = Options(kLgreco);
  const Outcome whole = Train(options, 1, 45);
  // At the end of a window, before a decision holds, and in mid-window.
  for (const int cut : {24, 26, 30}) {
    SCOPED_TRACE(cut);
    const Outcome half = Train(options, 1, cut);
    const Outcome rest = Train(options, cut + 1, 45, &half);
    EXPECT_EQ(rest.weights, whole.weights);
    for (const uint32_t worker : {0, 1}) {
      EXPECT_EQ(Decided(rest.decisions.at(worker), 0), Decided(whole.decisions.at(worker), cut));
    }
  }
}

TEST(Policies, ResidualsOfAnotherPolicyAreTakenAndItsDecisionsAreNot) {
  Outcome half = Train(Options(kLgreco), 1, 20);
  const ClusterOptions uniform = Options("uniform:codec=topk:ratio=0.01");
  const Outcome rest = Train(uniform, 21, 24, &half);
  EXPECT_THAT(rest.codecs[0].codec, HasSubstr("topk:ratio=0.01"));
  for (const wire::CodecMap& map : rest.decisions.at(0)) {
    EXPECT_THAT(map.reason(), Not(HasSubstr("lgreco")));
  }
  half.residuals.clear();
  EXPECT_NE(rest.weights, Train(uniform, 21, 24, &half).weights) << "residuals count";
}

TEST(Policies, WhatWasSavedIsTakenBeforeTheFirstPushOnly) {
  const Outcome half = Train(Options(kLgreco), 1, 10);
  InProcessCluster cluster(Options(kLgreco));
  cluster.RunWorkers([&](KVStore& store) {
    const auto empty = store.SaveResiduals();
    ASSERT_STATUS_OK(empty.status());
    auto [weights, tensors] = RandomTensors(kSizes);
    ASSERT_STATUS_OK(store.Init(tensors));
    ASSERT_STATUS_OK(store.LoadResiduals(*empty));
    for (size_t k = 0; k < kSizes.size(); ++k) {
      ASSERT_STATUS_OK(store.Push(tensors[k].key, Gradient(k, 1, store.rank()), 0));
    }
    const absl::Status late = store.LoadResiduals(half.residuals.at(store.rank()));
    EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(late.message()),
                HasSubstr("expected to be loaded before the first push, got 1 rounds pushed"));
  });
}

TEST(Policies, PullsMayFollowThem) {
  ClusterOptions options = Options(kLgreco);
  const auto pulled = [&] {
    InProcessCluster cluster(options);
    uint64_t bytes = 0;
    std::vector<std::vector<float>> weights[2];
    cluster.RunWorkers([&](KVStore& store) {
      auto [mine, tensors] = RandomTensors(kSizes);
      ASSERT_STATUS_OK(store.Init(tensors));
      ASSERT_STATUS_OK(store.SetOptimizer(Sgd(0.05)));
      ASSERT_STATUS_OK(store.Barrier());
      for (int round = 1; round <= 30; ++round) {
        for (size_t k = 0; k < kSizes.size(); ++k) {
          ASSERT_STATUS_OK(store.Push(tensors[k].key, Gradient(k, round, store.rank()), 0));
        }
        for (size_t k = 0; k < kSizes.size(); ++k) {
          ASSERT_STATUS_OK(store.Pull(tensors[k].key, mine[k], 0));
        }
      }
      weights[store.rank()] = mine;
      if (store.rank() == 0) bytes = store.totals().bytes_pulled;
    });
    EXPECT_EQ(weights[0], weights[1]);
    return bytes;
  };
  const uint64_t raw = pulled();
  options.store.pull_compression = "policy";
  EXPECT_LT(pulled(), raw / 3);
}

// Returns why a store with these options cannot be made. It does not look for its job before.
std::string Refusal(const KVStoreOptions& options, const char* type = "dist_sync") {
  const absl::Status refused = KVStore::Create(type, options).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  return std::string(refused.message());
}

KVStoreOptions With(const std::string& policy) {
  KVStoreOptions options = Options(policy).store;
  options.scheduler_address = "tcp://127.0.0.1:1";
  return options;
}

TEST(Policies, WhatMakesNoSenseIsRefusedByName) {
  EXPECT_THAT(Refusal(With("lgrec")), HasSubstr("did you mean 'lgreco'?"));
  EXPECT_THAT(Refusal(With("lgreco:codecs=topk")), HasSubstr("did you mean 'codec'?"));
  EXPECT_THAT(Refusal(With("lgreco:codec=1bit")), HasSubstr("1bit"));
  EXPECT_THAT(Refusal(With("lgreco:every=3")), HasSubstr("expected at least 8"));
  EXPECT_THAT(Refusal(With("joint:codecs=1bit|tpok")), HasSubstr("did you mean 'topk'?"));
  EXPECT_THAT(Refusal(With("joint:codecs=1bit|dgc")), HasSubstr("one without momentum"));
  EXPECT_THAT(Refusal(With("gravac:codec=1bit")), HasSubstr("codec for policy gravac"));
  KVStoreOptions options = With(kLgreco);
  options.compression = "1bit";
  EXPECT_THAT(Refusal(options), HasSubstr("with compression 1bit: expected compression none"));
  EXPECT_THAT(Refusal(With(kLgreco), "dist_async"),
              HasSubstr("with dist_async: expected dist_sync"));
  options = With(kLgreco);
  options.fixed_threshold_bytes = 0;
  EXPECT_THAT(Refusal(options), HasSubstr("threshold=0 with policy lgreco"));
  options = With(kLgreco);
  options.pull_compression = "1bit";
  EXPECT_THAT(Refusal(options), HasSubstr("pull_threshold=auto with policy lgreco"));
  options = With("threshold");
  options.pull_compression = "policy";
  EXPECT_THAT(Refusal(options), HasSubstr("expected a codec, or a policy that adapts"));
}

TEST(Policies, SetPolicyDoesWhatTheOptionDoesUntilTheFirstPush) {
  InProcessCluster(Options("threshold")).RunWorkers([](KVStore& store) {
    auto [weights, tensors] = RandomTensors(kSizes);
    ASSERT_STATUS_OK(store.Init(tensors));
    EXPECT_TRUE(absl::IsInvalidArgument(store.SetPolicy("lgreco:codec=1bit")));
    EXPECT_FALSE(store.codec_map().has_value()) << "nothing is half applied";
    ASSERT_STATUS_OK(store.SetPolicy(kLgreco));
    ASSERT_TRUE(store.codec_map().has_value());
    EXPECT_EQ(store.codec_map()->policy(), kLgreco);
    ASSERT_STATUS_OK(store.Push(tensors[0].key, Gradient(0, 1, store.rank()), 0));
    EXPECT_TRUE(absl::IsFailedPrecondition(store.SetPolicy("threshold")));
    ASSERT_STATUS_OK(store.PushNothing(tensors[1].key));
  });
}

TEST(Policies, ABudgetThatNothingMeetsEndsTheJobAndSaysWhatWouldDo) {
  ClusterOptions options = Options("lgreco:codec=topk:ratio=0.01,budget=1e-6,every=8");
  options.job_fails = true;
  options.workers = 1;
  absl::Status why;
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    auto [weights, tensors] = RandomTensors(kSizes);
    ASSERT_STATUS_OK(store.Init(tensors));
    for (int round = 1; round <= 30 && why.ok(); ++round) {
      for (size_t k = 0; k < kSizes.size() && why.ok(); ++k) {
        why = store.Push(tensors[k].key, Gradient(k, round, 0), 0);
      }
    }
    if (why.ok()) why = store.Wait();
  });
  EXPECT_THAT(std::string(why.message()), HasSubstr("no allocation meets budget=1e-06"));
}

}  // namespace
}  // namespace slimps
