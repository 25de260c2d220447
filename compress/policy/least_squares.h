// SPDX-License-Identifier: Apache-2.0
// Small linear fits whose coefficients are never negative. Pure.
//
//   // y = a + b x
//   const Coefficients ab =
//       FitNonNegative({{{1, 0, 0}, 5.0, 1.0}, {{1, 10, 0}, 25.0, 1.0}});  // {5, 2, 0}
#ifndef SLIMPS_COMPRESS_POLICY_LEAST_SQUARES_H_
#define SLIMPS_COMPRESS_POLICY_LEAST_SQUARES_H_

#include <array>
#include <cstddef>
#include <vector>

namespace slimps {

constexpr size_t kMaxCoefficients = 3;
using Coefficients = std::array<double, kMaxCoefficients>;

struct Equation {
  Coefficients factors = {};  // one for each coefficient; 0 for those that do not take part
  double value = 0;           // more than 0
  double weight = 1;
};

// Returns the coefficients with the smallest weighted sum of squared relative errors. None is
// negative. The relative error of an equation is
//
//   sum(factors[i] * coefficients[i]) / value - 1
//
// Equations that lie far off count less (Huber's weights, applied a fixed number of times). A
// coefficient that no equation determines is 0.
Coefficients FitNonNegative(const std::vector<Equation>& equations);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_LEAST_SQUARES_H_
