// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/batch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace slimps {
namespace {

using ::testing::ElementsAre;

std::vector<uint32_t> Sorted(std::vector<uint32_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<uint32_t> FirstNumbers(size_t count) {
  std::vector<uint32_t> values(count);
  std::iota(values.begin(), values.end(), 0u);
  return values;
}

TEST(ShuffledOrder, IsAPermutation) {
  for (const size_t count : {0, 1, 2, 17, 1000}) {
    EXPECT_EQ(Sorted(ShuffledOrder(count, 3, 4)), FirstNumbers(count));
  }
}

TEST(ShuffledOrder, DependsOnSeedAndEpochAlone) {
  EXPECT_EQ(ShuffledOrder(100, 1, 2), ShuffledOrder(100, 1, 2));
  EXPECT_NE(ShuffledOrder(100, 1, 2), ShuffledOrder(100, 2, 2));
  EXPECT_NE(ShuffledOrder(100, 1, 2), ShuffledOrder(100, 1, 3));
}

// Runs are compared across machines and releases, so the order itself is part of what a seed means.
TEST(ShuffledOrder, HasNotChanged) {
  EXPECT_THAT(ShuffledOrder(8, 1, 0), ElementsAre(7, 6, 0, 5, 2, 3, 1, 4));
}

TEST(BatchPlan, WorkersTogetherSeeEverySampleOnceAnEpoch) {
  for (const uint32_t workers : {1u, 2u, 3u, 5u}) {
    std::vector<uint32_t> all;
    for (uint32_t rank = 0; rank < workers; ++rank) {
      const BatchPlan plan(
          {.samples = 101, .workers = workers, .rank = rank, .batch = 8, .seed = 7}, 2);
      for (size_t step = 0; step < plan.steps(); ++step) {
        const auto batch = plan.Batch(step);
        all.insert(all.end(), batch.begin(), batch.end());
      }
    }
    EXPECT_EQ(Sorted(all), FirstNumbers(101)) << workers << " workers";
  }
}

TEST(BatchPlan, WorkersTogetherSeeInEachStepWhatOneProcessWithTheWholeBatchSees) {
  const BatchPlan whole({.samples = 100, .batch = 24, .seed = 7}, 1);
  for (size_t step = 0; step < whole.steps(); ++step) {
    std::vector<uint32_t> together;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      const BatchPlan part({.samples = 100, .workers = 3, .rank = rank, .batch = 8, .seed = 7}, 1);
      const auto batch = part.Batch(step);
      together.insert(together.end(), batch.begin(), batch.end());
    }
    const auto batch = whole.Batch(step);
    EXPECT_EQ(Sorted(together), Sorted({batch.begin(), batch.end()})) << "step " << step;
  }
}

TEST(BatchPlan, EveryWorkerHasTheSameNumberOfSteps) {
  // Parts of 3 and 2 samples.
  const BatchPlan first({.samples = 5, .workers = 2, .rank = 0, .batch = 1}, 0);
  const BatchPlan second({.samples = 5, .workers = 2, .rank = 1, .batch = 1}, 0);
  EXPECT_EQ(first.steps(), 3u);
  EXPECT_EQ(second.steps(), 3u);
  EXPECT_EQ(first.Batch(2).size(), 1u);
  EXPECT_TRUE(second.Batch(2).empty());
}

TEST(BatchPlan, LastBatchHoldsTheRest) {
  const BatchPlan plan({.samples = 10, .batch = 4}, 0);
  EXPECT_EQ(plan.steps(), 3u);
  EXPECT_EQ(plan.Batch(2).size(), 2u);
}

TEST(BatchPlan, MoreWorkersThanSamplesLeavesSomeWithout) {
  const BatchPlan plan({.samples = 2, .workers = 4, .rank = 3, .batch = 1}, 0);
  EXPECT_EQ(plan.steps(), 1u);
  EXPECT_TRUE(plan.Batch(0).empty());
}

}  // namespace
}  // namespace slimps
