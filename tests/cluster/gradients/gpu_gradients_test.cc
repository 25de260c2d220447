// SPDX-License-Identifier: Apache-2.0
// Jobs whose gradients and weights lie on GPUs (of a fake driver): the weights are those of the job
// on the CPU, bit for bit, and nothing that the store does is a misuse of the driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "proto/base/awaited.h"
#include "tests/cluster/gradients/gpu_memory.h"
#include "tests/cluster/gradients/gradient_memory.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"
#include "tests/worker/device/cuda/fake_cuda_driver.h"

namespace slimps {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class GpuGradients : public testing::TestWithParam<const char*> {};

TEST_P(GpuGradients, GiveTheBitsOfTheCpuJobWhateverTheTiming) {
  ClusterOptions cluster;
  cluster.store.compression = GetParam();
  cluster.store.fixed_threshold_bytes = 256;
  ExpectTheBitsOfTheCpuJob<HostMemory, GpuMemory>(cluster);
}

TEST_P(GpuGradients, AWorkerOnTheHostAndOneOnAGpuTrainTogether) {
  ClusterOptions cluster;
  cluster.store.compression = GetParam();
  cluster.store.fixed_threshold_bytes = 256;
  FakeCudaDriver driver({});
  cluster.store.cuda_driver = &driver;
  const auto host = [](uint32_t) { return std::make_unique<HostMemory>(); };
  const std::vector<float> expected = Train(cluster, host);
  EXPECT_EQ(expected, Train(cluster, [&](uint32_t rank) -> std::unique_ptr<Memory> {
              if (rank == 0) return host(rank);
              return std::make_unique<GpuMemory>(&driver, 0);
            }));
  driver.CheckAllGivenBack();
  EXPECT_THAT(driver.TakeMisuses(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Codecs, GpuGradients,
                         testing::Values("none", "1bit", "topk:ratio=0.1", "powersgd:rank=2"),
                         [](const auto& param) {
                           const std::string spec = param.param;
                           return "Of" + spec.substr(0, spec.find(':'));
                         });

// What the second of a worker's devices contributes.
std::vector<float> OfSecondDevice(const std::vector<float>& gradient) {
  std::vector<float> other(gradient.rbegin(), gradient.rend());
  for (float& value : other) value *= 0.3f;
  return other;
}

class TwoArrays final : public HostMemory {
 public:
  void Push(KVStore& store, size_t i, const std::vector<float>& gradient) override {
    const std::vector<float> other = OfSecondDevice(gradient);
    const std::span<const float> gradients[] = {gradient, other};
    ASSERT_STATUS_OK(store.PushSum(KeyOf(i), gradients, -static_cast<int>(i)));
  }
};

// Its weights lie on the first of its GPUs.
class TwoGpus final : public GpuMemory {
 public:
  TwoGpus(FakeCudaDriver* driver, int first)
      : GpuMemory(driver, first), second_(driver, first + 1) {}
  void Push(KVStore& store, size_t i, const std::vector<float>& gradient) override {
    ASSERT_STATUS_OK(store.PushLent(KeyOf(i),
                                    {Lend(i, gradient), second_.Lend(i, OfSecondDevice(gradient))},
                                    -static_cast<int>(i)));
  }

 private:
  GpuMemory second_;
};

TEST(GpuGradientsOfTwoDevices, GiveTheBitsOfTheCpuJobUnderCompression) {
  ClusterOptions cluster;
  cluster.store.compression = "1bit";
  cluster.store.fixed_threshold_bytes = 256;  // the largest tensor has several partitions
  EXPECT_NE(Train(cluster, [](uint32_t) { return std::make_unique<TwoArrays>(); }),
            Train(cluster, [](uint32_t) { return std::make_unique<HostMemory>(); }))
      << "the second device counts";
  ExpectTheBitsOfTheCpuJob<TwoArrays, TwoGpus>(cluster, /*gpus_each=*/2);
}

// A job of one worker, with a key "w" of 100 elements and a GPU.
class OneGpu : public testing::Test {
 protected:
  void Run(const std::function<void(KVStore&)>& body, ClusterOptions cluster = {}) {
    cluster.workers = cluster.servers = 1;
    if (cluster.store.cuda_driver == nullptr) cluster.store.cuda_driver = &driver_;
    InProcessCluster(cluster).RunWorkers([&](KVStore& store) {
      const std::vector<float> zeros(100);
      ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {100}, .value = zeros}}));
      body(store);
    });
  }
  absl::Status Push(KVStore& store, const Place& place, Awaited* returned = nullptr) {
    return store.PushLent("w",
                          {{.values = memory_,
                            .place = place,
                            .returned = returned == nullptr ? nullptr : returned->Callback()}},
                          0);
  }
  absl::Status Pull(KVStore& store, const Place& place) {
    Awaited pulled;
    store.PullTo("w", {.values = memory_, .place = place, .done = pulled.Callback()}, 0);
    return pulled.Await();
  }
  void Fill(float value) {
    driver_.Launch(stream_, {}, memory_, [=, this] { std::ranges::fill(memory_, value); });
  }
  void TearDown() override {
    driver_.CheckAllGivenBack();
    EXPECT_THAT(driver_.TakeMisuses(), IsEmpty());
  }

  FakeCudaDriver driver_{{.devices = 2, .longest_delay = absl::Milliseconds(20)}};
  const std::span<float> memory_ = driver_.Allocate(0, 100);
  void* const stream_ = driver_.MakeStream(0);
  const Place place_{.gpu = 0, .stream = stream_};
};

TEST_F(OneGpu, AGradientThatIsNotFiniteFailsTheStoreByName) {
  ClusterOptions cluster;
  cluster.job_fails = true;
  Run(
      [&](KVStore& store) {
        driver_.Launch(stream_, {}, memory_,
                       [this] { memory_[42] = std::numeric_limits<float>::quiet_NaN(); });
        Awaited returned;
        ASSERT_STATUS_OK(Push(store, place_, &returned));
        const absl::Status status = returned.Await();
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
        EXPECT_THAT(std::string(status.message()), HasSubstr("push of key s:w: element 42"));
        EXPECT_THAT(std::string(store.Wait().message()), HasSubstr("element 42"));
      },
      cluster);
}

TEST_F(OneGpu, AGradientThatIsNotFiniteReachesWorkersThatPassIt) {
  ClusterOptions cluster;
  cluster.store.pass_non_finite = true;
  Run(
      [&](KVStore& store) {
        driver_.Launch(stream_, {}, memory_, [this] {
          std::ranges::fill(memory_, 1.0f);
          memory_[42] = std::numeric_limits<float>::quiet_NaN();
        });
        Awaited returned;
        ASSERT_STATUS_OK(Push(store, place_, &returned));
        ASSERT_STATUS_OK(returned.Await());
        ASSERT_STATUS_OK(Pull(store, place_));
        EXPECT_EQ(memory_[41], 1.0f);
        EXPECT_TRUE(std::isnan(memory_[42]));
      },
      cluster);
}

TEST_F(OneGpu, WhatCannotBeReachedIsRefusedAndTheRoundIsStillToBePushed) {
  Run([&](KVStore& store) {
    driver_.SetCapturing(stream_, true);
    EXPECT_THAT(std::string(Push(store, place_).message()),
                HasSubstr("push of key s:w: the stream is being captured into a CUDA graph"));
    EXPECT_EQ(Pull(store, place_).code(), absl::StatusCode::kFailedPrecondition);
    driver_.SetCapturing(stream_, false);
    EXPECT_THAT(std::string(Push(store, {.gpu = 1}).message()),
                HasSubstr("memory of GPU 0, expected memory of GPU 1"));
    EXPECT_EQ(Push(store, {.gpu = 2}).message(),
              "push of key s:w: CUDA device 2 asked for, this machine has 2");
    EXPECT_EQ(Push(store, {.gpu = -2}).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Pull(store, {.gpu = 1}).code(), absl::StatusCode::kInvalidArgument);
    std::vector<float> on_host(100);
    EXPECT_THAT(
        std::string(store.PushLent("w", {{.values = on_host, .place = place_}}, 0).message()),
        HasSubstr("memory of the host, expected memory of GPU 0"));
    Fill(3);
    ASSERT_STATUS_OK(Push(store, place_));
    ASSERT_STATUS_OK(store.Pull("w", on_host, 0));
    EXPECT_EQ(on_host[99], 3);
  });
}

TEST(GpuMemoryWithoutGpu, IsRefusedInOneLine) {
  const absl::StatusOr<CudaDriver*> driver = LoadCudaDriver();
  if (driver.ok()) GTEST_SKIP() << "this machine has a GPU";
  InProcessCluster({.workers = 1, .servers = 1}).RunWorkers([&](KVStore& store) {
    std::vector<float> ones(100, 1.0f);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {100}, .value = ones}}));
    const absl::Status pushed = store.PushLent("w", {{.values = ones, .place = {.gpu = 0}}}, 0);
    EXPECT_EQ(pushed.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(pushed.message()), HasSubstr("push of key s:w: no CUDA d"));
    Awaited returned;
    ASSERT_STATUS_OK(store.PushLent("w", {{.values = ones, .returned = returned.Callback()}}, 0));
    ASSERT_STATUS_OK(returned.Await());  // the host needs no driver
  });
}

TEST_F(OneGpu, WaitAndPullsOfOneKeyComeAfterWhatIsOnItsWay) {
  Run([&](KVStore& store) {
    std::vector<float> weights(100);
    std::atomic<int> returned{0};
    for (int round = 1; round <= 5; ++round) {
      Fill(static_cast<float>(round));
      ASSERT_STATUS_OK(store.PushLent("w",
                                      {{.values = memory_,
                                        .place = place_,
                                        .returned = [&](const absl::Status&) { ++returned; }}},
                                      0));
      const std::vector<float> next(100, 10.0f * static_cast<float>(round));
      ASSERT_STATUS_OK(store.Push("w", next, 0));  // the next round, from the host
      EXPECT_EQ(returned, round);
      ASSERT_STATUS_OK(store.Pull("w", weights, 0));
      EXPECT_EQ(weights[0], 10.0f * static_cast<float>(round));
    }
    Fill(7);
    ASSERT_STATUS_OK(Push(store, place_));
    ASSERT_STATUS_OK(store.Wait());
  });
}

TEST_F(OneGpu, SeveralDevicesGradientsAreAddedInTheirOrder) {
  Run([&](KVStore& store) {
    void* const other = driver_.MakeStream(1);
    const std::span<float> on_other = driver_.Allocate(1, 100);
    std::vector<float> weights(100);
    // In any other order the sum is another.
    Fill(1e8f);
    driver_.Launch(other, {}, on_other, [=] { std::ranges::fill(on_other, -1e8f); });
    const std::vector<float> on_host(100, 0.25f);
    std::atomic<int> returned{0};
    const auto count = [&](const absl::Status& status) { returned += status.ok() ? 1 : 0; };
    ASSERT_STATUS_OK(store.PushLent(
        "w",
        {{.values = memory_, .place = place_, .returned = count},
         {.values = on_other, .place = {.gpu = 1, .stream = other}, .returned = count},
         {.values = on_host, .returned = count}},
        0));
    ASSERT_STATUS_OK(store.Pull("w", weights, 0));
    ASSERT_STATUS_OK(store.Wait());
    EXPECT_EQ(returned, 3);
    EXPECT_EQ(weights[99], 0.25f);
    EXPECT_EQ(store.PushLent("w", {}, 0).code(), absl::StatusCode::kInvalidArgument);
  });
}

TEST_F(OneGpu, FirstValuesAndRowsMayLieThere) {
  Run([&](KVStore& store) {
    const std::span<float> out = driver_.Allocate(0, 100);
    const auto seen = [&] {
      std::vector<float> values(100);
      driver_.Launch(stream_, out, {}, [&] { std::ranges::copy(out, values.begin()); });
      driver_.Await(stream_);
      return values;
    };
    const std::vector<float> first = Random(100, 1);
    const auto fill = [&](uint64_t seed) {
      driver_.Launch(stream_, {}, memory_,
                     [=, this] { std::ranges::copy(Random(100, seed), memory_.begin()); });
    };
    fill(1);
    ASSERT_STATUS_OK(store.Broadcast(
        {.key = "v", .shape = {10, 10}, .value = memory_, .place = place_}, out, place_));
    EXPECT_EQ(seen(), first);
    fill(2);
    const std::vector<int64_t> rows = {7, 2};
    std::vector<int64_t> found;
    ASSERT_STATUS_OK(store.PushRowSparse("v", rows, memory_.first(20), 0, place_));
    ASSERT_STATUS_OK(store.PullRowsTo("v", rows, &found, out, place_, 0));
    EXPECT_EQ(found, (std::vector<int64_t>{2, 7}));
    std::vector<float> expected = Random(100, 2);
    std::rotate(expected.begin(), expected.begin() + 10, expected.begin() + 20);
    std::ranges::copy(first.begin() + 20, first.end(), expected.begin() + 20);
    EXPECT_EQ(seen(), expected) << "two rows, and the rest as it was";
    EXPECT_EQ(store.PullRowsTo("v", rows, &found, out.first(19), place_, 0),
              absl::InvalidArgumentError(
                  "pull of rows of key s:v: 2 rows need room for 20 elements, got 19"));
    EXPECT_EQ(store.PushRowSparse("v", rows, memory_.first(20), 0, {.gpu = 1}),
              absl::InvalidArgumentError(
                  "push of rows of key s:v: memory of GPU 0, expected memory of GPU 1"));
    EXPECT_EQ(store.PullRowsTo("v", rows, &found, out, {.gpu = 1}, 0),
              absl::InvalidArgumentError(
                  "pull of rows of key s:v: memory of GPU 0, expected memory of GPU 1"));
  });
}

TEST_F(OneGpu, ALocalStoreTakesTheSame) {
  KVStoreOptions options;
  options.cuda_driver = &driver_;
  const auto store = KVStore::Create("local", options);
  ASSERT_STATUS_OK(store.status());
  Fill(3);
  ASSERT_STATUS_OK(
      (*store)->Init({{.key = "w", .shape = {10, 10}, .value = memory_, .place = place_}}));
  Fill(5);
  ASSERT_STATUS_OK(
      (*store)->PushRowSparse("w", std::vector<int64_t>{1}, memory_.first(10), 0, place_));
  std::vector<float> out(100);
  ASSERT_STATUS_OK((*store)->Pull("w", out, 0));
  EXPECT_EQ(out[10], 5);
  EXPECT_EQ(out[20], 0) << "rows that nobody pushed";
  EXPECT_EQ(
      (*store)->Init({{.key = "v", .shape = {100}, .value = memory_, .place = {.gpu = 1}}}),
      absl::InvalidArgumentError("init of key s:v: memory of GPU 0, expected memory of GPU 1"));
}

TEST_F(OneGpu, AnAsynchronousStoresPullSeesThisWorkersPush) {
  ClusterOptions cluster;
  cluster.mode = wire::DIST_ASYNC;
  Run(
      [&](KVStore& store) {
        ASSERT_STATUS_OK(store.SetOptimizer(Sgd(1, 0)));
        ASSERT_STATUS_OK(store.Barrier());
        std::vector<float> weights(100);
        for (int round = 1; round <= 5; ++round) {
          Fill(-1);
          ASSERT_STATUS_OK(Push(store, place_));
          ASSERT_STATUS_OK(store.Pull("w", weights, 0));
          EXPECT_EQ(weights[99], static_cast<float>(round));
        }
      },
      cluster);
}

TEST_F(OneGpu, AStoreThatIsDestroyedEndsWhatIsUnderWay) {
  ClusterOptions cluster;
  cluster.job_fails = true;
  Awaited returned;
  Run(
      [&](KVStore& store) {
        Fill(1);
        ASSERT_STATUS_OK(Push(store, place_, &returned));
        store.Abort(absl::AbortedError("enough"));
      },
      cluster);
  (void)returned.Await();
}

TEST_F(OneGpu, AnAbortEndsTheWaitForAGradientThatDoesNotArrive) {
  ClusterOptions cluster;
  cluster.job_fails = true;
  std::atomic<bool> goes_on{false};
  Awaited returned;
  Run(
      [&](KVStore& store) {
        driver_.Launch(stream_, {}, memory_, [&] {
          while (!goes_on) absl::SleepFor(absl::Milliseconds(1));
        });
        ASSERT_STATUS_OK(Push(store, place_, &returned));
        std::thread aborts([&] { store.Abort(absl::AbortedError("enough")); });
        const std::vector<float> next(100);
        EXPECT_THAT(std::string(store.Push("w", next, 0).message()), HasSubstr("enough"));
        EXPECT_THAT(std::string(store.Wait().message()), HasSubstr("enough"));
        aborts.join();
        goes_on = true;
        (void)returned.Await();
      },
      cluster);
}

TEST_F(OneGpu, ADriverThatFailsFailsTheStoreByName) {
  ClusterOptions cluster;
  cluster.job_fails = true;
  Run(
      [&](KVStore& store) {
        ASSERT_STATUS_OK(Pull(store, place_));  // the GPU is made
        driver_.Fail("CopyToHost", absl::InternalError("an illegal memory access"));
        Awaited returned;
        ASSERT_STATUS_OK(Push(store, place_, &returned));
        EXPECT_THAT(std::string(returned.Await().message()), HasSubstr("illegal memory access"));
        EXPECT_THAT(std::string(store.Wait().message()), HasSubstr("illegal memory access"));
      },
      cluster);
}

}  // namespace
}  // namespace slimps
