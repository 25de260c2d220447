// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/least_squares.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace slimps {
namespace {

constexpr int kReweightings = 8;
constexpr double kHuber = 1.345;         // standard deviations: 95 % efficient without outliers
constexpr double kMadToSigma = 1.4826;   // median absolute deviation to standard deviation
constexpr double kSmallestSigma = 0.01;  // keeps tiny relative errors from counting as outliers

using Active = std::array<bool, kMaxCoefficients>;

double RelativeError(const Equation& equation, const Coefficients& coefficients) {
  double sum = 0;
  for (size_t i = 0; i < kMaxCoefficients; ++i) sum += equation.factors[i] * coefficients[i];
  return sum / equation.value - 1;
}

// Solves the normal equations for the active coefficients: Gauss-Jordan elimination with pivots
// from the diagonal, since the matrix is symmetric and positive semidefinite. A coefficient without
// a usable pivot is 0.
Coefficients SolveNormal(std::array<std::array<double, kMaxCoefficients + 1>, kMaxCoefficients> m,
                         const Active& active) {
  Coefficients solution = {};
  Active solved = {};
  Coefficients diagonal = {};
  for (size_t i = 0; i < kMaxCoefficients; ++i) diagonal[i] = m[i][i];
  for (size_t step = 0; step < kMaxCoefficients; ++step) {
    size_t pivot = kMaxCoefficients;
    for (size_t i = 0; i < kMaxCoefficients; ++i) {
      // Elimination leaves next to nothing of a coefficient that depends on the others.
      const bool usable = active[i] && !solved[i] && m[i][i] > 1e-12 * diagonal[i];
      if (usable && (pivot == kMaxCoefficients ||
                     m[i][i] * diagonal[pivot] > m[pivot][pivot] * diagonal[i])) {
        pivot = i;
      }
    }
    if (pivot == kMaxCoefficients) break;
    solved[pivot] = true;
    for (size_t row = 0; row < kMaxCoefficients; ++row) {
      if (row == pivot || !active[row]) continue;
      const double factor = m[row][pivot] / m[pivot][pivot];
      for (size_t column = 0; column <= kMaxCoefficients; ++column) {
        m[row][column] -= factor * m[pivot][column];
      }
    }
  }
  for (size_t i = 0; i < kMaxCoefficients; ++i) {
    if (solved[i]) solution[i] = m[i][kMaxCoefficients] / m[i][i];
  }
  return solution;
}

// Solves the least squares. While a coefficient comes out negative, the lowest is fixed at 0 and
// the others are solved again.
Coefficients Solve(const std::vector<Equation>& equations, std::span<const double> weights) {
  std::array<std::array<double, kMaxCoefficients + 1>, kMaxCoefficients> normal = {};
  for (size_t e = 0; e < equations.size(); ++e) {
    const Equation& equation = equations[e];
    for (size_t i = 0; i < kMaxCoefficients; ++i) {
      const double scaled = weights[e] * equation.factors[i] / equation.value;
      for (size_t j = 0; j < kMaxCoefficients; ++j) {
        normal[i][j] += scaled * equation.factors[j] / equation.value;
      }
      normal[i][kMaxCoefficients] += scaled;
    }
  }
  Active active = {true, true, true};
  for (;;) {
    const Coefficients solution = SolveNormal(normal, active);
    const auto lowest = std::ranges::min_element(solution);
    if (*lowest >= 0) return solution;
    active[static_cast<size_t>(lowest - solution.begin())] = false;
  }
}

// Returns a robust estimate of the relative errors' standard deviation.
double Sigma(const std::vector<Equation>& equations, const Coefficients& coefficients) {
  std::vector<double> errors;
  for (const Equation& equation : equations) {
    errors.push_back(std::abs(RelativeError(equation, coefficients)));
  }
  const auto middle = errors.begin() + static_cast<ptrdiff_t>(errors.size() / 2);
  std::ranges::nth_element(errors, middle);
  return std::max(kMadToSigma * *middle, kSmallestSigma);
}

}  // namespace

Coefficients FitNonNegative(const std::vector<Equation>& equations) {
  if (equations.empty()) return {};
  std::vector<double> weights;
  for (const Equation& equation : equations) weights.push_back(equation.weight);
  Coefficients coefficients = Solve(equations, weights);
  for (int round = 0; round < kReweightings; ++round) {
    const double limit = kHuber * Sigma(equations, coefficients);
    for (size_t e = 0; e < equations.size(); ++e) {
      const double error = std::abs(RelativeError(equations[e], coefficients));
      weights[e] = equations[e].weight * (error > limit ? limit / error : 1);
    }
    coefficients = Solve(equations, weights);
  }
  return coefficients;
}

}  // namespace slimps
