// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cluster/gradient_pool.h"

#include <cmath>
#include <cstdint>

#include "gtest/gtest.h"

namespace slimps {
namespace {

TEST(GradientPool, GivesEveryTensorAllItsElementsAligned) {
  constexpr size_t kElements = 3'000'000;  // more than are drawn
  const GradientPool pool(kElements, 1);
  for (uint64_t round = 0; round < 130; ++round) {
    const std::span<const float> gradient = pool.Of(round % 7, round, kElements);
    EXPECT_EQ(gradient.size(), kElements);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(gradient.data()) % 64, 0u);
    EXPECT_TRUE(std::isfinite(gradient.back()));
  }
}

TEST(GradientPool, DiffersByRoundTensorAndWorker) {
  const GradientPool pool(1000, 1), other(1000, 2);
  EXPECT_NE(pool.Of(0, 1, 1000)[0], pool.Of(0, 2, 1000)[0]);
  EXPECT_NE(pool.Of(0, 1, 1000)[0], pool.Of(1, 1, 1000)[0]);
  EXPECT_NE(pool.Of(0, 1, 1000)[0], other.Of(0, 1, 1000)[0]);
  const GradientPool same(1000, 1);
  EXPECT_EQ(pool.Of(3, 1, 1000)[0], same.Of(3, 1, 1000)[0]);
}

TEST(GradientPool, IsSpreadAroundZero) {
  const GradientPool pool(100'000, 5);
  double sum = 0, square = 0;
  for (const float value : pool.Of(0, 0, 100'000)) {
    sum += value;
    square += value * value;
  }
  EXPECT_NEAR(sum / 1e5, 0, 3e-4);
  EXPECT_NEAR(std::sqrt(square / 1e5), 1e-2, 3e-4);
}

}  // namespace
}  // namespace slimps
