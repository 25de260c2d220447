// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cluster/gradient_pool.h"

#include <cmath>
#include <cstdint>

#include "gtest/gtest.h"

namespace slimps {
namespace {

ModelShape Small() {
  ModelShape model;
  model.tensors = {{"a.weight", {40, 30}, LayerKind::kDense, 10, {.rms = 0.5}},
                   {"a.bias", {400}, LayerKind::kDense, 0, {.rms = 1e-3}},
                   {"b.bias", {3}, LayerKind::kDense, 0, {}}};
  return model;
}

double Rms(std::span<const float> values) {
  double square = 0;
  for (const float value : values) square += static_cast<double>(value) * value;
  return std::sqrt(square / static_cast<double>(values.size()));
}

TEST(GradientPool, GivesEveryTensorAllItsElementsAligned) {
  const ModelShape model = Small();
  const GradientPool pool(model, 1);
  for (uint64_t round = 0; round < 130; ++round) {
    for (size_t i = 0; i < model.tensors.size(); ++i) {
      const std::span<const float> gradient = pool.Of(i, round);
      EXPECT_EQ(gradient.size(), model.tensors[i].elements());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(gradient.data()) % 64, 0u);
      EXPECT_TRUE(std::isfinite(gradient.back()));
    }
  }
}

TEST(GradientPool, EveryRoundsGradientHasTheTensorsOwnNorm) {
  const GradientPool pool(Small(), 1);
  for (uint64_t round = 0; round < 70; ++round) {
    EXPECT_NEAR(Rms(pool.Of(0, round)), 0.5, 1e-5) << round;
    EXPECT_NEAR(Rms(pool.Of(1, round)), 1e-3, 1e-8) << round;
  }
}

TEST(GradientPool, DiffersByRoundTensorAndWorker) {
  const GradientPool pool(Small(), 1), other(Small(), 2);
  EXPECT_NE(pool.Of(0, 1)[0], pool.Of(0, 2)[0]);
  EXPECT_NE(pool.Of(1, 1)[0], pool.Of(1, 2)[0]);
  EXPECT_NE(pool.Of(0, 1)[0], other.Of(0, 1)[0]);
  const GradientPool same(Small(), 1);
  EXPECT_EQ(pool.Of(1, 9)[3], same.Of(1, 9)[3]);
}

TEST(GradientPool, RoundsMoveWholeRowsOn) {
  const GradientPool pool(Small(), 1);
  // 8 rows of 30 are the fewest that fill whole cache lines.
  EXPECT_EQ(pool.Of(0, 0)[8 * 30], pool.Of(0, 1)[0]);
  EXPECT_EQ(pool.Of(0, 1)[(40 - 8) * 30], pool.Of(0, 0)[0]);
}

}  // namespace
}  // namespace slimps
