// SPDX-License-Identifier: Apache-2.0
#include "compress/kernels/frozen_variance.h"

#include <cmath>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::IsEmpty;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(FrozenVariance, RunsAreRisingApartAndWithinTheTensor) {
  using Runs = std::vector<uint32_t>;
  for (const Runs& runs : {Runs{}, {0, 10}, {9, 1}, {0, 1, 1, 1}, {2, 3, 7, 3}}) {
    EXPECT_TRUE(AreRuns(runs, 10)) << ::testing::PrintToString(runs);
  }
  for (const Runs& runs : {Runs{0},
                           {0, 0},
                           {0, 11},
                           {10, 1},
                           {3, 2, 4, 1},
                           {5, 1, 0, 1},
                           {1, 0xffffffff},
                           {0xffffffff, 1}}) {
    EXPECT_FALSE(AreRuns(runs, 10)) << ::testing::PrintToString(runs);
  }
}

TEST(FrozenVariance, MaskedElementsWithAGradientAreFound) {
  EXPECT_THAT(FindUnmasked(std::vector<float>{1, 1, 0, -1, kNaN, 1e-40f, -0.0f, 2},
                           std::vector<float>{1, 0, 0, 0, 0, 0, 0, 1e-40f}),
              ElementsAre(1, 1, 3, 3, 7, 1));
  EXPECT_THAT(FindUnmasked(std::vector<float>{1, 1}, std::vector<float>{1, kNaN}), IsEmpty());
}

TEST(FrozenVariance, APushUnmasksABoundedNumberOfRuns) {
  std::vector<float> gradient(3 * kMaxUnmaskedRuns), variance(gradient.size());
  for (size_t i = 0; i < gradient.size(); i += 2) gradient[i] = 1;
  const std::vector<uint32_t> runs = FindUnmasked(gradient, variance);
  EXPECT_EQ(runs.size(), 2 * kMaxUnmaskedRuns);
  EXPECT_TRUE(AreRuns(runs, gradient.size()));
}

TEST(FrozenVariance, UnionsHaveTheElementsOfBoth) {
  EXPECT_THAT(UnionOfRuns(std::vector<uint32_t>{}, std::vector<uint32_t>{3, 2}), ElementsAre(3, 2));
  EXPECT_THAT(UnionOfRuns(std::vector<uint32_t>{0, 9}, std::vector<uint32_t>{3, 2}),
              ElementsAre(0, 9));
  std::mt19937 random(5);
  for (int repeat = 0; repeat < 300; ++repeat) {
    std::set<uint32_t> all;
    std::vector<uint32_t> runs[2];
    for (std::vector<uint32_t>& some : runs) {
      std::vector<float> gradient(40), variance(40);
      for (uint32_t i = 0; i < 40; ++i) {
        if (random() % 3 != 0) continue;
        gradient[i] = 1;
        all.insert(i);
      }
      some = FindUnmasked(gradient, variance);
    }
    const std::vector<uint32_t> both = UnionOfRuns(runs[0], runs[1]);
    EXPECT_TRUE(AreRuns(both, 40));
    EXPECT_EQ(both, UnionOfRuns(runs[1], runs[0]));
    std::set<uint32_t> named;
    for (size_t i = 0; i < both.size(); i += 2) {
      for (uint32_t k = 0; k < both[i + 1]; ++k) named.insert(both[i] + k);
    }
    EXPECT_EQ(named, all);
  }
}

TEST(FrozenVariance, TheFirstVarianceIsTheSquareOfTheGradientOrTheMean) {
  std::vector<float> m = {9, 1, 0.125f, 0.125f, 9}, v = {3, 0, 0, 0, 5};
  SettleMomentum(std::vector<uint32_t>{0, 3}, {.scale = 2, .beta1 = 0.5}, m, v);
  EXPECT_THAT(v, ElementsAre(3, 16, 4, 0, 5)) << "(1 * 2 / 0.5)^2, and the mean of 3 and 5";
  EXPECT_THAT(m, ElementsAre(9, 1, 0.125f, 0, 9)) << "what is masked has no momentum";
}

TEST(FrozenVariance, WithoutAnyVarianceTheGradientAloneCounts) {
  std::vector<float> m = {1, 1e-30f, 0}, v = {0, 0, 0};
  SettleMomentum(std::vector<uint32_t>{0, 3}, {.scale = 1, .beta1 = 0.75}, m, v);
  EXPECT_THAT(v, ElementsAre(16, 0, 0)) << "a square below the smallest normal number is 0";
  EXPECT_THAT(m, ElementsAre(1, 0, 0));
}

TEST(FrozenVariance, WhatIsNoNumberStaysVisible) {
  std::vector<float> m = {kNaN, kNaN, kNaN}, v = {4, 0, kNaN};
  SettleMomentum(std::vector<uint32_t>{1, 1}, {}, m, v);
  EXPECT_TRUE(std::isnan(m[0]) && std::isnan(m[1]) && std::isnan(m[2]));
  EXPECT_NE(v[1], 0) << "so that its momentum is not dropped";
}

}  // namespace
}  // namespace slimps
