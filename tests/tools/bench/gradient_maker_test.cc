// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/models/gradient_maker.h"

#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace slimps {
namespace {

// A matrix, row by row.
struct Matrix {
  size_t rows, cols;
  std::vector<float> values;

  float At(size_t row, size_t col) const { return values[row * cols + col]; }
};

Matrix Make(const GradientStatistics& statistics, size_t rows, size_t cols, uint64_t worker = 0,
            uint64_t tensor = 0) {
  Matrix matrix{rows, cols, std::vector<float>(rows * cols)};
  GradientMaker(worker).Make(statistics, rows, cols, tensor, matrix.values);
  return matrix;
}

double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// Returns the part of the squared norm that the best approximation of `rank` has, by iterating a
// basis of its rows' space.
double Captured(const Matrix& matrix, size_t rank) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  std::vector<std::vector<double>> basis(rank, std::vector<double>(matrix.cols));
  for (auto& vector : basis) {
    for (double& value : vector) value = normal(random);
  }
  double captured = 0;
  for (int i = 0; i < 30; ++i) {
    captured = 0;
    for (size_t k = 0; k < rank; ++k) {
      std::vector<double>& vector = basis[k];
      for (size_t j = 0; j < k; ++j) {
        double dot = 0;
        for (size_t c = 0; c < matrix.cols; ++c) dot += vector[c] * basis[j][c];
        for (size_t c = 0; c < matrix.cols; ++c) vector[c] -= dot * basis[j][c];
      }
      double square = 0;
      for (const double value : vector) square += value * value;
      for (double& value : vector) value /= std::sqrt(square);
    }
    for (auto& vector : basis) {
      std::vector<double> next(matrix.cols);
      for (size_t r = 0; r < matrix.rows; ++r) {
        double product = 0;
        for (size_t c = 0; c < matrix.cols; ++c) product += matrix.At(r, c) * vector[c];
        captured += product * product;
        for (size_t c = 0; c < matrix.cols; ++c) next[c] += product * matrix.At(r, c);
      }
      vector = next;
    }
  }
  return captured / Dot(matrix.values, matrix.values);
}

std::vector<double> RowNorms(const Matrix& matrix) {
  std::vector<double> norms(matrix.rows);
  for (size_t r = 0; r < matrix.rows; ++r) {
    for (size_t c = 0; c < matrix.cols; ++c) norms[r] += std::pow(matrix.At(r, c), 2);
    norms[r] = std::sqrt(norms[r]);
  }
  return norms;
}

// The spread of GradientStatistics, and how many norms are zero.
struct Spread {
  double deviation = 0;
  size_t zeros = 0;
};

Spread SpreadOf(const std::vector<double>& norms) {
  double sum = 0, squares = 0;
  size_t alive = 0;
  for (const double norm : norms) {
    if (norm == 0) continue;
    ++alive;
    sum += norm;
    squares += norm * norm;
  }
  return {std::sqrt(-std::log(sum * sum / (squares * static_cast<double>(alive)))),
          norms.size() - alive};
}

TEST(GradientMaker, TheRmsIsExact) {
  for (const double rms : {1e-8, 0.02, 3.0}) {
    const Matrix matrix = Make({.rms = rms, .zero_rows = 0.3, .row_spread = 1}, 50, 40);
    EXPECT_NEAR(std::sqrt(Dot(matrix.values, matrix.values) / 2000), rms, 1e-4 * rms);
  }
}

TEST(GradientMaker, ATensorWithoutAGradientIsZero) {
  for (const float value : Make({.rms = 0}, 7, 9).values) EXPECT_EQ(value, 0);
}

TEST(GradientMaker, LowRanksHaveTheirPartOfTheEnergy) {
  const std::vector<double> energy = {0.3, 0.45, 0.6, 0.7, 0.8, 0.9};
  const Matrix matrix = Make({.energy = energy}, 256, 300);
  EXPECT_NEAR(Captured(matrix, 1), 0.3, 0.05);
  EXPECT_NEAR(Captured(matrix, 4), 0.6, 0.05);
  EXPECT_NEAR(Captured(matrix, 16), 0.8, 0.05);
}

TEST(GradientMaker, AMatrixOfLowRankIsOfLowRank) {
  const Matrix matrix = Make({.row_spread = 1, .energy = {0.6, 0.9, 1, 1, 1, 1}}, 100, 80);
  EXPECT_NEAR(Captured(matrix, 4), 1, 1e-6);
  EXPECT_LT(Captured(matrix, 1), 0.9);
}

TEST(GradientMaker, NormalNumbersHaveNoLowRank) { EXPECT_LT(Captured(Make({}, 200, 200), 4), 0.1); }

TEST(GradientMaker, RowsAreSpreadAndSomeAreZero) {
  const Spread found = SpreadOf(RowNorms(Make({.zero_rows = 0.75, .row_spread = 1}, 2000, 16)));
  EXPECT_NEAR(found.deviation, 1, 0.15);
  EXPECT_NEAR(static_cast<double>(found.zeros), 1500, 80);
}

TEST(GradientMaker, ColumnsAreSpreadAndSomeAreZero) {
  Matrix matrix = Make({.zero_cols = 0.5, .col_spread = 1}, 64, 1000);
  Matrix turned{matrix.cols, matrix.rows, std::vector<float>(matrix.values.size())};
  for (size_t r = 0; r < matrix.rows; ++r) {
    for (size_t c = 0; c < matrix.cols; ++c) turned.values[c * 64 + r] = matrix.At(r, c);
  }
  const Spread found = SpreadOf(RowNorms(turned));
  EXPECT_NEAR(found.deviation, 1, 0.15);
  EXPECT_NEAR(static_cast<double>(found.zeros), 500, 60);
}

TEST(GradientMaker, VectorsAreSpreadAsRecorded) {
  for (const double spread : {0.67, 1.0}) {
    const Spread found = SpreadOf(RowNorms(Make({.row_spread = spread}, 20000, 1)));
    EXPECT_NEAR(found.deviation, spread, 0.08);
  }
}

TEST(GradientMaker, RowsOfALowRankAreSpreadAsRecorded) {
  const GradientStatistics statistics = {.row_spread = 1, .energy = {0.8, 0.9, 0.95, 1, 1, 1}};
  EXPECT_NEAR(SpreadOf(RowNorms(Make(statistics, 2000, 50))).deviation, 1, 0.15);
}

TEST(GradientMaker, NotAllRowsAreZero) {
  const Matrix matrix = Make({.zero_rows = 1}, 20, 5);
  EXPECT_GT(Dot(matrix.values, matrix.values), 0);
}

TEST(GradientMaker, WorkersHaveTheRecordedAngle) {
  for (const double cosine : {0.0, 0.3, 0.9}) {
    const GradientStatistics statistics = {
        .cosine = cosine, .row_spread = 0.5, .energy = {0.1, 0.15, 0.2, 0.25, 0.3, 0.4}};
    const Matrix a = Make(statistics, 200, 150, 0), b = Make(statistics, 200, 150, 1);
    EXPECT_NEAR(Dot(a.values, b.values) / Dot(a.values, a.values), cosine, 0.12) << cosine;
  }
}

TEST(GradientMaker, EqualArgumentsGiveEqualGradientsAndTensorsDiffer) {
  const GradientStatistics statistics = {.energy = {0.1, 0.15, 0.2, 0.25, 0.3, 0.4}};
  EXPECT_EQ(Make(statistics, 20, 30, 1, 2).values, Make(statistics, 20, 30, 1, 2).values);
  EXPECT_NE(Make(statistics, 20, 30, 1, 2).values, Make(statistics, 20, 30, 1, 3).values);
  EXPECT_NE(Make(statistics, 20, 30, 1, 2).values, Make(statistics, 20, 30, 2, 2).values);
}

}  // namespace
}  // namespace slimps
