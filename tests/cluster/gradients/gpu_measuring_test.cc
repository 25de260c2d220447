// SPDX-License-Identifier: Apache-2.0
// Jobs whose gradients lie on GPUs (of a fake driver), while the threshold is measured and after it
// was decided. A measured push goes on when its whole gradient has arrived.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/cluster/gradients/gpu_memory.h"
#include "tests/cluster/gradients/gradient_memory.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"
#include "tests/worker/device/cuda/fake_cuda_driver.h"

namespace slimps {
namespace {

using testing::IsEmpty;

constexpr int kPreSteps = 4;

// The threshold is automatic, so it is measured.
ClusterOptions Measuring(const char* codec) {
  ClusterOptions cluster;
  cluster.store.compression = codec;
  cluster.store.pre_steps = kPreSteps;
  cluster.store.partition_bytes = 64 << 10;
  return cluster;
}

class GpuMeasuring : public testing::TestWithParam<const char*> {};

TEST_P(GpuMeasuring, RawAndCompressedRoundsGiveTheBitsOfTheCpuJob) {
  static_assert(kRounds <= kPreSteps, "later rounds depend on the times that were measured");
  ExpectTheBitsOfTheCpuJob<HostMemory, GpuMemory>(Measuring(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Codecs, GpuMeasuring, testing::Values("1bit", "topk:ratio=0.1"),
                         [](const auto& param) {
                           const std::string spec = param.param;
                           return "Of" + spec.substr(0, spec.find(':'));
                         });

// All values have one magnitude, which 1bit carries without an error. So the weights do not depend
// on what is compressed.
std::vector<float> ExactGradient(size_t elements, uint32_t rank, size_t round) {
  const auto magnitude = static_cast<float>(round + rank);
  std::vector<float> gradient(elements, magnitude);
  for (size_t k = 0; k < elements; ++k) {
    if ((k + rank + round) % 3 == 0) gradient[k] = -magnitude;
  }
  return gradient;
}

TEST(GpuThreshold, TheDecisionComesAndEveryRoundsWeightsAreExact) {
  constexpr size_t kAllRounds = 2 * kPreSteps;
  ClusterOptions cluster = Measuring("1bit");
  FakeCudaDriver driver({.devices = 2, .seed = 7, .longest_delay = absl::Microseconds(200)});
  cluster.store.cuda_driver = &driver;
  InProcessCluster(cluster).RunWorkers([&](KVStore& store) {
    GpuMemory memory(&driver, static_cast<int>(store.rank()));
    std::vector<std::vector<float>> expected;
    for (const size_t size : kSizes) expected.emplace_back(size);
    std::vector<InitTensor> tensors;
    for (size_t i = 0; i < kSizes.size(); ++i) {
      tensors.push_back(
          {.key = KeyOf(i), .shape = {static_cast<int64_t>(kSizes[i])}, .value = expected[i]});
    }
    ASSERT_STATUS_OK(store.Init(tensors));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(0.25)));
    ASSERT_STATUS_OK(store.Barrier());
    for (size_t round = 1; round <= kAllRounds; ++round) {
      for (size_t i = kSizes.size(); i-- > 0;) {
        memory.Push(store, i, ExactGradient(kSizes[i], store.rank(), round));
      }
      for (size_t i = 0; i < kSizes.size(); ++i) {
        const std::vector<float> first = ExactGradient(kSizes[i], 0, round);
        const std::vector<float> second = ExactGradient(kSizes[i], 1, round);
        for (size_t k = 0; k < kSizes[i]; ++k) expected[i][k] -= 0.125f * (first[k] + second[k]);
        // They are not printed, since they are long.
        EXPECT_TRUE(memory.Pull(store, i) == expected[i]) << "w" << i << ", round " << round;
      }
    }
    const auto decision = store.codec_map();
    ASSERT_TRUE(decision.has_value());
    EXPECT_EQ(decision->from_round(), kPreSteps + 2u);
    EXPECT_EQ(decision->table_size(), static_cast<int>(kSizes.size())) << "every size was measured";
  });
  driver.CheckAllGivenBack();
  EXPECT_THAT(driver.TakeMisuses(), IsEmpty());
}

}  // namespace
}  // namespace slimps
