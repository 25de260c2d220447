// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/controllers/iteration_model.h"

#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace slimps {
namespace {

TEST(PredictIterationNs, FollowsOneTensorThroughThePipeline) {
  TimedProblem problem{
      .tensors =
          {{.ready_ns = 100,
            .levels = {{.push_bytes = 10, .pull_bytes = 20, .encode_ns = 7, .decode_ns = 3}}}},
      .link = {.startup_ns = 50, .ns_per_byte = 2},
      .workers = 2};
  // ready, encode, push, start-up, decode both workers', pull, start-up
  EXPECT_DOUBLE_EQ(PredictIterationNs(problem, {0}), 100 + 7 + 20 + 50 + 6 + 40 + 50);
}

TEST(PredictIterationNs, TensorsShareTheLinkAndTheEncoder) {
  const TimedLevel level = {.push_bytes = 10, .pull_bytes = 10, .encode_ns = 5};
  TimedProblem problem{
      .tensors = {{.ready_ns = 0, .levels = {level}}, {.ready_ns = 0, .levels = {level}}},
      .link = {.ns_per_byte = 1}};
  // Encoded at 5 and 10; pushed 5..15 and 15..25; pulled 15..25 and 25..35.
  EXPECT_DOUBLE_EQ(PredictIterationNs(problem, {0, 0}), 35);
  problem.tensors[0].levels[0].encode_ns = problem.tensors[1].levels[0].encode_ns = 20;
  // Encoded at 20 and 40; pushed 20..30 and 40..50; pulled until 60.
  EXPECT_DOUBLE_EQ(PredictIterationNs(problem, {0, 0}), 60);
}

// Returns the least predicted time within the budget, by trying everything.
double ExhaustiveNs(const TimedProblem& problem) {
  Allocation allocation(problem.tensors.size(), 0);
  double least = std::numeric_limits<double>::infinity();
  while (true) {
    double error = 0;
    for (size_t i = 0; i < allocation.size(); ++i) {
      error += problem.tensors[i].levels[allocation[i]].error;
    }
    if (error <= problem.budget) least = std::min(least, PredictIterationNs(problem, allocation));
    size_t i = 0;
    while (i < allocation.size() && ++allocation[i] == problem.tensors[i].levels.size()) {
      allocation[i++] = 0;
    }
    if (i == allocation.size()) return least;
  }
}

TimedProblem RandomProblem(uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> part(0.1, 1);
  TimedProblem problem{.link = {.startup_ns = 100, .ns_per_byte = 1}, .workers = 4};
  for (int i = 0; i < 5; ++i) {
    TimedTensor tensor{.ready_ns = 3000 * part(random), .levels = {}};
    const double size = std::exp(8 * part(random)), energy = part(random);
    for (const double ratio : {0.02, 0.1, 0.3}) {
      tensor.levels.push_back({.error = energy * (1 - ratio) * part(random),
                               .push_bytes = size * ratio,
                               .pull_bytes = size * ratio,
                               .encode_ns = 0.3 * size * part(random),
                               .decode_ns = 0.02 * size * part(random)});
    }
    tensor.levels.push_back({.push_bytes = size, .pull_bytes = size});
    problem.tensors.push_back(std::move(tensor));
    problem.budget += 0.5 * energy * part(random);
  }
  return problem;
}

TEST(Fastest, IsWithinTenPercentOfExhaustiveSearchAndOftenEqual) {
  int equal = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const TimedProblem problem = RandomProblem(seed);
    const Allocation raw(5, 3);
    const double found =
        PredictIterationNs(problem, Fastest(problem, std::vector<Allocation>{raw}));
    const double least = ExhaustiveNs(problem);
    EXPECT_GE(found, least);
    EXPECT_LE(found, 1.10 * least) << seed;
    equal += found <= least * (1 + 1e-12) ? 1 : 0;
  }
  EXPECT_GE(equal, 80);
}

TEST(Fastest, IsNeverSlowerThanAStart) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    TimedProblem problem = RandomProblem(seed);
    problem.budget = 100;
    for (size_t level = 0; level < 4; ++level) {
      const Allocation start(5, level);
      EXPECT_LE(PredictIterationNs(problem, Fastest(problem, std::vector<Allocation>{start})),
                PredictIterationNs(problem, start));
    }
  }
}

}  // namespace
}  // namespace slimps
