// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/allocation/allocation.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace slimps {
namespace {

// Sums of the same errors in another order differ by far less than this part.
constexpr double kRounding = 1e-12;

}  // namespace

double TotalError(std::span<const Levels> tensors, const Allocation& allocation) {
  double error = 0;
  for (size_t i = 0; i < tensors.size(); ++i) error += tensors[i][allocation[i]].error;
  return error;
}

double TotalCost(std::span<const Levels> tensors, const Allocation& allocation) {
  double cost = 0;
  for (size_t i = 0; i < tensors.size(); ++i) cost += tensors[i][allocation[i]].cost;
  return cost;
}

double Ceiling(const AllocationProblem& problem) { return problem.budget * (1 + kRounding); }

bool WithinBudget(const AllocationProblem& problem, const Allocation& allocation) {
  return TotalError(problem.tensors, allocation) <= Ceiling(problem);
}

Allocation AtPrice(std::span<const Levels> tensors, double price) {
  Allocation allocation;
  for (const Levels& levels : tensors) {
    const auto worse = [price](const Level& a, const Level& b) {
      const double of_a = a.cost + price * a.error, of_b = b.cost + price * b.error;
      return of_a != of_b ? of_a < of_b : a.error < b.error;
    };
    allocation.push_back(
        static_cast<size_t>(std::ranges::min_element(levels, worse) - levels.begin()));
  }
  return allocation;
}

double LeastPrice(const AllocationProblem& problem) {
  const auto enough = [&](double price) {
    return WithinBudget(problem, AtPrice(problem.tensors, price));
  };
  if (enough(0)) return 0;
  // A bisection over the price's exponent: prices of bytes per squared error span many orders.
  double low = std::log(std::numeric_limits<double>::min());
  double high = std::log(std::numeric_limits<double>::max());
  if (enough(std::exp(low))) return std::exp(low);
  while (high - low > 1e-6) {
    const double middle = low + (high - low) / 2;
    (enough(std::exp(middle)) ? high : low) = middle;
  }
  return std::exp(high);
}

Allocation OneThreshold(const AllocationProblem& problem, const Allocation& reference) {
  const Allocation found = AtPrice(problem.tensors, LeastPrice(problem));
  const bool better = WithinBudget(problem, found) &&
                      TotalCost(problem.tensors, found) < TotalCost(problem.tensors, reference);
  return better ? found : reference;
}

}  // namespace slimps
