// SPDX-License-Identifier: Apache-2.0
// A link changes in mid-run, and the threshold follows. The tests run workers' plans with the
// scheduler's decision over a simulated link (no transport, seeded noise), and a cluster over an
// emulated link.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "proto/base/mutex.h"
#include "scheduler/decisions/threshold_decision.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"
#include "worker/plan/compression_plan.h"

namespace slimps {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);
constexpr double kGigabit = 125;  // bytes per us
constexpr uint64_t kEvery = 12;
constexpr int kPreSteps = 20;
constexpr uint32_t kWorkers = 2;

TensorPlan Tensor(const std::string& name, size_t elements) {
  return {.key = Key(name), .info = {}, .elements = elements, .partitions = {{0, 0, elements}}};
}

// Returns tensors with the sizes of a convolutional network: many small ones, few large ones.
std::vector<TensorPlan> Tensors() {
  std::vector<TensorPlan> tensors;
  for (size_t elements = 64; elements <= 2 << 20; elements *= 2) {
    for (int i = 0; i < (elements <= 2048 ? 8 : 3); ++i) {
      tensors.push_back(Tensor(std::to_string(elements) + "/" + std::to_string(i), elements));
    }
  }
  return tensors;
}

// A time is start-up with jitter, plus size over rate. One sample in fifty is far too long.
// Payloads of 1bit have a 31st of the size.
class SimulatedLink final {
 public:
  SimulatedLink(uint64_t seed, double bytes_per_us) : random_(seed), bytes_per_us_(bytes_per_us) {}

  void set_rate(double bytes_per_us) { bytes_per_us_ = bytes_per_us; }
  absl::Duration Communication(uint64_t bytes, bool compressed) {
    const double size = static_cast<double>(bytes) / (compressed ? 31 : 1);
    return absl::Microseconds(Bad() *
                              (100 + Jitter(8) + size / bytes_per_us_ * (1 + Jitter(0.05))));
  }
  absl::Duration Coding(uint64_t bytes) {
    return absl::Microseconds(Bad() * (10 + Jitter(1) + static_cast<double>(bytes) / 4000));
  }

 private:
  double Jitter(double mean) { return std::exponential_distribution<double>(1 / mean)(random_); }
  double Bad() { return std::uniform_real_distribution<double>()(random_) < 0.02 ? 20 : 1; }

  std::mt19937_64 random_;
  double bytes_per_us_;
};

// Two workers that train over a simulated link, round by round.
class Job final {
 public:
  Job(uint64_t seed, double bytes_per_us) : link_(seed, bytes_per_us) {
    for (uint32_t w = 0; w < kWorkers; ++w) {
      plans_.push_back(CompressionPlan::Create({.compression = "1bit",
                                                .fixed_threshold_bytes = {},
                                                .pre_steps = kPreSteps,
                                                .table = {},
                                                .pull_table = {},
                                                .remeasure_every = kEvery})
                           .value());
    }
  }

  void Train(uint64_t rounds) {
    for (uint64_t i = 0; i < rounds; ++i) Round(++round_);
  }
  SimulatedLink& link() { return link_; }
  // Returns the threshold, after checking that all workers have the same.
  std::optional<uint64_t> Threshold() const {
    const wire::CodecMap map = plans_[0]->decision().value();
    for (const auto& plan : plans_) {
      EXPECT_EQ(plan->decision()->SerializeAsString(), map.SerializeAsString());
    }
    if (!map.has_threshold()) return std::nullopt;
    return map.threshold_bytes();
  }
  double MeasuredShare() const {
    return static_cast<double>(measured_) / static_cast<double>(pushed_);
  }

 private:
  void Round(uint64_t round) {
    for (uint32_t w = 0; w < kWorkers; ++w) {
      const auto report = plans_[w]->TakeReport(round);
      if (report.has_value()) {
        ASSERT_TRUE(decision_.Add(w, *report).ok());
      }
    }
    for (const auto& plan : plans_) {
      if (decision_.decision().has_value()) {
        ASSERT_TRUE(plan->OnCodecMap(*decision_.decision()).ok());
      }
      for (const TensorPlan& tensor : tensors_) Push(*plan, tensor, round);
    }
  }

  void Push(CompressionPlan& plan, const TensorPlan& tensor, uint64_t round) {
    const bool measures = plan.MeasuresPush(tensor, round);
    const auto codec = plan.CodecFor(tensor, round, kLong);
    ASSERT_TRUE(codec.ok()) << codec.status();
    if (round > kPreSteps) {
      ++pushed_;
      measured_ += measures ? 1 : 0;
    }
    if (!measures) return;
    const bool compressed = *codec == &plan.compressor();
    plan.RecordPush(tensor, round, link_.Communication(tensor.bytes(), compressed),
                    link_.Coding(tensor.bytes()));
  }

  const std::vector<TensorPlan> tensors_ = Tensors();
  SimulatedLink link_;
  std::vector<std::unique_ptr<CompressionPlan>> plans_;
  ThresholdDecision decision_{kWorkers};
  uint64_t round_ = 0;
  uint64_t pushed_ = 0, measured_ = 0;
};

int ClassOf(std::optional<uint64_t> threshold) {
  return SizeClass(threshold.value_or(uint64_t{16} << 20));
}

int FreshClass(uint64_t seed, double bytes_per_us) {
  Job job(seed, bytes_per_us);
  job.Train(kPreSteps + 2);
  return ClassOf(job.Threshold());
}

// Returns the class of the size above which compression pays, in closed form.
int ExactClass(double bytes_per_us) {
  return SizeClass(static_cast<uint64_t>(10 / (30 / 31.0 / bytes_per_us - 1 / 4000.0)));
}

TEST(LinkChange, AThresholdFollowsTheLinkWithinFiftyRoundsAndBack) {
  int further_off = 0, runs = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Job job(seed, 10 * kGigabit);
    job.Train(60 + 2 * seed);  // varies where the change falls between measured rounds
    double rate = 10 * kGigabit;
    for (const double next : {kGigabit, 10 * kGigabit, kGigabit, kGigabit / 10, kGigabit}) {
      ASSERT_NE(ExactClass(rate), ExactClass(next));
      rate = next;
      job.link().set_rate(rate);
      job.Train(50);
      const int fresh = FreshClass(seed + 100, rate);
      const int followed = ClassOf(job.Threshold());
      EXPECT_LE(std::abs(followed - ExactClass(rate)), 2) << "seed " << seed << ", rate " << rate;
      EXPECT_LE(std::abs(fresh - ExactClass(rate)), 1) << "seed " << seed << ", rate " << rate;
      ++runs;
      EXPECT_LE(std::abs(followed - fresh), 1) << "seed " << seed << ", rate " << rate;
      if (std::abs(followed - fresh) > 1) ++further_off;
    }
    EXPECT_LT(job.MeasuredShare(), 0.05);
  }
  EXPECT_LE(further_off, 0) << "of " << runs;
}

// For a while the table then has raw times of one link beside compressed times of the other.
TEST(LinkChange, AChangeWithinAMeasuredPairIsFollowedWithoutDetour) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    double rate = kGigabit;
    Job job(seed, rate);
    job.Train(5 * kEvery);
    for (const double next : {kGigabit / 10, kGigabit, 10 * kGigabit, kGigabit}) {
      job.link().set_rate(next);
      const auto [low, high] = std::minmax({ExactClass(rate), ExactClass(next)});
      for (uint64_t round = 0; round < 5 * kEvery; ++round) {
        job.Train(1);
        const int now = ClassOf(job.Threshold());
        ASSERT_GE(now, low - 1) << "seed " << seed << ", round " << round << ", to " << next;
        ASSERT_LE(now, high + 1) << "seed " << seed << ", round " << round << ", to " << next;
      }
      rate = next;
    }
  }
}

TEST(LinkChange, ASteadyLinkKeepsItsThreshold) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Job job(seed, kGigabit);
    job.Train(kPreSteps + 2);
    const int decided = ClassOf(job.Threshold());
    int moves = 0;
    std::optional<uint64_t> last = job.Threshold();
    for (int pair = 0; pair < 20; ++pair) {
      job.Train(kEvery);
      if (job.Threshold() != last) ++moves;
      last = job.Threshold();
      EXPECT_LE(std::abs(ClassOf(last) - decided), 2) << "seed " << seed;
    }
    EXPECT_LE(moves, 7) << "seed " << seed;
  }
}

// ---- a cluster ----------------------------------------------------------------------------------

// What a worker saw and was told.
struct Seen {
  std::vector<std::vector<float>> weights;  // of all tensors, by round
  std::string map;
};

std::map<uint32_t, Seen> TrainWhileMeasuring(ClusterOptions options, int rounds) {
  options.store.compression = "1bit";
  options.store.pre_steps = 6;
  options.store.remeasure_every = 8;
  const std::vector<size_t> sizes = {4, 1000, 5000, 60000};
  Mutex mutex;
  std::map<uint32_t, Seen> all;
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    std::vector<std::vector<float>> weights;
    std::vector<InitTensor> init;
    for (const size_t size : sizes) weights.push_back(Random(size, size));
    for (size_t i = 0; i < sizes.size(); ++i) {
      init.push_back({.key = Key("w" + std::to_string(i)),
                      .shape = {static_cast<int64_t>(sizes[i])},
                      .value = weights[i]});
    }
    ASSERT_STATUS_OK(store.Init(init));
    Seen seen;
    for (int round = 1; round <= rounds; ++round) {
      for (size_t i = 0; i < sizes.size(); ++i) {
        const uint64_t seed = static_cast<uint64_t>(100 * round + 10 * i) + store.rank();
        ASSERT_STATUS_OK(store.Push(init[i].key, Random(sizes[i], seed), 0));
      }
      for (size_t i = 0; i < sizes.size(); ++i) {
        ASSERT_STATUS_OK(store.Pull(init[i].key, weights[i], 0));
        seen.weights.push_back(weights[i]);
      }
    }
    ASSERT_TRUE(store.codec_map().has_value());
    seen.map = store.codec_map()->SerializeAsString();
    MutexLock lock(&mutex);
    all[store.rank()] = std::move(seen);
  });
  return all;
}

void ExpectTheSameEverywhere(const std::map<uint32_t, Seen>& all, uint64_t version) {
  ASSERT_EQ(all.size(), 2u);
  EXPECT_TRUE(all.at(0).weights == all.at(1).weights);
  EXPECT_EQ(all.at(0).map, all.at(1).map);
  wire::CodecMap map;
  ASSERT_TRUE(map.ParseFromString(all.at(0).map));
  EXPECT_EQ(map.version(), version);
  EXPECT_EQ(map.table_size(), 4);
}

TEST(LinkChange, WhileItIsMeasuredAgainWorkersAreToldTheSameAndStayBitIdentical) {
  ClusterOptions options{.workers = 2, .servers = 2};
  options.worker_transport.emulate_link_bytes_per_second = 50e6;
  // The pairs are 8/9, 16/17, 24/25 and 32/33. Round 40 begins with the answer to the fourth pair.
  ExpectTheSameEverywhere(TrainWhileMeasuring(options, 40), 5);
}

TEST(LinkChange, LostAnnouncementsAreAskedForAgain) {
  ClusterOptions options{.workers = 2, .servers = 1};
  options.worker_faults.drop = 0.03;
  options.worker_faults.seed = 5;
  options.store.retry_interval = absl::Milliseconds(100);
  const std::map<uint32_t, Seen> all = TrainWhileMeasuring(options, 40);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_TRUE(all.at(0).weights == all.at(1).weights);
}

TEST(LinkChange, AWorkerThatEndsEarlyIsNotWaitedFor) {
  ClusterOptions options{.workers = 2, .servers = 1};
  options.store.compression = "1bit";
  options.store.pre_steps = 4;
  options.store.remeasure_every = 8;
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    std::vector<float> w(1000);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {1000}, .value = w}}));
    const int rounds = store.rank() == 0 ? 34 : 12;
    for (int round = 1; round <= rounds; ++round) ASSERT_STATUS_OK(store.PushPull("w", w, w, 0));
    ASSERT_STATUS_OK(store.Leave());
    if (store.rank() != 0) return;
    // Pair 3, of rounds 24 and 25. Round 32 waits for its decision.
    EXPECT_EQ(store.codec_map()->version(), 4u);
  });
}

}  // namespace
}  // namespace slimps
