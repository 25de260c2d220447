// SPDX-License-Identifier: Apache-2.0
// The problem that L-GreCo and its baselines solve: give each tensor one of its levels so that the
// total cost is small and the total error stays within a budget.
//
//   minimise sum(cost of the level of i)  subject to  sum(error of the level of i) <= budget
//
// Source: Alimohammadi et al., "L-GreCo: Layerwise-Adaptive Gradient Compression for Efficient and
// Accurate Deep Learning", 2023, section 3. Errors are L2 norms of what a tensor loses, or their
// squares: the caller says which. Thread-safe: all functions are pure.
//
//   const Allocation best = LeastCost({.tensors = levels, .budget = TotalError(levels, uniform)},
//                                     uniform);
#ifndef SLIMPS_COMPRESS_POLICY_ALLOCATION_ALLOCATION_H_
#define SLIMPS_COMPRESS_POLICY_ALLOCATION_ALLOCATION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace slimps {

struct Level {
  double error = 0;  // 0 or more
  double cost = 0;   // 0 or more: bytes or time
};

using Levels = std::vector<Level>;       // of one tensor, in any order, at least one
using Allocation = std::vector<size_t>;  // the level of each tensor, as an index

struct AllocationProblem {
  std::vector<Levels> tensors;
  double budget = 0;
};

double TotalError(std::span<const Levels> tensors, const Allocation& allocation);
double TotalCost(std::span<const Levels> tensors, const Allocation& allocation);

// Returns the budget with a margin for rounding: the same errors in another order sum up
// differently, in parts of 1e-12 at most.
double Ceiling(const AllocationProblem& problem);

// True if the allocation's error is at most Ceiling(problem).
bool WithinBudget(const AllocationProblem& problem, const Allocation& allocation);

// L-GreCo's algorithm 1: a dynamic programme over the error budget in kBudgetSteps steps.
//
// After each tensor it keeps states: pairs of an error so far and the least cost for it. Errors are
// exact sums; only where there are more than kBudgetSteps states does one state for each step of
// the budget remain, the cheapest. So the paper's rounding of errors cannot exceed the budget, and
// small problems are solved exactly. A state is dropped if even a relaxed problem, in which the
// budget has a price instead of a bound, finds no better end for it than a known allocation.
// Returns the allocation of least cost. It never costs more than `reference`.
// REQUIRES: `reference` is within the budget.
Allocation LeastCost(const AllocationProblem& problem, const Allocation& reference);

inline constexpr size_t kBudgetSteps = 10'000;  // the paper's D

// Returns the allocation that minimises cost + price * error of each tensor by itself. Of levels
// that are equally good, it takes the one with the smallest error.
Allocation AtPrice(std::span<const Levels> tensors, double price);

// Returns a price at which AtPrice is within the budget and which cannot be lowered by one part in
// a million. If no price is high enough, returns the highest that fp64 holds.
double LeastPrice(const AllocationProblem& problem);

// Global top-k (the paper's section 5.3): one threshold for all tensors. Each tensor sends what
// saves more error per byte than the threshold says, and nothing else; the threshold is the highest
// that the budget allows. That is AtPrice(LeastPrice()).
// Returns the allocation, or `reference` if that costs less.
// REQUIRES: `reference` is within the budget.
Allocation OneThreshold(const AllocationProblem& problem, const Allocation& reference);

// CGX's k-means heuristic (Markov et al., "CGX: Adaptive System Support for Communication-Efficient
// Deep Learning", 2022, as section 5.3 of L-GreCo describes it). Tensors are points (size, error of
// the reference level), both as logarithms and scaled to [0, 1]. They fall into `clusters` groups,
// which are ordered from small and erroneous to large and exact. In this order, the groups get
// levels from the least to the most compressed, evenly spread. L-GreCo's section 5.3 does not say
// how the levels meet a budget: here all groups move together towards less compression, by 1/64 of
// the range at a time, until the total error is within it.
//
// `sizes`: elements of each tensor.
// Returns the allocation, or `reference` if that costs less.
// REQUIRES: `reference` is within the budget; clusters >= 1.
Allocation ByClusters(const AllocationProblem& problem, std::span<const uint64_t> sizes,
                      size_t clusters, const Allocation& reference);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_ALLOCATION_ALLOCATION_H_
