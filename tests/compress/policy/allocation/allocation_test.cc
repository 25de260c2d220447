// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/allocation/allocation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace slimps {
namespace {

// Tensors with `levels` levels each, of falling error and rising cost, times a size and an energy
// of the tensor's own.
std::vector<Levels> RandomTensors(std::mt19937& random, size_t tensors, size_t levels) {
  std::uniform_real_distribution<double> part(0.1, 1);
  std::vector<Levels> made(tensors);
  for (Levels& tensor : made) {
    const double size = std::exp(6 * part(random)), energy = std::exp(6 * part(random));
    double error = 1, cost = 0;
    for (size_t level = 0; level < levels; ++level) {
      error *= part(random);
      cost += part(random);
      tensor.push_back({.error = energy * error, .cost = std::floor(100 * size * cost)});
    }
    std::ranges::shuffle(tensor, random);
  }
  return made;
}

// Returns the least cost within the budget, by trying everything.
double ExhaustiveCost(const AllocationProblem& problem) {
  Allocation allocation(problem.tensors.size(), 0);
  double least = std::numeric_limits<double>::infinity();
  while (true) {
    if (WithinBudget(problem, allocation)) {
      least = std::min(least, TotalCost(problem.tensors, allocation));
    }
    size_t i = 0;
    while (i < allocation.size() && ++allocation[i] == problem.tensors[i].size()) {
      allocation[i++] = 0;
    }
    if (i == allocation.size()) return least;
  }
}

// A reference and the problem whose budget is the reference's error.
AllocationProblem ProblemAt(std::vector<Levels> tensors, const Allocation& reference) {
  AllocationProblem problem{.tensors = std::move(tensors)};
  problem.budget = TotalError(problem.tensors, reference);
  return problem;
}

TEST(LeastCost, EqualsExhaustiveSearchOnSmallCases) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const size_t tensors = 1 + seed % 6, levels = 1 + seed / 7 % 5;
    Allocation reference;
    for (size_t i = 0; i < tensors; ++i) reference.push_back(random() % levels);
    const AllocationProblem problem = ProblemAt(RandomTensors(random, tensors, levels), reference);
    const Allocation found = LeastCost(problem, reference);
    EXPECT_TRUE(WithinBudget(problem, found)) << seed;
    EXPECT_EQ(TotalCost(problem.tensors, found), ExhaustiveCost(problem)) << seed;
  }
}

TEST(LeastCost, IsNeverWorseThanUniformOrTheHeuristics) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const Allocation reference(60, seed % 8);
    const AllocationProblem problem = ProblemAt(RandomTensors(random, 60, 8), reference);
    const std::vector<uint64_t> sizes(60, 1000);
    const double found = TotalCost(problem.tensors, LeastCost(problem, reference));
    const double threshold = TotalCost(problem.tensors, OneThreshold(problem, reference));
    const double clusters = TotalCost(problem.tensors, ByClusters(problem, sizes, 6, reference));
    EXPECT_LE(found, TotalCost(problem.tensors, reference));
    EXPECT_LE(found, threshold);
    EXPECT_LE(found, clusters);
    for (const auto& allocation : {LeastCost(problem, reference), OneThreshold(problem, reference),
                                   ByClusters(problem, sizes, 6, reference)}) {
      EXPECT_TRUE(WithinBudget(problem, allocation)) << seed;
    }
  }
}

TEST(LeastCost, ManyStatesStayWithinTheBudget) {
  // Errors that are all different and costs close to each other: nothing can be dropped early, so
  // the steps of the budget decide which states stay.
  std::mt19937 random(7);
  std::uniform_real_distribution<double> part(0.5, 1);
  std::vector<Levels> tensors(40);
  for (Levels& levels : tensors) {
    for (int level = 1; level <= 10; ++level) {
      const double error = level + 0.01 * part(random);
      levels.push_back({.error = error, .cost = 100 - error + 1e-6 * part(random)});
    }
  }
  const Allocation reference(40, 5);
  const AllocationProblem problem = ProblemAt(std::move(tensors), reference);
  const Allocation found = LeastCost(problem, reference);
  EXPECT_TRUE(WithinBudget(problem, found));
  EXPECT_LE(TotalCost(problem.tensors, found), TotalCost(problem.tensors, reference));
}

TEST(LeastCost, ZeroErrorsAndAZeroBudget) {
  const std::vector<Levels> tensors = {{{0, 5}, {1, 1}}, {{0, 7}, {0, 3}}};
  const AllocationProblem problem{.tensors = tensors, .budget = 0};
  EXPECT_EQ(LeastCost(problem, {0, 0}), (Allocation{0, 1}));
  EXPECT_EQ(LeastCost({}, {}), Allocation{});
}

TEST(AtPrice, APriceOfZeroTakesTheCheapestAndAHighOneTheMostExact) {
  const std::vector<Levels> tensors = {{{8, 1}, {4, 2}, {1, 9}}};
  EXPECT_EQ(AtPrice(tensors, 0), (Allocation{0}));
  EXPECT_EQ(AtPrice(tensors, 0.5), (Allocation{1}));  // 1 + 4 = 5, 2 + 2 = 4, 9 + 0.5
  EXPECT_EQ(AtPrice(tensors, 100), (Allocation{2}));
}

TEST(LeastPrice, IsTheLowestThatMeetsTheBudget) {
  // From level 0 to 1 an error of 4 costs 1, from 1 to 2 one of 3 costs 7: prices 1/4 and 7/3.
  const AllocationProblem problem{.tensors = {{{8, 1}, {4, 2}, {1, 9}}}, .budget = 1};
  EXPECT_NEAR(LeastPrice(problem), 7.0 / 3, 1e-4);
  EXPECT_NEAR(LeastPrice({.tensors = problem.tensors, .budget = 5}), 0.25, 1e-4);
  EXPECT_EQ(LeastPrice({.tensors = problem.tensors, .budget = 8}), 0);
}

// Global top-k by its definition: sends the largest elements of all tensors.
TEST(OneThreshold, IsGlobalTopKWhereEveryCountIsALevel) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<double> all;
  std::vector<Levels> tensors;
  std::vector<std::vector<double>> squares;
  for (const double scale : {1.0, 5.0, 0.2}) {
    std::vector<double> elements;
    for (int i = 0; i < 40; ++i) elements.push_back(std::pow(scale * normal(random), 2));
    std::ranges::sort(elements, std::greater());
    Levels levels;
    double error = 0;
    for (const double element : elements) error += element;
    for (size_t k = 0; k <= elements.size(); ++k) {
      levels.push_back({.error = std::max(error, 0.0), .cost = static_cast<double>(k)});
      if (k < elements.size()) error -= elements[k];
    }
    tensors.push_back(levels);
    all.insert(all.end(), elements.begin(), elements.end());
    squares.push_back(elements);
  }
  std::ranges::sort(all, std::greater());
  for (const size_t sent : {5u, 30u, 70u}) {
    double error = 0;
    for (size_t i = sent; i < all.size(); ++i) error += all[i];
    const AllocationProblem problem{.tensors = tensors, .budget = error * (1 + 1e-9)};
    const Allocation found = OneThreshold(problem, Allocation(3, 40));
    EXPECT_EQ(TotalCost(tensors, found), static_cast<double>(sent));
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(found[i], static_cast<size_t>(std::ranges::count_if(
                              squares[i], [&](double s) { return s >= all[sent - 1]; })));
    }
  }
}

TEST(ByClusters, CompressesLargeExactTensorsMost) {
  // Two kinds: small with a large error, large with a small error.
  std::vector<Levels> tensors;
  std::vector<uint64_t> sizes;
  for (int i = 0; i < 3; ++i) {
    tensors.push_back({{100, 10}, {50, 20}, {10, 40}});
    sizes.push_back(100);
  }
  for (int i = 0; i < 3; ++i) {
    tensors.push_back({{1, 1000}, {0.5, 2000}, {0.1, 4000}});
    sizes.push_back(10'000);
  }
  const Allocation uniform(6, 1);
  const AllocationProblem problem = ProblemAt(tensors, uniform);
  EXPECT_EQ(ByClusters(problem, sizes, 2, uniform), (Allocation{2, 2, 2, 0, 0, 0}));
}

TEST(ByClusters, EqualTensorsAreOneGroup) {
  const std::vector<Levels> tensors(4, Levels{{4, 1}, {2, 2}, {1, 4}});
  const std::vector<uint64_t> sizes(4, 64);
  const AllocationProblem problem = ProblemAt(tensors, Allocation(4, 1));
  EXPECT_EQ(ByClusters(problem, sizes, 6, Allocation(4, 1)), Allocation(4, 1));
}

}  // namespace
}  // namespace slimps
