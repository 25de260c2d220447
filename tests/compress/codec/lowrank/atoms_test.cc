// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/lowrank/atoms.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

TEST(AtomProbabilities, AreProportionalWhileNoneExceedsOne) {
  EXPECT_THAT(AtomProbabilities(std::vector<double>{4, 3, 2, 1}, 2),
              ElementsAre(DoubleNear(0.8, 1e-15), DoubleNear(0.6, 1e-15), DoubleNear(0.4, 1e-15),
                          DoubleNear(0.2, 1e-15)));
}

TEST(AtomProbabilities, AnAtomThatOutgrowsItsShareIsAlwaysSent) {
  // 10 * 2 > 14: it is certain, and the others share a budget of 1 by their sizes.
  EXPECT_THAT(
      AtomProbabilities(std::vector<double>{10, 2, 1, 1}, 2),
      ElementsAre(1, DoubleNear(0.5, 1e-15), DoubleNear(0.25, 1e-15), DoubleNear(0.25, 1e-15)));
}

TEST(AtomProbabilities, ABudgetForAllSendsAllThatAreNotZero) {
  EXPECT_THAT(AtomProbabilities(std::vector<double>{3, 2, 0}, 5), ElementsAre(1, 1, 0));
  EXPECT_THAT(AtomProbabilities(std::vector<double>{0, 0}, 2), ElementsAre(0, 0));
  EXPECT_THAT(AtomProbabilities({}, 2), IsEmpty());
}

TEST(AtomProbabilities, ABudgetBelowOneIsAProbability) {
  EXPECT_THAT(AtomProbabilities(std::vector<double>{3, 1}, 0.5),
              ElementsAre(DoubleNear(0.375, 1e-15), DoubleNear(0.125, 1e-15)));
}

// The variance is the sum of size^2 / p less a constant. No shift of probability between two atoms
// may lower it: the derivatives -size^2 / p^2 are equal where p is below 1, and steeper where it is
// 1.
TEST(AtomProbabilities, MakeTheVarianceLeast) {
  for (const double budget : {0.5, 1.0, 2.5, 3.0, 7.0}) {
    std::vector<double> sizes;
    for (int i = 0; i < 12; ++i) sizes.push_back(std::exp(-0.7 * i) + 0.001);
    const std::vector<double> p = AtomProbabilities(sizes, budget);
    EXPECT_NEAR(Sum(p), budget, 1e-12);
    const double slope = sizes.back() / p.back();
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_LE(p[i], 1);
      if (p[i] < 1) {
        EXPECT_NEAR(sizes[i] / p[i], slope, 1e-9) << i << ", " << budget;
      } else {
        EXPECT_GE(sizes[i], slope * (1 - 1e-12)) << i << ", " << budget;
      }
    }
  }
}

TEST(DrawAtoms, EachIsDrawnWithItsProbabilityAndNeverMoreThanTheBudget) {
  const std::vector<double> p = {1, 0.7, 0.5, 0.25, 0.05, 0};
  constexpr int kGrid = 20000;  // the uniform number runs over all its values
  std::vector<int> counts(p.size(), 0);
  for (int i = 0; i < kGrid; ++i) {
    const std::vector<size_t> drawn = DrawAtoms(p, (i + 0.5) / kGrid);
    EXPECT_LE(drawn.size(), 3u);
    EXPECT_GE(drawn.size(), 2u);
    EXPECT_TRUE(std::is_sorted(drawn.begin(), drawn.end()));
    for (const size_t atom : drawn) ++counts[atom];
  }
  for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(counts[i] / double{kGrid}, p[i], 1e-4) << i;
}

TEST(DrawAtoms, ACertainAtomIsDrawnAtTheEndsOfTheRange) {
  EXPECT_THAT(DrawAtoms(std::vector<double>{1, 1}, 0), ElementsAre(0, 1));
  EXPECT_THAT(DrawAtoms(std::vector<double>{1, 1}, std::nextafter(1.0, 0.0)), ElementsAre(0, 1));
  EXPECT_THAT(DrawAtoms({}, 0.5), IsEmpty());
}

}  // namespace
}  // namespace slimps
