// SPDX-License-Identifier: Apache-2.0
// Training steps whose parameters and gradients lie on a GPU (of a fake driver): each step's
// kernels see the weights of the same job on the host, bit for bit, though nobody waits for the
// stream, and nothing that the exchange does is a misuse of the driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "compress/kernels/kernels.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"
#include "tests/worker/device/cuda/fake_cuda_driver.h"
#include "worker/exchange/weight_exchange.h"

namespace slimps {
namespace {

using testing::IsEmpty;
using testing::MatchesRegex;

using Values = std::vector<float>;

const std::vector<size_t> kSizes = {1, 100, 5000};
constexpr size_t kSteps = 4;

enum class OnGpu { kNothing, kGradients, kAll };

// A model's memory, on the host or on GPU 0. What computes on it runs at once, or on a stream for
// which nobody waits.
class Model {
 public:
  // Gradients are rounded to `type`, and of that type on the GPU.
  Model(FakeCudaDriver* driver, OnGpu on_gpu, const std::vector<size_t>& sizes = kSizes,
        ElementType type = ElementType::kFloat32)
      : driver_(on_gpu == OnGpu::kNothing ? nullptr : driver), type_(type) {
    Place of_weights;
    if (driver_ != nullptr) place_ = {.gpu = 0, .stream = driver->MakeStream(0)};
    if (on_gpu == OnGpu::kAll) of_weights = place_;
    if (driver_ != nullptr) place_.type = type;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const std::span<float> weights = Allocate(sizes[i], of_weights);
      gradients_.push_back(Allocate(sizes[i], place_));
      Run(of_weights, {}, weights,
          [=] { std::ranges::copy(Random(weights.size(), i), weights.begin()); });
      parameters_.push_back({.name = absl::StrCat("w", i),
                             .shape = {static_cast<int64_t>(sizes[i])},
                             .values = weights,
                             .place = of_weights});
    }
  }
  ~Model() {
    Await();
    for (const std::span<float> memory : on_gpu_) driver_->Free(memory);
  }

  const std::vector<Parameter>& parameters() const { return parameters_; }
  std::span<const float> gradient(size_t i) const { return gradients_[i]; }
  const Place& place() const { return place_; }

  // Makes a gradient of the weights that are there, and notes these.
  void ComputeGradient(size_t i, uint64_t seed) {
    const Values* const weights = See(i);
    const std::span<float> gradient = gradients_[i];
    Run(place_, {}, gradient, [=, this] {
      Values made = Random(weights->size(), seed);
      for (size_t k = 0; k < made.size(); ++k) made[k] += (*weights)[k];
      Store(made, gradient);
    });
  }

  // Returns all weights that gradients were made of, and those that are there now.
  std::deque<Values> Seen() {
    for (size_t i = 0; i < parameters_.size(); ++i) See(i);
    Await();
    return seen_;
  }

  void Run(const Place& place, std::span<const float> reads, std::span<float> writes,
           std::function<void()> kernel) {
    if (place.on_host()) return kernel();
    driver_->Launch(place.stream, reads, writes, std::move(kernel));
  }

 private:
  void Store(const Values& made, std::span<float> gradient) const {
    const RawKernels& kernels = BestKernels().raw;
    const bool is_f16 = type_ == ElementType::kFloat16;
    const auto encode = is_f16 ? kernels.encode_f16 : kernels.encode_bf16;
    const auto decode = is_f16 ? kernels.decode_f16 : kernels.decode_bf16;
    if (type_ == ElementType::kFloat32) return (void)std::ranges::copy(made, gradient.begin());
    std::vector<std::byte> halves(2 * made.size());
    encode(made.data(), nullptr, 1, made.size(), halves.data());
    if (!place_.on_host()) return (void)std::memcpy(gradient.data(), halves.data(), halves.size());
    decode(halves.data(), made.size(), gradient.data());
  }
  std::span<float> Allocate(size_t elements, const Place& place) {
    if (place.on_host()) return on_host_.emplace_back(elements);
    return on_gpu_.emplace_back(driver_->Allocate(0, elements));
  }
  // Notes the weights that are there when their stream comes so far. Returns where.
  const Values* See(size_t i) {
    const std::span<const float> weights = parameters_[i].values;
    Values* const seen = &seen_.emplace_back(weights.size());
    Run(parameters_[i].place, weights, {}, [=] { std::ranges::copy(weights, seen->begin()); });
    return seen;
  }
  void Await() {
    if (driver_ != nullptr) driver_->Await(place_.stream);
  }

  FakeCudaDriver* const driver_;  // null: all is on the host
  const ElementType type_;
  Place place_;  // of the gradients
  std::deque<Values> on_host_;
  std::vector<std::span<float>> on_gpu_;
  std::vector<std::span<float>> gradients_;
  std::vector<Parameter> parameters_;
  std::deque<Values> seen_;  // the kernels write to its elements
};

class GpuExchange : public testing::Test {
 protected:
  using Body = std::function<void(KVStore&, const Model&, WeightExchange&)>;

  // Trains one worker's model and returns Model::Seen. Calls `body` when the exchange has begun.
  std::deque<Values> Train(const ExchangeOptions& options, OnGpu on_gpu, const Body& body = {},
                           ElementType type = ElementType::kFloat32) {
    ClusterOptions cluster;
    cluster.workers = cluster.servers = 1;
    cluster.store.partition_bytes = 7004;  // the last tensor has three partitions
    cluster.store.compression = "1bit";
    cluster.store.fixed_threshold_bytes = 64;
    cluster.store.cuda_driver = &driver_;
    Model model(&driver_, on_gpu, kSizes, type);  // until the store is closed
    InProcessCluster(cluster).RunWorkers([&](KVStore& store) {
      const auto exchange = StartExchange(&store, model.parameters(), Sgd(0.1, 0.9), options);
      ASSERT_STATUS_OK(exchange.status());
      if (body) body(store, model, **exchange);
      for (size_t step = 0; step < kSteps; ++step) {
        ASSERT_STATUS_OK((*exchange)->BeginStep());
        for (size_t i = kSizes.size(); i-- > 0;) {
          model.ComputeGradient(i, 100 * step + i);
          (*exchange)->OnGradient(i, model.gradient(i), model.place());
        }
        ASSERT_STATUS_OK((*exchange)->EndStep());
      }
      ASSERT_STATUS_OK((*exchange)->Drain());
    });
    return model.Seen();
  }

  void ExpectTheHostsBits(const ExchangeOptions& options) {
    const std::deque<Values> expected = Train(options, OnGpu::kNothing);
    EXPECT_EQ(expected.size(), (kSteps + 1) * kSizes.size());
    EXPECT_EQ(expected, Train(options, OnGpu::kGradients));
    EXPECT_EQ(expected, Train(options, OnGpu::kAll));
  }

  void TearDown() override {
    driver_.CheckAllGivenBack();
    EXPECT_THAT(driver_.TakeMisuses(), IsEmpty());
  }

  FakeCudaDriver driver_{{.devices = 2, .longest_delay = absl::Milliseconds(2)}};
};

TEST_F(GpuExchange, ASynchronousStepGivesTheBitsOfTheHosts) { ExpectTheHostsBits({}); }

TEST_F(GpuExchange, TheBackupModelsStepGivesTheBitsOfTheHosts) {
  ExpectTheHostsBits({.backup = MirroringBackup()});
}

TEST_F(GpuExchange, ClippedGradientsGiveTheBitsOfTheHosts) {
  ExpectTheHostsBits({.clip_norm = 0.5});
}

TEST_F(GpuExchange, GradientsThatMayBeSkippedGiveTheBitsOfTheHosts) {
  ExpectTheHostsBits({.non_finite = NonFinite::kSkip});
}

TEST_F(GpuExchange, HalvesGiveTheBitsOfTheHosts) {
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBfloat16}) {
    for (const ExchangeOptions& options :
         {ExchangeOptions(), ExchangeOptions{.backup = MirroringBackup()}}) {
      const std::deque<Values> expected = Train(options, OnGpu::kNothing, {}, type);
      EXPECT_NE(expected, Train(options, OnGpu::kNothing)) << "rounding counts";
      EXPECT_EQ(expected, Train(options, OnGpu::kGradients, {}, type));
      EXPECT_EQ(expected, Train(options, OnGpu::kAll, {}, type));
    }
  }
}

TEST_F(GpuExchange, LocBufAndGloBufArePinned) {
  size_t bytes = 0;
  for (const size_t size : kSizes) bytes += 2 * size * sizeof(float);
  const auto check = [&](KVStore&, const Model&, WeightExchange&) {
    EXPECT_GE(driver_.pinned_bytes(), bytes);
  };
  (void)Train({.backup = MirroringBackup()}, OnGpu::kAll, check);
}

TEST_F(GpuExchange, AGradientIsReadLongBeforeTheStepEnds) {
  Model model(&driver_, OnGpu::kAll);
  std::atomic<bool> goes_on{false};
  ClusterOptions cluster;
  cluster.workers = cluster.servers = 1;
  cluster.store.cuda_driver = &driver_;
  InProcessCluster(cluster).RunWorkers([&](KVStore& store) {
    const auto exchange = StartExchange(&store, model.parameters(), Sgd(1), {});
    ASSERT_STATUS_OK(exchange.status());
    ASSERT_STATUS_OK((*exchange)->BeginStep());
    EXPECT_FALSE((*exchange)->IsRead(0)) << "there is none";
    model.Run(model.place(), {}, {}, [&] {
      while (!goes_on) absl::SleepFor(absl::Milliseconds(1));
    });
    model.ComputeGradient(0, 1);
    (*exchange)->OnGradient(0, model.gradient(0), model.place());
    EXPECT_FALSE((*exchange)->IsRead(0)) << "its stream has not come so far";
    goes_on = true;
    while (!(*exchange)->IsRead(0)) absl::SleepFor(absl::Milliseconds(1));
    model.ComputeGradient(0, 2);  // overwrites it
    ASSERT_STATUS_OK((*exchange)->EndStep());
    ASSERT_STATUS_OK((*exchange)->BeginStep());
    EXPECT_FALSE((*exchange)->IsRead(0)) << "this step's has not come";
    ASSERT_STATUS_OK((*exchange)->EndStep());
  });
}

TEST_F(GpuExchange, TheBackupModelHasReadAGradientOnceItIsOnTheHost) {
  const auto check = [](KVStore&, const Model& model, WeightExchange& exchange) {
    ASSERT_STATUS_OK(exchange.BeginStep());
    EXPECT_FALSE(exchange.IsRead(1));
    exchange.OnGradient(1, model.gradient(1), model.place());
    while (!exchange.IsRead(1)) absl::SleepFor(absl::Milliseconds(1));
    const Values on_host(kSizes[0]);
    exchange.OnGradient(0, on_host);
    EXPECT_FALSE(exchange.IsRead(0)) << "the local step reads it";
    ASSERT_STATUS_OK(exchange.EndStep());
  };
  (void)Train({.backup = MirroringBackup()}, OnGpu::kAll, check);
}

TEST_F(GpuExchange, CopiesOfPushedGradientsDoNotStayPinned) {
  Model model(&driver_, OnGpu::kGradients, std::vector<size_t>(8, 5000));
  ClusterOptions cluster;
  cluster.store.staging_bytes = 20000;  // so that no slab of pinned memory holds more than two
  cluster.workers = cluster.servers = 1;
  cluster.store.cuda_driver = &driver_;
  InProcessCluster(cluster).RunWorkers([&](KVStore& store) {
    const auto exchange =
        StartExchange(&store, model.parameters(), Sgd(1), {.non_finite = NonFinite::kSkip});
    ASSERT_STATUS_OK(exchange.status());
    ASSERT_STATUS_OK((*exchange)->BeginStep());
    size_t of_one = 0;
    for (size_t i = 0; i < 8; ++i) {
      model.ComputeGradient(i, i);
      (*exchange)->OnGradient(i, model.gradient(i), model.place());
      while (!(*exchange)->IsRead(i)) absl::SleepFor(absl::Milliseconds(1));
      if (i == 0) of_one = driver_.pinned_bytes();
      EXPECT_LE(driver_.pinned_bytes(), 2 * of_one) << "one is pushed, the next one copied";
    }
    EXPECT_GT(of_one, 0u);
    ASSERT_STATUS_OK((*exchange)->EndStep());
  });
}

TEST_F(GpuExchange, RowsOnAGpuAreThoseOfTheHost) {
  std::vector<Values> found;
  const std::vector<int64_t> rows = {7, 2};
  for (const OnGpu on_gpu : {OnGpu::kNothing, OnGpu::kGradients, OnGpu::kAll}) {
    Model model(&driver_, on_gpu);
    std::vector<Parameter> parameters = {model.parameters()[1]};
    parameters[0].shape = {10, 10};
    ClusterOptions cluster;
    cluster.workers = cluster.servers = 1;
    cluster.store.cuda_driver = &driver_;
    InProcessCluster(cluster).RunWorkers([&](KVStore& store) {
      const auto exchange = StartExchange(&store, parameters, Sgd(0.1), {});
      ASSERT_STATUS_OK(exchange.status());
      ASSERT_STATUS_OK((*exchange)->BeginStep());
      model.ComputeGradient(1, 1);
      ASSERT_STATUS_OK((*exchange)->OnRows(0, rows, model.gradient(1).first(20), model.place()));
      if (on_gpu != OnGpu::kNothing) {
        EXPECT_TRUE((*exchange)->IsRead(0));
      }
      ASSERT_STATUS_OK((*exchange)->EndStep());
    });
    found.push_back(model.Seen()[2]);  // after the gradient's weights and the first parameter's
  }
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(found[0], found[2]);
  EXPECT_NE(found[0], Random(100, 1)) << "rows were stepped";
}

TEST_F(GpuExchange, WhatCannotBeReachedIsSaidByName) {
  ClusterOptions cluster;
  cluster.workers = cluster.servers = 1;
  cluster.store.cuda_driver = &driver_;
  Values on_host(10);
  const std::vector<Parameter> parameters = {
      {.name = "w", .shape = {10}, .values = on_host, .place = {.gpu = 1}}};
  InProcessCluster(cluster).RunWorkers([&](KVStore& store) {
    EXPECT_EQ(StartExchange(&store, parameters, Sgd(1), {}).status(),
              absl::InvalidArgumentError(
                  "init of key s:w: memory of the host, expected memory of GPU 1"));
    const std::span<float> values = driver_.Allocate(1, 10);
    const std::vector<Parameter> there = {
        {.name = "w", .shape = {10}, .values = values, .place = {.gpu = 1}}};
    const auto exchange = StartExchange(&store, there, Sgd(1), {.backup = MirroringBackup()});
    ASSERT_STATUS_OK(exchange.status());
    ASSERT_STATUS_OK((*exchange)->BeginStep());
    (*exchange)->OnGradient(0, on_host, {.gpu = 1});
    EXPECT_EQ((*exchange)->EndStep(),
              absl::InvalidArgumentError(
                  "gradient of key s:w: memory of the host, expected memory of GPU 1"));
  });
}

TEST_F(GpuExchange, ACopyOfWeightsThatFailsIsTheStepsError) {
  Model model(&driver_, OnGpu::kAll);
  ClusterOptions cluster;
  cluster.workers = cluster.servers = 1;
  cluster.store.cuda_driver = &driver_;
  InProcessCluster(cluster).RunWorkers([&](KVStore& store) {
    const auto exchange =
        StartExchange(&store, model.parameters(), Sgd(1), {.backup = MirroringBackup()});
    ASSERT_STATUS_OK(exchange.status());
    driver_.Fail("CopyToDevice", absl::InternalError("an illegal memory access"));
    const absl::Status begun = (*exchange)->BeginStep();
    const absl::Status ended = begun.ok() ? (*exchange)->EndStep() : begun;
    EXPECT_EQ(ended.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(ended.message()),
                MatchesRegex("copying weights to a GPU: key .*an illegal memory access"));
  });
}

TEST_F(GpuExchange, NoPinnedMemoryIsSaidInOneLine) {
  // A slab and then the buffer's own bytes are tried, and again once what was idle has been freed.
  driver_.Fail("Pin", absl::ResourceExhaustedError("cuMemHostRegister: no memory"),
               /*successes=*/0, /*times=*/4);
  Model model(&driver_, OnGpu::kAll);
  ClusterOptions cluster;
  cluster.workers = cluster.servers = 1;
  cluster.store.cuda_driver = &driver_;
  InProcessCluster(cluster).RunWorkers([&](KVStore& store) {
    const absl::Status status = StartExchange(&store, model.parameters(), Sgd(1), {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                MatchesRegex("init of key s:w0: [0-9]+ bytes of pinned memory: .*"));
  });
}

}  // namespace
}  // namespace slimps
