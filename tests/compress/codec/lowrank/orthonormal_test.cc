// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/lowrank/orthonormal.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace slimps {
namespace {

std::vector<float> RandomMatrix(size_t rows, size_t columns, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> matrix(rows * columns);
  for (float& value : matrix) value = normal(random);
  return matrix;
}

double Dot(const std::vector<float>& matrix, size_t columns, size_t a, size_t b) {
  double sum = 0;
  for (size_t j = 0; j < columns; ++j) {
    sum += double{matrix[a * columns + j]} * double{matrix[b * columns + j]};
  }
  return sum;
}

void ExpectOrthonormal(const std::vector<float>& matrix, size_t rows, size_t columns) {
  for (size_t a = 0; a < rows; ++a) {
    for (size_t b = 0; b <= a; ++b) {
      EXPECT_NEAR(Dot(matrix, columns, a, b), a == b ? 1 : 0, 1e-6) << a << " and " << b;
    }
  }
}

// What is left of `row` when its parts along the rows of `matrix` are taken away.
double DistanceFrom(const std::vector<float>& matrix, size_t rows, std::vector<float> row) {
  const size_t columns = row.size();
  std::vector<double> left(row.begin(), row.end());
  for (size_t i = 0; i < rows; ++i) {
    double part = 0;
    for (size_t j = 0; j < columns; ++j) part += left[j] * double{matrix[i * columns + j]};
    for (size_t j = 0; j < columns; ++j) left[j] -= part * double{matrix[i * columns + j]};
  }
  double norm = 0;
  for (double value : left) norm += value * value;
  return std::sqrt(norm);
}

TEST(Orthonormalise, RowsBecomeOrthonormalAndSpanTheSameSpace) {
  for (const auto& [rows, columns] : {std::pair<size_t, size_t>{1, 1}, {1, 7}, {4, 4}, {4, 300}}) {
    for (const float scale : {1.0f, 1e-30f, 1e18f}) {
      std::vector<float> matrix = RandomMatrix(rows, columns, rows * columns);
      for (float& value : matrix) value *= scale;
      const std::vector<float> before = matrix;
      Orthonormalise(rows, columns, /*turn=*/3, matrix);
      ExpectOrthonormal(matrix, rows, columns);
      for (size_t i = 0; i < rows; ++i) {
        const std::vector<float> row(
            before.begin() + static_cast<std::ptrdiff_t>(i * columns),
            before.begin() + static_cast<std::ptrdiff_t>((i + 1) * columns));
        EXPECT_LT(DistanceFrom(matrix, rows, row), 1e-5 * scale * std::sqrt(double(columns)));
      }
    }
  }
}

TEST(Orthonormalise, TheFirstRowKeepsItsDirection) {
  std::vector<float> matrix = {3, 0, 4, 1, 1, 1};
  Orthonormalise(2, 3, /*turn=*/1, matrix);
  EXPECT_FLOAT_EQ(matrix[0], 0.6f);
  EXPECT_FLOAT_EQ(matrix[1], 0);
  EXPECT_FLOAT_EQ(matrix[2], 0.8f);
}

TEST(Orthonormalise, DependentRowsAndZerosBecomeNewDirections) {
  for (uint64_t turn = 0; turn < 12; ++turn) {
    std::vector<float> matrix = RandomMatrix(5, 9, turn);
    for (size_t j = 0; j < 9; ++j) {
      matrix[1 * 9 + j] = 2 * matrix[j];
      matrix[3 * 9 + j] = 0;
      matrix[4 * 9 + j] = matrix[j] + matrix[2 * 9 + j];
    }
    Orthonormalise(5, 9, turn, matrix);
    ExpectOrthonormal(matrix, 5, 9);
  }
  std::vector<float> zeros(6 * 6);
  Orthonormalise(6, 6, /*turn=*/4, zeros);
  ExpectOrthonormal(zeros, 6, 6);
}

TEST(Orthonormalise, AnotherTurnTriesAnotherDirection) {
  std::vector<float> one(8), other(8);
  Orthonormalise(1, 8, /*turn=*/2, one);
  Orthonormalise(1, 8, /*turn=*/3, other);
  EXPECT_NE(one, other);
}

TEST(Orthonormalise, WhatIsNotFiniteStaysToBeSeen) {
  std::vector<float> matrix = {1, 2, std::numeric_limits<float>::quiet_NaN(), 4};
  Orthonormalise(2, 2, /*turn=*/1, matrix);
  EXPECT_EQ(matrix[0], 1);
  EXPECT_TRUE(std::isnan(matrix[2]));
}

}  // namespace
}  // namespace slimps
