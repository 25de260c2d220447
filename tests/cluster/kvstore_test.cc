// SPDX-License-Identifier: Apache-2.0
// The KVStore over a whole cluster in one process: MXNet's store semantics, exactly-once counting,
// repeatability.
#include "worker/kvstore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/base/awaited.h"
#include "proto/base/mutex.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

// Collects the values that workers found, by rank.
class Results {
 public:
  void Put(uint32_t rank, std::vector<float> values) {
    MutexLock lock(&mutex_);
    values_[rank] = std::move(values);
  }
  const std::map<uint32_t, std::vector<float>>& values() const { return values_; }

 private:
  Mutex mutex_;
  std::map<uint32_t, std::vector<float>> values_;
};

// Trains a few tensors on random gradients. Returns all weights, one after another, as each worker
// sees them.
struct Run {
  ClusterOptions cluster;
  int rounds = 6;
  std::vector<size_t> sizes = {1, 10, 300, 5000, 70000};
  double momentum = 0.9;
};

std::vector<float> Train(const Run& run) {
  Results results;
  InProcessCluster cluster(run.cluster);
  cluster.RunWorkers([&](KVStore& store) {
    auto [weights, tensors] = RandomTensors(run.sizes);
    ASSERT_STATUS_OK(store.Init(tensors));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(0.1, run.momentum)));
    ASSERT_STATUS_OK(store.Barrier());
    for (int round = 1; round <= run.rounds; ++round) {
      for (size_t k = 0; k < run.sizes.size(); ++k) {
        const auto gradient = Random(run.sizes[k], 1000 * round + 10 * k + store.rank());
        ASSERT_STATUS_OK(store.Push(tensors[k].key, gradient, -static_cast<int>(k)));
      }
      for (size_t k = 0; k < run.sizes.size(); ++k) {
        ASSERT_STATUS_OK(store.Pull(tensors[k].key, weights[k], -static_cast<int>(k)));
      }
    }
    std::vector<float> all;
    for (const auto& w : weights) all.insert(all.end(), w.begin(), w.end());
    results.Put(store.rank(), std::move(all));
  });
  for (const auto& [rank, values] : results.values()) {
    EXPECT_EQ(values, results.values().begin()->second) << "worker " << rank << " differs";
  }
  return results.values().empty() ? std::vector<float>() : results.values().begin()->second;
}

TEST(KVStore, WithoutOptimizerARoundStoresTheSumOverWorkers) {
  InProcessCluster cluster({.workers = 3, .servers = 2});
  cluster.RunWorkers([](KVStore& store) {
    std::vector<float> value(1000, 7.0f);
    ASSERT_STATUS_OK(store.Init({{.key = 3, .shape = {10, 100}, .value = value}}));
    std::vector<float> out(1000);
    ASSERT_STATUS_OK(store.Pull(3, out, 0));
    EXPECT_EQ(out, value);
    for (int round = 1; round <= 3; ++round) {
      const std::vector<float> gradient(1000, static_cast<float>(round * (store.rank() + 1)));
      ASSERT_STATUS_OK(store.PushPull(3, gradient, out, 0));
      EXPECT_EQ(out, std::vector<float>(1000, static_cast<float>(round * (1 + 2 + 3))));
    }
  });
}

TEST(KVStore, ServerStepsWithTheMeanGradient) {
  InProcessCluster cluster({.workers = 2, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    const std::vector<float> ones(10, 1.0f);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {10}, .value = ones}}));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(0.5)));
    ASSERT_STATUS_OK(store.Barrier());
    std::vector<float> out(10);
    ASSERT_STATUS_OK(
        store.PushPull("w", std::vector<float>(10, store.rank() == 0 ? 1.0f : 3.0f), out, 0));
    EXPECT_EQ(out, std::vector<float>(10, 1.0f - 0.5f * 2.0f));
  });
}

TEST(KVStore, RankZerosValueCounts) {
  InProcessCluster cluster({.workers = 2, .servers = 2});
  cluster.RunWorkers([](KVStore& store) {
    std::vector<float> out(4);
    const std::vector<float> mine(4, static_cast<float>(10 + store.rank()));
    ASSERT_STATUS_OK(store.Broadcast({.key = "w", .shape = {4}, .value = mine}, out));
    EXPECT_EQ(out, std::vector<float>(4, 10.0f));
  });
}

TEST(KVStore, WeightsAreTheSameBitsForAnyServersShardsPartitionsAndRuns) {
  const std::vector<float> reference = Train({.cluster = {.workers = 3, .servers = 1}});
  ASSERT_FALSE(reference.empty());
  for (uint32_t servers : {1u, 2u, 3u}) {
    for (size_t shards : {1, 2}) {
      for (size_t partition_bytes : {size_t{4} << 20, size_t{20000}}) {
        ClusterOptions options{.workers = 3, .servers = servers, .shard_threads = shards};
        options.store.partition_bytes = partition_bytes;
        EXPECT_EQ(Train({.cluster = options}), reference)
            << servers << " servers, " << shards << " shards, partitions of " << partition_bytes;
      }
    }
  }
}

TEST(KVStore, CompressedWeightsAreTheSameBitsForAnyServersAndArrivalOrder) {
  ClusterOptions options{.workers = 3, .servers = 1};
  options.store.compression = "1bit";
  options.store.fixed_threshold_bytes = 1000;
  const std::vector<float> reference = Train({.cluster = options});
  options.servers = 3;
  options.shard_threads = 2;
  options.store.retry_interval = absl::Milliseconds(100);
  options.worker_faults = {.seed = 5, .reorder = 0.2, .delay = 0.1, .delay_messages = 2};
  EXPECT_EQ(Train({.cluster = options}), reference);
}

TEST(KVStore, LostAndRepeatedMessagesLoseNothingAndCountOnce) {
  const std::vector<float> reference =
      Train({.cluster = {.workers = 2, .servers = 2}, .rounds = 4});
  ClusterOptions options{.workers = 2, .servers = 2};
  options.store.retry_interval = absl::Milliseconds(100);
  options.worker_faults = {.seed = 11, .drop = 0.1, .duplicate = 0.1};
  EXPECT_EQ(Train({.cluster = options, .rounds = 4}), reference);
}

TEST(KVStore, CompressionPushesFewerBytes) {
  std::map<std::string, uint64_t> pushed;
  for (const std::string codec : {"none", "1bit", "2bit"}) {
    ClusterOptions options{.workers = 1, .servers = 2};
    options.store.compression = codec;
    options.store.fixed_threshold_bytes = 0;
    InProcessCluster cluster(options);
    cluster.RunWorkers([&](KVStore& store) {
      std::vector<float> w(1 << 20);
      ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {1 << 20}, .value = w}}));
      ASSERT_STATUS_OK(store.PushPull("w", Random(w.size(), 1), w, 0));
      pushed[codec] = store.totals().bytes_pushed;
      EXPECT_EQ(store.totals().pushed.elements, w.size());
      EXPECT_EQ(store.totals().bytes_pulled, w.size() * 4);
    });
  }
  EXPECT_EQ(pushed["none"], 4u << 20);
  EXPECT_GT(pushed["none"], 30 * pushed["1bit"]);
  EXPECT_GT(pushed["none"], 15 * pushed["2bit"]);
}

TEST(KVStore, AutomaticThresholdIsMeasuredAveragedAndTheSameEverywhere) {
  ClusterOptions options{.workers = 2, .servers = 2};
  options.store.compression = "1bit";
  options.store.pre_steps = 6;
  options.worker_transport.emulate_link_bytes_per_second = 20e6;
  InProcessCluster cluster(options);
  Mutex mutex;
  std::vector<std::string> maps;
  cluster.RunWorkers([&](KVStore& store) {
    std::vector<float> small(4), large(100000);
    ASSERT_STATUS_OK(store.Init({{.key = "small", .shape = {4}, .value = small},
                                 {.key = "large", .shape = {100000}, .value = large}}));
    EXPECT_FALSE(store.codec_map().has_value());
    for (int round = 1; round <= 9; ++round) {
      ASSERT_STATUS_OK(store.Push("small", Random(small.size(), round), 0));
      ASSERT_STATUS_OK(store.Push("large", Random(large.size(), round), 0));
      ASSERT_STATUS_OK(store.Pull("small", small, 0));
      ASSERT_STATUS_OK(store.Pull("large", large, 0));
    }
    ASSERT_TRUE(store.codec_map().has_value());
    EXPECT_EQ(store.codec_map()->from_round(), 8u);
    EXPECT_EQ(store.codec_map()->table_size(), 2);
    MutexLock lock(&mutex);
    maps.push_back(store.codec_map()->SerializeAsString());
  });
  ASSERT_EQ(maps.size(), 2u);
  EXPECT_EQ(maps[0], maps[1]);
}

TEST(KVStore, BadUseNamesTheKeyAndLeavesTheStoreAlive) {
  ClusterOptions options{.workers = 1, .servers = 1};
  options.store.partition_bytes = 16;  // bad elements lie in the second partition
  InProcessCluster cluster(options);
  cluster.RunWorkers([](KVStore& store) {
    std::vector<float> w(10, 1.0f);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {10}, .value = w}}));
    EXPECT_EQ(store.Push("v", w, 0).code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(store.Init({{.key = "w", .shape = {10}, .value = w}}).code(),
              absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(store.Init({{.key = 1, .shape = {10}, .value = w}}).code(),
              absl::StatusCode::kInvalidArgument);
    const absl::Status length = store.Push("w", std::vector<float>(9), 0);
    EXPECT_EQ(length.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(length.message().find("s:w: expected 10 elements, got 9"), std::string::npos)
        << length;
    EXPECT_EQ(store.SetGradientCompression("3bit").code(), absl::StatusCode::kInvalidArgument);
    for (float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      std::vector<float> gradient(10, 1.0f);
      gradient[7] = bad;
      const absl::Status refused = store.Push("w", gradient, 0);
      EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_NE(refused.message().find("s:w: element 7"), std::string::npos) << refused;
    }
    ASSERT_STATUS_OK(store.PushPull("w", w, w, 0));  // refused pushes do not use up the round
    EXPECT_EQ(w, std::vector<float>(10, 1.0f));
  });
}

// Returns what a worker pulls in five rounds of a tensor of three partitions. With `bad`, another
// round comes after the second, in which each worker's gradient has that value in the first
// partition, at an element of its own. Worker 1 lends its gradients.
std::vector<float> Rounds(const ClusterOptions& options, std::optional<float> bad) {
  Mutex mutex;
  std::vector<std::vector<float>> pulled;
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    std::vector<float> w(5000), all;
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {5000}, .value = w}}));
    const auto push = [&](const std::vector<float>& gradient) -> absl::Status {
      if (store.rank() == 0) return store.Push("w", gradient, 0);
      Awaited returned;
      const absl::Status lent = store.PushLent(
          "w", {{.values = gradient, .place = {}, .returned = returned.Callback()}}, 0);
      return lent.ok() ? returned.Await() : lent;
    };
    for (int round = 1; round <= 5; ++round) {
      ASSERT_STATUS_OK(push(Random(w.size(), 10 * round + store.rank())));
      ASSERT_STATUS_OK(store.Pull("w", w, 0));
      all.insert(all.end(), w.begin(), w.end());
      if (round != 2 || !bad.has_value()) continue;
      std::vector<float> gradient(w.size(), 1.0f);
      gradient[7 + store.rank()] = *bad;
      ASSERT_STATUS_OK(push(gradient));
      ASSERT_STATUS_OK(store.Pull("w", w, 0));
      EXPECT_FALSE(std::isfinite(w[7]) || std::isfinite(w[8])) << "worker " << store.rank();
      EXPECT_TRUE(std::isfinite(w[6]) && std::isfinite(w[4000]));
    }
    MutexLock lock(&mutex);
    pulled.push_back(std::move(all));
  });
  EXPECT_EQ(pulled.size(), 2u);
  EXPECT_TRUE(pulled[0] == pulled[1]) << "the workers differ";
  return pulled[0];
}

TEST(KVStore, NonFiniteValuesReachEveryWorkerAndNoResidual) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), inf, -inf}) {
    for (const std::string codec : {"none", "1bit", "topk:ratio=0.1"}) {
      ClusterOptions options{.workers = 2, .servers = 1};
      options.store.partition_bytes = 8192;
      options.store.compression = codec;
      options.store.fixed_threshold_bytes = 0;
      options.store.pass_non_finite = true;
      // Residuals of the first partition are as without the round. The others' gradient was 1.
      const std::vector<float> without = Rounds(options, std::nullopt), with = Rounds(options, bad);
      for (size_t round = 0; round < 5; ++round) {
        const auto first = [&](const std::vector<float>& all) {
          return std::vector<float>(all.begin() + round * 5000, all.begin() + round * 5000 + 2048);
        };
        EXPECT_EQ(first(with), first(without)) << codec << " round " << round;
      }
    }
  }
}

// A worker cannot add a change to infinity, so the version after it travels as it is, too.
TEST(KVStore, CompressedPullsGoOnAfterANonFiniteVersion) {
  for (const std::string codec : {"none", "1bit"}) {
    for (const std::string pull_codec : {"1bit", "topk:ratio=0.1", "fp16"}) {
      ClusterOptions options{.workers = 2, .servers = 1};
      options.store.partition_bytes = 8192;
      options.store.compression = codec;
      options.store.pull_compression = pull_codec;
      options.store.fixed_threshold_bytes = options.store.fixed_pull_threshold_bytes = 0;
      options.store.pass_non_finite = true;
      const std::vector<float> pulled = Rounds(options, std::numeric_limits<float>::infinity());
      EXPECT_TRUE(std::ranges::all_of(pulled, [](float x) { return std::isfinite(x); }));
    }
  }
}

TEST(KVStore, PhasesStillRefuseWhatIsNotFinite) {
  ClusterOptions options{.workers = 1, .servers = 1};
  options.store.compression = "powersgd:rank=1";
  options.store.fixed_threshold_bytes = 0;
  options.store.pass_non_finite = true;
  InProcessCluster(options).RunWorkers([](KVStore& store) {
    std::vector<float> w(400, 1.0f);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {20, 20}, .value = w}}));
    w[7] = std::numeric_limits<float>::infinity();
    const absl::Status refused = store.Push("w", w, 0);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(refused.message().find("s:w: element 7"), std::string::npos) << refused;
  });
}

TEST(KVStore, OnlyRoundsPassWhatIsNotFinite) {
  KVStoreOptions options;
  options.pass_non_finite = true;
  for (const char* type : {"local", "dist_async", "dist_ssp"}) {
    const absl::Status refused = KVStore::Create(type, options).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(refused.message().find("non_finite=pass: expected dist_sync"), std::string::npos)
        << refused;
  }
}

TEST(KVStore, ServersThatStepDoNotTakeWhatIsNotFinite) {
  ClusterOptions options{.workers = 1, .servers = 1};
  options.store.pass_non_finite = true;
  InProcessCluster(options).RunWorkers([](KVStore& store) {
    wire::OptimizerSpec sgd;
    sgd.set_kind(wire::OptimizerSpec::SGD);
    const absl::Status refused = store.SetOptimizer(sgd);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(refused.message().find("SGD in a store with non_finite=pass: expected none"),
              std::string::npos)
        << refused;
  });
}

TEST(KVStore, APushWaitsForRoom) {
  ClusterOptions options{.workers = 2, .servers = 1};
  options.store.staging_bytes = 400'000;  // room for one tensor at a time
  std::promise<void> waits;
  const std::shared_future<void> waited = waits.get_future().share();
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    std::vector<float> w(100'000, 1.0f);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {100'000}, .value = w}}));
    if (store.rank() == 1) waited.wait();
    EXPECT_FALSE(store.push_may_wait(400'000));
    EXPECT_TRUE(store.push_may_wait(400'001));
    EXPECT_TRUE(store.Push("w", w, 0).ok());
    // In one process the server keeps a payload without a copy until both workers have pushed.
    EXPECT_TRUE(store.rank() == 1 || store.push_may_wait(1));
    auto second = std::async(std::launch::async, [&] { return store.Push("w", w, 0); });
    if (store.rank() == 0) {
      EXPECT_EQ(second.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
      waits.set_value();
    }
    ASSERT_STATUS_OK(second.get());
    ASSERT_STATUS_OK(store.Pull("w", w, 0));
    EXPECT_EQ(w[99'999], 2.0f);
  });
}

TEST(KVStore, WhatACodecCannotCarryTravelsInFp32) {
  for (const std::string codec : {"fp16", "bf16", "topk:ratio=1,value=fp16"}) {
    ClusterOptions options{.workers = 2, .servers = 1};
    options.store.compression = codec;
    options.store.fixed_threshold_bytes = 0;
    InProcessCluster(options).RunWorkers([&](KVStore& store) {
      const float large = codec == "bf16" ? 3.4e38f : 1e6f;
      std::vector<float> w(2);
      ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {2}, .value = w}}));
      const std::vector<float> gradient = {store.rank() == 0 ? large : 0, 1};
      for (int round = 0; round < 3; ++round) {
        ASSERT_STATUS_OK(store.PushPull("w", gradient, w, 0));
        EXPECT_EQ(w, (std::vector<float>{large, 2})) << codec;
      }
    });
  }
}

TEST(KVStore, AGradientThatItsScaleTakesOverFp32IsRefusedAtOnce) {
  ClusterOptions options{.workers = 1, .servers = 1};
  options.store.grad_scale = 32;
  InProcessCluster(options).RunWorkers([](KVStore& store) {
    std::vector<float> w(2);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {2}, .value = w}}));
    const absl::Status refused = store.Push("w", std::vector<float>{1, 2e37f}, 0);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(refused.message().find("element 1 is 2e+37, times 32"), std::string::npos) << refused;
    ASSERT_STATUS_OK(store.PushPull("w", std::vector<float>{1, 2}, w, 0));
    EXPECT_EQ(w, (std::vector<float>{32, 64}));
  });
}

TEST(KVStore, WhyOneWorkerFailedIsToldToTheOthers) {
  ClusterOptions options{.job_fails = true, .workers = 2, .servers = 1};
  options.store.compression = "topk:k=1";
  options.store.fixed_threshold_bytes = 0;
  InProcessCluster(options).RunWorkers([](KVStore& store) {
    std::vector<float> w(2);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {2}, .value = w}}));
    // The unsent part waits in the residual. Together with the next gradient it exceeds fp32.
    const float large = store.rank() == 0 ? 3e38f : 0;
    ASSERT_STATUS_OK(store.PushPull("w", std::vector<float>{large, large}, w, 0));
    ASSERT_STATUS_OK(store.Barrier());  // both have the first round
    absl::Status failed = store.PushPull("w", std::vector<float>{large, large}, w, 0);
    EXPECT_NE(failed.message().find("key s:w partition 0: gradient element"), std::string::npos)
        << store.rank() << ": " << failed;
    // Later calls report the store's failure, not an error in their own arguments.
    EXPECT_EQ(store.Push("w", w, 0).code(), failed.code());
    EXPECT_NE(failed.code(), absl::StatusCode::kInvalidArgument);
  });
}

TEST(KVStore, WorkersThatDisagreeOnAShapeAreToldSo) {
  InProcessCluster cluster({.workers = 2, .servers = 1});
  std::atomic<int> refused{0};
  cluster.RunWorkers([&](KVStore& store) {
    const int64_t elements = store.rank() == 0 ? 10 : 12;
    std::vector<float> w(elements);
    const absl::Status status = store.Init({{.key = "w", .shape = {elements}, .value = w}});
    if (status.code() == absl::StatusCode::kInvalidArgument) {
      EXPECT_NE(status.message().find("s:w"), std::string::npos) << status;
      ++refused;
    }
  });
  EXPECT_GE(refused.load(), 1);
}

TEST(KVStore, AKeyThatIsNotUtf8IsRefusedBeforeItIsSent) {
  InProcessCluster cluster({.workers = 2, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    std::vector<float> w(4);
    const absl::Status status = store.Init({{.key = "caf\xe9", .shape = {4}, .value = w}});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("name: expected UTF-8, got"), std::string::npos) << status;
    ASSERT_STATUS_OK(store.Init({{.key = "caf\u00e9", .shape = {4}, .value = w}}));
    ASSERT_STATUS_OK(store.PushPull("caf\u00e9", w, w, 0));
  });
}

TEST(KVStore, PushNothingCountsThisWorkerAsZero) {
  InProcessCluster cluster({.workers = 2, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    const std::vector<float> zeros(4);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {4}, .value = zeros}}));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(1.0)));
    ASSERT_STATUS_OK(store.Barrier());
    if (store.rank() == 0) {
      ASSERT_STATUS_OK(store.Push("w", std::vector<float>(4, 2.0f), 0));
    } else {
      ASSERT_STATUS_OK(store.PushNothing("w"));
    }
    std::vector<float> out(4);
    ASSERT_STATUS_OK(store.Pull("w", out, 0));
    EXPECT_EQ(out, std::vector<float>(4, -1.0f));
  });
}

TEST(KVStore, OthersGoOnWhenAWorkerHasLeft) {
  InProcessCluster cluster({.workers = 3, .servers = 2});
  cluster.RunWorkers([](KVStore& store) {
    std::vector<float> w(100);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {100}, .value = w}}));
    const int rounds = 2 + 2 * static_cast<int>(store.rank());
    for (int round = 1; round <= rounds; ++round) {
      ASSERT_STATUS_OK(store.PushPull("w", std::vector<float>(100, 1.0f), w, 0));
      EXPECT_EQ(w[0], round <= 2 ? 3.0f : round <= 4 ? 2.0f : 1.0f);
    }
    ASSERT_STATUS_OK(store.Leave());
  });
}

TEST(KVStore, OthersAreToldAtOnceWhenAWorkerHasEndedWithoutLeaving) {
  ClusterOptions options{.workers = 2, .servers = 2};
  options.scheduler.heartbeat_interval = absl::Milliseconds(50);
  InProcessCluster cluster(options);
  cluster.RunWorkers([](KVStore& store) {
    std::vector<float> w(100);
    const std::vector<float> gradient(100, 1.0f);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {100}, .value = w}}));
    for (int round = 1; round <= 2; ++round) ASSERT_STATUS_OK(store.PushPull("w", gradient, w, 0));
    if (store.rank() == 1) return;
    const absl::Status told = store.PushPull("w", gradient, w, 0);
    EXPECT_TRUE(absl::IsFailedPrecondition(told));
    EXPECT_THAT(std::string(told.message()),
                HasSubstr("round 3 waits for the push of worker 1, which has ended after its round "
                          "2: a worker whose data is used up calls leave()"));
  });
}

TEST(KVStore, WorkerThatOnlyPushesIsHeldBackNotFailed) {
  InProcessCluster cluster({.workers = 2, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    std::vector<float> w(100);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {100}, .value = w}}));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(1.0)));
    ASSERT_STATUS_OK(store.Barrier());
    for (int round = 1; round <= 8; ++round) {
      ASSERT_STATUS_OK(store.Push("w", std::vector<float>(100, -1.0f), 0));
      // Rank 1 waits for each round, so rank 0 runs ahead of what the servers accept.
      if (store.rank() == 1) ASSERT_STATUS_OK(store.Pull("w", w, 0));
    }
    ASSERT_STATUS_OK(store.Pull("w", w, 0));
    EXPECT_EQ(w, std::vector<float>(100, 8.0f));
  });
}

TEST(KVStore, AsyncPullSeesOnesOwnPushes) {
  InProcessCluster cluster({.workers = 2, .servers = 2, .mode = wire::DIST_ASYNC});
  cluster.RunWorkers([](KVStore& store) {
    std::vector<float> w(1000);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {1000}, .value = w}}));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(1.0)));
    ASSERT_STATUS_OK(store.Barrier());
    for (int round = 1; round <= 20; ++round) {
      ASSERT_STATUS_OK(store.PushPull("w", std::vector<float>(1000, -1.0f), w, 0));
      EXPECT_GE(w[0], static_cast<float>(round));
      EXPECT_LE(w[0], static_cast<float>(round + 20));
    }
    ASSERT_STATUS_OK(store.Barrier());
    ASSERT_STATUS_OK(store.Pull("w", w, 0));
    EXPECT_EQ(w, std::vector<float>(1000, 40.0f));
  });
}

}  // namespace
}  // namespace slimps
