// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/lowrank/spectrum.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

double Dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

struct Shape {
  size_t rows, columns;
};

constexpr Shape kShapes[] = {{1, 1}, {1, 9}, {9, 1}, {7, 7}, {20, 75}, {75, 20}, {64, 65}};

TEST(Spectrum, ItsVectorsAreOrthonormalAndTheirAtomsSumToTheMatrix) {
  for (const Shape& shape : kShapes) {
    const std::vector<float> x = RandomFloats(shape.rows * shape.columns, shape.rows);
    const MatrixView matrix = {shape.rows, shape.columns, x.data()};
    const Spectrum spectrum = SpectrumOf(matrix);
    ASSERT_EQ(spectrum.values.size(), std::min(shape.rows, shape.columns));
    EXPECT_TRUE(std::ranges::is_sorted(spectrum.values, std::greater<>()));
    std::vector<double> sum(x.size(), 0.0);
    for (size_t i = 0; i < spectrum.values.size(); ++i) {
      for (size_t j = 0; j <= i; ++j) {
        EXPECT_NEAR(Dot(spectrum.Vector(i), spectrum.Vector(j)), i == j ? 1 : 0, 1e-12);
      }
      const std::vector<double> other = OtherSide(matrix, spectrum.Vector(i));
      EXPECT_NEAR(std::sqrt(Dot(other, other)), spectrum.values[i], 1e-6 * spectrum.values[0]);
      const std::span<const double> w = spectrum.Vector(i);
      const std::span<const double> u = matrix.is_wide() ? w : std::span<const double>(other);
      const std::span<const double> v = matrix.is_wide() ? std::span<const double>(other) : w;
      for (size_t k = 0; k < x.size(); ++k) {
        sum[k] += u[k / shape.columns] * v[k % shape.columns];
      }
    }
    for (size_t k = 0; k < x.size(); ++k) EXPECT_NEAR(sum[k], static_cast<double>(x[k]), 1e-12);
  }
}

TEST(Spectrum, OfAMatrixOfKnownSingularValues) {
  // diag(3, 1) turned by 30 degrees on one side.
  const double c = std::sqrt(0.75), s = 0.5;
  const std::vector<float> x = {static_cast<float>(3 * c), static_cast<float>(-s),
                                static_cast<float>(3 * s), static_cast<float>(c)};
  const Spectrum spectrum = SpectrumOf({2, 2, x.data()});
  EXPECT_NEAR(spectrum.values[0], 3, 1e-6);
  EXPECT_NEAR(spectrum.values[1], 1, 1e-6);
  EXPECT_NEAR(std::abs(spectrum.Vector(0)[0]), c, 1e-6);
  EXPECT_NEAR(std::abs(spectrum.Vector(0)[1]), s, 1e-6);
}

TEST(Spectrum, TinyAndLargeNumbersKeepTheirSize) {
  for (const float scale : {1e-40f, 1e-20f, 1e19f}) {
    std::vector<float> x = RandomFloats(6 * 10, 1);
    const double wanted = SpectrumOf({6, 10, x.data()}).values[0];
    for (float& value : x) value *= scale;
    const double got = SpectrumOf({6, 10, x.data()}).values[0];
    EXPECT_NEAR(got / static_cast<double>(scale), wanted, wanted * 1e-4) << scale;
  }
  const std::vector<float> zeros(60, 0.0f);
  for (const double value : SpectrumOf({6, 10, zeros.data()}).values) EXPECT_EQ(value, 0);
}

}  // namespace
}  // namespace slimps
