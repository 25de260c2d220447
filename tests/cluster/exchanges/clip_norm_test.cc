// SPDX-License-Identifier: Apache-2.0
// Clipping by the norm of the workers' mean gradient, over whole jobs, against plain arithmetic in
// double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"
#include "worker/exchange/weight_exchange.h"

namespace slimps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Values = std::vector<float>;

constexpr double kRate = 0.1, kMomentum = 0.9, kMaxNorm = 20;
constexpr size_t kSteps = 6;
// The second has no gradient on any worker. The last one's gradient is of rows on worker 1.
const std::vector<size_t> kSizes = {1, 40, 300, 5000, 60};
constexpr size_t kFrozen = 1, kOfRows = 4, kRowElements = 3;

// Returns a gradient whose length differs from step to step: some are clipped.
Values GradientOf(size_t step, size_t key, uint32_t worker) {
  Values gradient = Random(kSizes[key], 100 * step + 10 * key + worker);
  for (float& value : gradient) value *= step % 2 == 0 ? 3.0f : 0.01f;
  if (key != kOfRows || worker != 1) return gradient;
  for (size_t i = 2 * kRowElements; i < gradient.size(); ++i) gradient[i] = 0;
  return gradient;
}

// Momentum SGD as torch has it, by the mean that torch.nn.utils.clip_grad_norm_ has clipped.
class Reference {
 public:
  Reference() {
    for (size_t key = 0; key < kSizes.size(); ++key) {
      const Values first = Random(kSizes[key], 7 + key);
      weights.emplace_back(first.begin(), first.end());
      buf_.emplace_back(kSizes[key]);
    }
  }
  void Step(size_t step) {
    std::vector<std::vector<double>> mean;
    double norm2 = 0;
    for (size_t key = 0; key < kSizes.size(); ++key) {
      mean.emplace_back(kSizes[key]);
      const Values a = GradientOf(step, key, 0), b = GradientOf(step, key, 1);
      for (size_t i = 0; i < a.size() && key != kFrozen; ++i) {
        mean[key][i] = (static_cast<double>(a[i]) + b[i]) / 2;
        norm2 += mean[key][i] * mean[key][i];
      }
    }
    norms.push_back(std::sqrt(norm2));
    const double scale = std::min(1.0, kMaxNorm / (norms.back() + 1e-6));
    for (size_t key = 0; key < kSizes.size(); ++key) {
      if (key == kFrozen) continue;
      for (size_t i = 0; i < kSizes[key]; ++i) {
        buf_[key][i] = kMomentum * buf_[key][i] + scale * mean[key][i];
        weights[key][i] -= kRate * buf_[key][i];
      }
    }
  }

  std::vector<std::vector<double>> weights;
  std::vector<double> norms;

 private:
  std::vector<std::vector<double>> buf_;
};

struct Model {
  Model() {
    for (size_t key = 0; key < kSizes.size(); ++key)
      weights.push_back(Random(kSizes[key], 7 + key));
    for (size_t key = 0; key < kSizes.size(); ++key) {
      const auto rows = static_cast<int64_t>(kSizes[key] / kRowElements);
      std::vector<int64_t> shape = {static_cast<int64_t>(kSizes[key])};
      if (key == kOfRows) shape = {rows, kRowElements};
      parameters.push_back(
          {.name = absl::StrCat("w", key), .shape = shape, .values = weights[key]});
    }
  }
  std::vector<Values> weights;
  std::vector<Parameter> parameters;
};

struct Trained {
  std::vector<Values> weights;
  std::vector<double> norms;
  uint64_t skipped_steps = 0;
};

// Trains in a job of two workers, and returns what worker 0 found. The others find the same.
Trained Train(ClusterOptions cluster, ExchangeOptions options = {.clip_norm = kMaxNorm}) {
  std::mutex mutex;
  std::map<uint32_t, Trained> found;
  std::vector<Model> models(2);
  InProcessCluster(std::move(cluster)).RunWorkers([&](KVStore& store) {
    Model& model = models[store.rank()];
    auto started = StartExchange(&store, model.parameters, Sgd(kRate, kMomentum), options);
    ASSERT_STATUS_OK(started.status());
    WeightExchange& exchange = **started;
    Trained mine;
    for (size_t step = 0; step < kSteps; ++step) {
      ASSERT_STATUS_OK(exchange.BeginStep());
      std::vector<Values> gradients;
      for (size_t key = 0; key < kSizes.size(); ++key) {
        gradients.push_back(GradientOf(step, key, store.rank()));
      }
      for (size_t key = kSizes.size(); key-- > 0;) {
        const std::vector<int64_t> rows = {0, 1};
        const std::span<const float> gradient = gradients[key];
        if (key == kFrozen) continue;
        if (key == kOfRows && store.rank() == 1 && !options.backup.has_value()) {
          ASSERT_STATUS_OK(exchange.OnRows(key, rows, gradient.first(2 * kRowElements)));
        } else {
          exchange.OnGradient(key, gradient);
        }
      }
      ASSERT_STATUS_OK(exchange.EndStep());
      if (!options.backup.has_value()) mine.norms.push_back(exchange.clipping().newest.norm);
    }
    ASSERT_STATUS_OK(exchange.Drain());
    mine.skipped_steps = exchange.clipping().skipped_steps;
    mine.weights = model.weights;
    const std::lock_guard<std::mutex> lock(mutex);
    found[store.rank()] = std::move(mine);
  });
  EXPECT_EQ(found[0].weights, found[1].weights);
  EXPECT_EQ(found[0].norms, found[1].norms);
  return found[0];
}

TEST(ClipNorm, AStepIsByTheClippedMeanHoweverTensorsAreCut) {
  Reference expected;
  for (size_t step = 0; step < kSteps; ++step) expected.Step(step);
  EXPECT_GT(*std::ranges::max_element(expected.norms), 2 * kMaxNorm);
  EXPECT_LT(*std::ranges::min_element(expected.norms), kMaxNorm / 2);
  for (const uint32_t servers : {1u, 3u}) {
    for (const size_t partition_bytes : {size_t{4} << 20, size_t{800}}) {
      SCOPED_TRACE(absl::StrCat(servers, " servers, partitions of ", partition_bytes));
      ClusterOptions options{.workers = 2, .servers = servers};
      options.store.partition_bytes = partition_bytes;
      const Trained trained = Train(options);
      ASSERT_EQ(trained.norms.size(), kSteps);
      for (size_t step = 0; step < kSteps; ++step) {
        EXPECT_NEAR(trained.norms[step] / expected.norms[step], 1, 1e-6) << "step " << step;
      }
      for (size_t key = 0; key < kSizes.size(); ++key) {
        for (size_t i = 0; i < kSizes[key]; ++i) {
          ASSERT_NEAR(trained.weights[key][i], expected.weights[key][i], 1e-5) << key << " " << i;
        }
      }
      EXPECT_EQ(trained.skipped_steps, 0u);
    }
  }
}

TEST(ClipNorm, LostAndRepeatedMessagesChangeNoBit) {
  ClusterOptions options{.workers = 2, .servers = 2};
  options.store.partition_bytes = 800;
  const Trained expected = Train(options);
  options.store.retry_interval = absl::Milliseconds(50);
  options.worker_faults = {.seed = 1, .drop = 0.1, .duplicate = 0.1};
  options.server_faults = {.seed = 2, .drop = 0.1, .duplicate = 0.1};
  const Trained found = Train(options);
  EXPECT_EQ(found.weights, expected.weights);
  EXPECT_EQ(found.norms, expected.norms);
}

TEST(ClipNorm, TheBackupModelsGlobalWeightsAreThoseOfASynchronousJob) {
  const ClusterOptions options{.workers = 2, .servers = 2};
  const Trained with = Train(options, {.clip_norm = kMaxNorm, .backup = MirroringBackup()});
  const Trained without = Train(options);
  // Rows step alone where whole gradients step all: both gradients are zero there.
  EXPECT_EQ(with.weights, without.weights);
}

TEST(ClipNorm, ANormThatIsNotFiniteSkipsTheStepOnAllServers) {
  ClusterOptions options{.workers = 2, .servers = 2};
  std::vector<Model> models(2);
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    Model& model = models[store.rank()];
    const auto exchange =
        StartExchange(&store, model.parameters, Sgd(kRate, kMomentum), {.clip_norm = kMaxNorm});
    ASSERT_STATUS_OK(exchange.status());
    const auto step = [&](float value) {
      ASSERT_STATUS_OK((*exchange)->BeginStep());
      std::vector<Values> gradients;
      for (const size_t size : kSizes) gradients.emplace_back(size, 1.0f);
      gradients[0][0] = value;
      for (size_t key = 0; key < kSizes.size(); ++key) (*exchange)->OnGradient(key, gradients[key]);
      ASSERT_STATUS_OK((*exchange)->EndStep());
    };
    step(1);
    const std::vector<Values> before = model.weights;
    step(3e38f);  // finite on each worker, and the sum is not
    EXPECT_EQ(model.weights, before);
    EXPECT_FALSE(std::isfinite((*exchange)->clipping().newest.norm));
    EXPECT_EQ((*exchange)->clipping().newest.scale, 0);
    EXPECT_EQ((*exchange)->clipping().skipped_steps, 1u);
    step(1);
    EXPECT_NE(model.weights, before);
    EXPECT_EQ((*exchange)->clipping().skipped_steps, 1u);
  });
}

TEST(ClipNorm, AWorkerThatHasLeftIsNotWaitedFor) {
  std::vector<Model> models(2);
  InProcessCluster({.workers = 2, .servers = 2}).RunWorkers([&](KVStore& store) {
    Model& model = models[store.rank()];
    const auto exchange =
        StartExchange(&store, model.parameters, Sgd(kRate), {.clip_norm = kMaxNorm});
    ASSERT_STATUS_OK(exchange.status());
    for (size_t step = 0; step < (store.rank() == 1 ? 1 : 3); ++step) {
      ASSERT_STATUS_OK((*exchange)->BeginStep());
      const Values one = {static_cast<float>(store.rank() + 1)};
      (*exchange)->OnGradient(0, one);
      ASSERT_STATUS_OK((*exchange)->EndStep());
      EXPECT_EQ((*exchange)->clipping().newest.norm, step == 0 ? 1.5 : 1) << step;
    }
    if (store.rank() == 1) ASSERT_STATUS_OK(store.Leave());
  });
}

TEST(ClipNorm, TheBoundMayChangeBetweenSteps) {
  std::vector<Model> models(2);
  InProcessCluster({.workers = 2, .servers = 1}).RunWorkers([&](KVStore& store) {
    Model& model = models[store.rank()];
    const auto exchange = StartExchange(&store, model.parameters, Sgd(1), {});
    ASSERT_STATUS_OK(exchange.status());
    float last = model.weights[0][0];
    for (const double bound : {0.0, 1.0, 4.0, 0.0}) {
      ASSERT_STATUS_OK((*exchange)->SetClipNorm(bound));
      ASSERT_STATUS_OK((*exchange)->BeginStep());
      const Values two = {2};
      (*exchange)->OnGradient(0, two);
      ASSERT_STATUS_OK((*exchange)->EndStep());
      EXPECT_NEAR(last - model.weights[0][0], bound == 1 ? 1 : 2, 1e-5) << bound;
      last = model.weights[0][0];
    }
  });
}

TEST(ClipNorm, WorkersThatDifferInTheirBoundEndTheJobByName) {
  ClusterOptions options{.job_fails = true, .workers = 2, .servers = 1};
  std::vector<Model> models(2);
  std::mutex mutex;
  std::string said;
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    Model& model = models[store.rank()];
    const auto exchange = StartExchange(&store, model.parameters, Sgd(1),
                                        {.clip_norm = store.rank() == 0 ? 0.5 : 0.25});
    ASSERT_STATUS_OK(exchange.status());
    absl::Status ended;
    for (size_t step = 0; step < 100 && ended.ok(); ++step) {
      ASSERT_STATUS_OK((*exchange)->BeginStep());
      const Values two = {2};
      (*exchange)->OnGradient(0, two);
      ended = (*exchange)->EndStep();
    }
    const std::lock_guard<std::mutex> lock(mutex);
    said += std::string(ended.message());
  });
  EXPECT_THAT(said, HasSubstr("expected the same clip_norm"));
}

TEST(ClipNorm, WithoutRoundsItIsRefusedByName) {
  for (const wire::StoreMode mode : {wire::DIST_ASYNC, wire::DIST_SSP}) {
    std::vector<Model> models(2);
    InProcessCluster({.workers = 2, .servers = 1, .mode = mode}).RunWorkers([&](KVStore& store) {
      const absl::Status refused =
          StartExchange(&store, models[store.rank()].parameters, Sgd(1), {.clip_norm = 1}).status();
      EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(refused.message()),
                  AllOf(HasSubstr(absl::StrCat("clip_norm with ", store.type())),
                        HasSubstr("expected dist_sync")));
    });
  }
}

}  // namespace
}  // namespace slimps
