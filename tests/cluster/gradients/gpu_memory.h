// SPDX-License-Identifier: Apache-2.0
// GpuMemory: a model on a GPU of a fake driver, for Train of gradient_memory.h.
//
//   FakeCudaDriver driver({.devices = 2});
//   cluster.store.cuda_driver = &driver;
//   Train(cluster, [&](uint32_t rank) {
//     return std::make_unique<GpuMemory>(&driver, static_cast<int>(rank));
//   });
#ifndef SLIMPS_TESTS_CLUSTER_GRADIENTS_GPU_MEMORY_H_
#define SLIMPS_TESTS_CLUSTER_GRADIENTS_GPU_MEMORY_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/awaited.h"
#include "tests/cluster/gradients/gradient_memory.h"
#include "tests/worker/device/cuda/fake_cuda_driver.h"
#include "worker/device/place.h"

namespace slimps {

// As a framework does: kernels write gradients and read weights, and nobody waits for the stream.
// The driver outlives the store.
class GpuMemory : public Memory {
 public:
  GpuMemory(FakeCudaDriver* driver, int gpu)
      : driver_(driver), place_{.gpu = gpu, .stream = driver->MakeStream(gpu)} {
    for (const size_t size : kSizes) weights_.push_back(driver->Allocate(gpu, size));
  }
  void Push(KVStore& store, size_t i, const std::vector<float>& gradient) override {
    ASSERT_STATUS_OK(store.PushLent(KeyOf(i), {Lend(i, gradient)}, -static_cast<int>(i)));
  }
  std::vector<float> Pull(KVStore& store, size_t i) override {
    Awaited pulled;
    store.PullTo(KeyOf(i), {.values = weights_[i], .place = place_, .done = pulled.Callback()}, 0);
    const absl::Status status = pulled.Await();
    EXPECT_TRUE(status.ok()) << status;
    std::vector<float> seen(kSizes[i]);
    driver_->Launch(place_.stream, weights_[i], {},
                    [&, i] { std::ranges::copy(weights_[i], seen.begin()); });
    driver_->Await(place_.stream);
    return seen;
  }

  // Returns a gradient of weights `i`. A kernel writes it, and it is freed when it is given back.
  LentGradient Lend(size_t i, const std::vector<float>& gradient) {
    const std::span<float> lent = driver_->Allocate(place_.gpu, gradient.size());
    driver_->Launch(place_.stream, weights_[i], lent,
                    [=] { std::ranges::copy(gradient, lent.begin()); });
    const auto returned = [driver = driver_, lent](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      driver->Free(lent);
    };
    return {.values = lent, .place = place_, .returned = returned};
  }

 private:
  FakeCudaDriver* const driver_;
  const Place place_;
  std::vector<std::span<float>> weights_;
};

// Trains with OnHost, and with OnGpu for several timings. The bits of the weights must be the same.
// Each worker has `gpus_each` GPUs, and OnGpu is given the first.
template <typename OnHost, typename OnGpu>
void ExpectTheBitsOfTheCpuJob(ClusterOptions cluster, int gpus_each = 1) {
  const std::vector<float> expected =
      Train(cluster, [](uint32_t) { return std::make_unique<OnHost>(); });
  ASSERT_FALSE(expected.empty());
  for (uint32_t seed = 0; seed < 3; ++seed) {
    FakeCudaDriver driver(
        {.devices = 2 * gpus_each, .seed = seed, .longest_delay = absl::Microseconds(200)});
    cluster.store.cuda_driver = &driver;
    const auto on_gpu = [&](uint32_t rank) {
      return std::make_unique<OnGpu>(&driver, static_cast<int>(rank) * gpus_each);
    };
    EXPECT_EQ(expected, Train(cluster, on_gpu)) << "seed " << seed;
    driver.CheckAllGivenBack();
    EXPECT_EQ(driver.TakeMisuses(), std::vector<std::string>()) << "seed " << seed;
  }
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_CLUSTER_GRADIENTS_GPU_MEMORY_H_
