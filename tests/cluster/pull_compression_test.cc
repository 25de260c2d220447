// SPDX-License-Identifier: Apache-2.0
// Compressed pulls over a whole cluster in one process. Every worker holds the same bits of every
// version. The network, the cut of tensors, and pulling in place or through a copy do not matter.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/codec/codec.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"

namespace slimps {
namespace {

absl::Status PullOntoAndWait(KVStore& store, const Key& key, std::vector<float>& weights) {
  Mutex mutex;
  CondVar arrived;
  std::optional<absl::Status> result;
  store.PullOnto(key, weights, 0, [&](absl::Status status) {
    MutexLock lock(&mutex);
    result = std::move(status);
    arrived.NotifyAll();
  });
  MutexLock lock(&mutex);
  while (!result.has_value()) arrived.Wait(&mutex);
  return *result;
}

struct Training {
  ClusterOptions cluster;
  bool onto = true;  // else plain pulls, into memory spoilt between them
  bool optimizer = true;
  int rounds = 8;
  std::vector<size_t> sizes = {1, 300, 5000, 30000};
};

struct Outcome {
  std::vector<float> seen;  // all versions of all tensors, one after another
  StoreTotals totals;       // of one worker

  friend bool operator==(const Outcome& a, const Outcome& b) { return a.seen == b.seen; }
};

Outcome Train(const Training& run) {
  Mutex mutex;
  std::map<uint32_t, Outcome> outcomes;
  InProcessCluster cluster(run.cluster);
  cluster.RunWorkers([&](KVStore& store) {
    auto [weights, tensors] = RandomTensors(run.sizes);
    ASSERT_STATUS_OK(store.Init(tensors));
    if (run.optimizer) ASSERT_STATUS_OK(store.SetOptimizer(Sgd(0.05, 0.9)));
    ASSERT_STATUS_OK(store.Barrier());
    Outcome outcome;
    for (int round = 1; round <= run.rounds; ++round) {
      for (size_t k = 0; k < run.sizes.size(); ++k) {
        const Key key = tensors[k].key;
        if (round % 4 == 0 && store.rank() == k % store.num_workers()) {
          ASSERT_STATUS_OK(store.PushNothing(key));
        } else {
          const auto gradient = Random(run.sizes[k], 1000 * round + 10 * k + store.rank());
          ASSERT_STATUS_OK(store.Push(key, gradient, -static_cast<int>(k)));
        }
        // The second tensor is pulled only every other round. Then the workers do not hold the
        // version that its changes start from.
        if (k == 1 && round % 2 == 0) continue;
        if (!run.onto) std::fill(weights[k].begin(), weights[k].end(), 1e30f);
        ASSERT_STATUS_OK(run.onto ? PullOntoAndWait(store, key, weights[k])
                                  : store.Pull(key, weights[k], 0));
        outcome.seen.insert(outcome.seen.end(), weights[k].begin(), weights[k].end());
      }
    }
    outcome.totals = store.totals();
    MutexLock lock(&mutex);
    outcomes[store.rank()] = std::move(outcome);
  });
  EXPECT_EQ(outcomes.size(), run.cluster.workers);
  for (const auto& [rank, outcome] : outcomes) {
    EXPECT_TRUE(outcome == outcomes.begin()->second) << "worker " << rank << " differs";
  }
  return outcomes.empty() ? Outcome() : outcomes.begin()->second;
}

ClusterOptions Options(uint32_t workers, const std::string& pull_codec) {
  ClusterOptions options{.workers = workers, .servers = 2};
  options.store.compression = "1bit";
  options.store.fixed_threshold_bytes = 0;
  options.store.pull_compression = pull_codec;
  options.store.fixed_pull_threshold_bytes = 1000;  // the first tensor goes uncompressed
  options.store.retry_interval = absl::Milliseconds(100);
  return options;
}

// Partitions are encoded separately, so the bits depend on how a tensor is cut, and on nothing
// else.
TEST(PullCompression, AllWorkersHoldTheSameBitsWhateverTheNetworkDoes) {
  for (const size_t partition_bytes : {size_t{4} << 20, size_t{32768}, size_t{7000}}) {
    ClusterOptions options = Options(2, "1bit");
    options.store.partition_bytes = partition_bytes;
    const Outcome reference = Train({.cluster = options});
    ASSERT_FALSE(reference.seen.empty());
    EXPECT_GT(reference.totals.changes_pulled, 0u);
    options.shard_threads = 2;
    options.servers = 3;
    EXPECT_TRUE(Train({.cluster = options}) == reference) << "shards, " << partition_bytes;
    options.worker_faults = {.seed = 3, .drop = 0.07, .duplicate = 0.1, .delay = 0.1};
    EXPECT_TRUE(Train({.cluster = options}) == reference) << "faults, " << partition_bytes;
    EXPECT_TRUE(Train({.cluster = options, .onto = false}) == reference)
        << "by way of copies, " << partition_bytes;
  }
}

TEST(PullCompression, AnyCodecAnyNumberOfWorkersWithAndWithoutOptimizer) {
  for (const uint32_t workers : {3u, 4u}) {
    for (const std::string codec : {"topk:ratio=0.05", "2bit:threshold=0.01", "bf16"}) {
      for (const bool optimizer : {true, false}) {
        ClusterOptions options = Options(workers, codec);
        options.store.partition_bytes = 20000;
        const Training run{.cluster = options, .optimizer = optimizer, .rounds = 4};
        const Outcome reference = Train(run);
        Training faulty = run;
        faulty.cluster.worker_faults = {
            .seed = 9, .drop = 0.05, .duplicate = 0.1, .reorder = 0.1, .delay = 0.05};
        EXPECT_TRUE(Train(faulty) == reference) << workers << " " << codec << " " << optimizer;
      }
    }
  }
}

TEST(PullCompression, PullsAreAsSmallAsTheirCodecMakesThem) {
  std::map<std::string, uint64_t> pulled;
  for (const std::string codec : {"none", "fp16", "1bit"}) {
    for (const bool onto : {true, false}) {
      ClusterOptions options = Options(2, codec);
      options.store.fixed_pull_threshold_bytes = 0;
      const StoreTotals totals =
          Train({.cluster = options, .onto = onto, .rounds = 6, .sizes = {100000, 1, 50000}})
              .totals;
      pulled[absl::StrCat(codec, onto ? " onto" : " copy")] = totals.bytes_pulled;
      // The first pull of a tensor gets its weights, with every codec.
      EXPECT_EQ(totals.changes_pulled, codec == "1bit" ? 5u * 2 : 0u) << codec;
    }
  }
  EXPECT_EQ(pulled["none onto"], 6u * 600000 + 3 * 4);
  EXPECT_EQ(pulled["fp16 onto"], pulled["none onto"] / 2);
  EXPECT_LT(pulled["1bit onto"], 600000u + 5 * 600000 / 30);
  for (const std::string codec : {"none", "fp16", "1bit"}) {
    EXPECT_EQ(pulled[codec + " onto"], pulled[codec + " copy"]) << codec;
  }
}

// Rounds without a change update the copy too, so that the next round's change can be added to it.
TEST(PullCompression, AnAutomaticThresholdMeasuresPlainPullsBothWays) {
  for (const bool together : {false, true}) {  // push and pull in one call
    ClusterOptions options = Options(2, "1bit");
    options.store.compression = "none";
    options.store.fixed_pull_threshold_bytes = std::nullopt;
    options.store.pre_steps = 8;
    InProcessCluster cluster(options);
    cluster.RunWorkers([&](KVStore& store) {
      const std::vector<size_t> sizes = {2000, 50000};
      std::vector<std::vector<float>> weights;
      for (size_t k = 0; k < sizes.size(); ++k) {
        const Key key = absl::StrCat("w", k);
        weights.push_back(Random(sizes[k], k));
        const std::vector<int64_t> shape = {static_cast<int64_t>(sizes[k])};
        ASSERT_STATUS_OK(store.Init({{.key = key, .shape = shape, .value = weights[k]}}));
      }
      for (int round = 1; round <= 12; ++round) {
        for (size_t k = 0; k < sizes.size(); ++k) {
          const Key key = absl::StrCat("w", k);
          const auto gradient = Random(sizes[k], 1000 * round + 10 * k + store.rank());
          if (together) {
            ASSERT_STATUS_OK(store.PushPull(key, gradient, weights[k], 0));
          } else {
            ASSERT_STATUS_OK(store.Push(key, gradient, 0));
            ASSERT_STATUS_OK(store.Pull(key, weights[k], 0));
          }
        }
      }
      const std::optional<wire::CodecMap> map = store.codec_map();
      ASSERT_TRUE(map.has_value());
      EXPECT_EQ(map->table_size(), 2);
      for (const wire::ThresholdRow& row : map->table()) {
        EXPECT_EQ(row.direction(), wire::PULL);
        EXPECT_GT(row.raw_samples(), 0u) << row.bytes() << " together " << together;
        EXPECT_GT(row.compressed_samples(), 0u) << row.bytes() << " together " << together;
      }
      EXPECT_GE(store.totals().changes_pulled, 4u * 2);
    });
  }
}

absl::Status PushAndPullAll(KVStore& store, const std::vector<std::vector<float>>& gradients,
                            std::vector<std::vector<float>>& weights) {
  for (size_t k = 0; k < weights.size(); ++k) {
    const absl::Status pushed = store.Push(absl::StrCat("w", k), gradients[k], 0);
    if (!pushed.ok()) return pushed;
  }
  Mutex mutex;
  CondVar arrived;
  std::vector<absl::Status> results;
  for (size_t k = 0; k < weights.size(); ++k) {
    store.PullOnto(absl::StrCat("w", k), weights[k], 0, [&](absl::Status status) {
      MutexLock lock(&mutex);
      results.push_back(std::move(status));
      arrived.NotifyAll();
    });
  }
  MutexLock lock(&mutex);
  while (results.size() < weights.size()) arrived.Wait(&mutex);
  for (const absl::Status& result : results) {
    if (!result.ok()) return result;
  }
  return absl::OkStatus();
}

// Returns the bytes of a step's tensors, some of which are compressed.
uint64_t BytesOf(const std::vector<size_t>& sizes, bool compresses, uint64_t threshold) {
  const auto codec = MakeCodec("1bit").value();
  uint64_t bytes = 0;
  for (const size_t size : sizes) {
    const uint64_t raw = size * sizeof(float);
    bytes += compresses && raw >= threshold ? codec->MaxPayloadBytes(size) : raw;
  }
  return bytes;
}

// All pulls of a round are under way at once, as in a training step. A threshold in bytes must not
// keep the other direction from being measured, nor from being followed.
TEST(PullCompression, GivenAndAutomaticThresholdsAreMeasuredAndFollowedToTheStep) {
  constexpr uint64_t kGiven = 4096;
  constexpr int kPreSteps = 6;
  const std::vector<size_t> sizes = {500, 1500, 3000, 6000, 9000, 20000, 30000, 40000};
  for (const bool push_given : {true, false}) {
    for (const bool pull_given : {true, false}) {
      SCOPED_TRACE(absl::StrCat("push given ", push_given, ", pull given ", pull_given));
      ClusterOptions options = Options(2, "1bit");
      options.store.pre_steps = kPreSteps;
      options.store.fixed_threshold_bytes =
          push_given ? std::optional<uint64_t>(kGiven) : std::nullopt;
      options.store.fixed_pull_threshold_bytes =
          pull_given ? std::optional<uint64_t>(kGiven) : std::nullopt;
      // So slow that the next round's pushes would overtake the pulls that are measured.
      options.worker_transport.emulate_link_bytes_per_second = 20e6;
      options.worker_transport.emulate_link_latency = absl::Milliseconds(5);
      InProcessCluster cluster(options);
      cluster.RunWorkers([&](KVStore& store) {
        std::vector<std::vector<float>> weights, gradients;
        for (size_t k = 0; k < sizes.size(); ++k) {
          weights.push_back(Random(sizes[k], k));
          gradients.push_back(Random(sizes[k], 10 * k + store.rank()));
          const std::vector<int64_t> shape = {static_cast<int64_t>(sizes[k])};
          ASSERT_STATUS_OK(
              store.Init({{.key = absl::StrCat("w", k), .shape = shape, .value = weights[k]}}));
        }
        StoreTotals before;
        for (int round = 1; round <= kPreSteps + 4; ++round) {
          before = store.totals();
          ASSERT_STATUS_OK(PushAndPullAll(store, gradients, weights));
        }
        const wire::CodecMap map = store.codec_map().value();
        int measured = 0;
        for (const wire::ThresholdRow& row : map.table()) {
          EXPECT_EQ(row.raw_samples() > 0, row.compressed_samples() > 0) << row.DebugString();
          measured += row.raw_samples() > 0 ? 1 : 0;
        }
        EXPECT_GE(measured, (!push_given + !pull_given) * 2) << "sizes";
        EXPECT_EQ(map.table_size(), (!push_given + !pull_given) * static_cast<int>(sizes.size()));
        const StoreTotals after = store.totals();
        EXPECT_EQ(after.bytes_pushed - before.bytes_pushed,
                  push_given ? BytesOf(sizes, true, kGiven)
                             : BytesOf(sizes, map.has_threshold(), map.threshold_bytes()));
        EXPECT_EQ(after.bytes_pulled - before.bytes_pulled,
                  pull_given
                      ? BytesOf(sizes, true, kGiven)
                      : BytesOf(sizes, map.has_pull_threshold(), map.pull_threshold_bytes()));
      });
    }
  }
}

// Notes how often push threads read the machine's clock. Thread-safe.
class PushThreadClock final : public Clock {
 public:
  SteadyTime Now() const override {
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof(name));
    if (std::string_view(name) == "push") {
      MutexLock lock(&mutex_);
      ++readings_;
      read_.NotifyAll();
    }
    return MachineClock()->Now();
  }
  absl::Time WallNow() const override { return MachineClock()->WallNow(); }

  int readings() const {
    MutexLock lock(&mutex_);
    return readings_;
  }
  bool AwaitReadings(int count) const {
    MutexLock lock(&mutex_);
    return read_.Await(&mutex_, absl::Seconds(30), [&] { return readings_ >= count; });
  }

 private:
  mutable Mutex mutex_;
  mutable CondVar read_;
  mutable int readings_ = 0;
};

// The store's push thread is still encoding, and would next wait for the merger's measurements.
TEST(PullCompression, AStoreMayBeDestroyedWhileItMeasures) {
  for (int again = 0; again < 3; ++again) {
    const PushThreadClock clock;
    ClusterOptions options = Options(1, "1bit");
    options.job_fails = true;
    options.store.compression = "topk:ratio=0.1";
    options.store.fixed_threshold_bytes = std::nullopt;
    options.store.fixed_pull_threshold_bytes = std::nullopt;
    options.store.clock = &clock;
    InProcessCluster cluster(options);
    cluster.RunWorkers([&](KVStore& store) {
      constexpr size_t kElements = 3'000'000;
      std::vector<float> w = Random(kElements, 1);
      const std::vector<int64_t> shape = {kElements};
      ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = shape, .value = w}}));
      ASSERT_STATUS_OK(store.PushPull("w", w, w, 0));
      const int before = clock.readings();
      ASSERT_STATUS_OK(store.Push("w", w, 0));
      // The push thread reads the clock when it asks for the codec, and when it begins to encode.
      ASSERT_TRUE(clock.AwaitReadings(before + 2));
      store.Abort(absl::AbortedError("the test is over"));
    });
  }
}

TEST(PullCompression, ManyThreadsMayPullOneKey) {
  ClusterOptions options = Options(2, "1bit");
  options.store.partition_bytes = 8192;
  InProcessCluster cluster(options);
  cluster.RunWorkers([](KVStore& store) {
    std::vector<float> initial = Random(5000, 1);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {5000}, .value = initial}}));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(0.05, 0.9)));
    ASSERT_STATUS_OK(store.Barrier());
    for (int round = 1; round <= 4; ++round) {
      ASSERT_STATUS_OK(store.Push("w", Random(5000, 10 * round + store.rank()), 0));
      std::vector<std::vector<float>> outs(4, std::vector<float>(5000, -1));
      std::vector<std::thread> threads;
      for (auto& out : outs) {
        threads.emplace_back([&] { EXPECT_TRUE(store.Pull("w", out, 0).ok()); });
      }
      for (std::thread& thread : threads) thread.join();
      for (const auto& out : outs) EXPECT_EQ(out, outs[0]);
    }
  });
}

TEST(PullCompression, WhoLeftStillPullsAndTheOthersGoOn) {
  InProcessCluster cluster(Options(2, "1bit"));
  cluster.RunWorkers([](KVStore& store) {
    std::vector<float> w = Random(5000, 1);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {5000}, .value = w}}));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(0.05, 0.9)));
    ASSERT_STATUS_OK(store.Barrier());
    for (int round = 1; round <= 2; ++round) {
      ASSERT_STATUS_OK(store.Push("w", Random(5000, round), 0));
      ASSERT_STATUS_OK(PullOntoAndWait(store, "w", w));
    }
    if (store.rank() == 1) ASSERT_STATUS_OK(store.Leave());
    ASSERT_STATUS_OK(store.Barrier());
    if (store.rank() == 0) {
      for (int round = 3; round <= 6; ++round) {
        ASSERT_STATUS_OK(store.Push("w", Random(5000, round), 0));
        ASSERT_STATUS_OK(PullOntoAndWait(store, "w", w));
      }
    }
    ASSERT_STATUS_OK(store.Barrier());
    ASSERT_STATUS_OK(PullOntoAndWait(store, "w", w));
    std::vector<double> head(w.begin(), w.begin() + 100);
    const auto sums = store.AllReduceSum(head);
    ASSERT_TRUE(sums.ok()) << sums.status();
    for (size_t i = 0; i < head.size(); ++i) ASSERT_EQ((*sums)[i], 2 * head[i]) << i;
  });
}

TEST(PullCompression, HalfPrecisionKeysArePulledInHalfPrecision) {
  ClusterOptions options = Options(1, "1bit");
  options.store.fixed_pull_threshold_bytes = 0;
  InProcessCluster cluster(options);
  cluster.RunWorkers([](KVStore& store) {
    std::vector<float> w = Random(1000, 1);
    ASSERT_STATUS_OK(
        store.Init({{.key = "w", .shape = {1000}, .value = w, .dtype = wire::FLOAT16}}));
    ASSERT_STATUS_OK(store.PushPull("w", Random(1000, 2), w, 0));
    ASSERT_STATUS_OK(store.PushPull("w", Random(1000, 3), w, 0));
    EXPECT_EQ(store.totals().bytes_pulled, 2u * 2000);
  });
}

TEST(PullCompression, WhatCannotGoTogetherIsRefusedWhenTheStoreIsMade) {
  const auto refusal = [](const std::string& codec, wire::StoreMode mode) {
    ClusterOptions options{.job_fails = true, .workers = 1, .servers = 1, .mode = mode};
    options.store.pull_compression = codec;
    options.store.scheduler_address = "inproc://nobody";
    options.store.join_timeout = absl::Milliseconds(1);
    return DistStore::Create(mode, options.store,
                             std::make_unique<InProcessTransport>(
                                 std::make_shared<InProcessNetwork>(), TransportOptions{}))
        .status();
  };
  // Each worker refuses these itself, before it asks any other node.
  for (const auto& [codec, words] : std::map<std::string, std::string>{
           {"dgc", "momentum"}, {"signsgd", "magnitudes"}, {"9bit", "9bit"}, {"1bit:x=1", "x"}}) {
    const absl::Status status = refusal(codec, wire::DIST_SYNC);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(words), absl::string_view::npos) << status;
  }
  EXPECT_EQ(refusal("1bit", wire::DIST_ASYNC).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace slimps
