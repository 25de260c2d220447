// Small linear fits with coefficients from 0 up. Pure.
//
//   // y = a + b x
//   const Coefficients ab = FitNonNegative({{{1, 0, 0}, 5.0, 1.0}, {{1, 10, 0}, 25.0, 1.0}});   // {5, 2, 0}
#ifndef SLIMPS_COMPRESS_POLICY_LEAST_SQUARES_H_
#define SLIMPS_COMPRESS_POLICY_LEAST_SQUARES_H_

#include <array>
#include <cstddef>
#include <vector>

namespace slimps {

constexpr size_t kMaxCoefficients = 3;
using Coefficients = std::array<double, kMaxCoefficients>;

struct Equation {
  Coefficients factors = {};  // of the coefficients; zeros for those that do not take part
  double value = 0;           // over 0
  double weight = 1;
};

// The coefficients, none negative, whose weighted relative errors (sum of factors * coefficients, over value, less 1)
// have the smallest sum of squares, equations far off counting less: Huber's weights, a fixed number of times. A
// coefficient that no equation determines is 0.
Coefficients FitNonNegative(const std::vector<Equation>& equations);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_LEAST_SQUARES_H_
