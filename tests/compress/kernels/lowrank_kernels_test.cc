// SPDX-License-Identifier: Apache-2.0
// The low-rank kernels of every set against "scalar", bit for bit, and against the formulas in
// fp64.
#include <cmath>
#include <random>
#include <vector>

#include "compress/kernels/kernels.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

constexpr float kCanary = -12345.5f;
constexpr float kScale = 0.75f;

std::vector<float> Normal(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// A matrix, its gradient and its factors, each with room past its end.
struct Example {
  explicit Example(const LowRankShape& of) : shape(of) {
    const size_t n = of.rows * of.columns;
    gradient = Normal(n, n);
    x = Normal(n, n + 1);
    q = Normal(of.rank * of.columns, n + 2);
    p = Normal(of.rank * of.p_stride, n + 3);
    for (std::vector<float>* one : {&x, &q, &p}) one->resize(one->size() + 16, kCanary);
  }
  float P(size_t k, size_t i) const { return p[k * shape.p_stride + i]; }
  float Q(size_t k, size_t j) const { return q[k * shape.columns + j]; }
  float X(size_t i, size_t j) const { return x[i * shape.columns + j]; }

  LowRankShape shape;
  std::vector<float> gradient, x, q, p;
};

std::vector<LowRankShape> Shapes() {
  std::vector<LowRankShape> shapes;
  for (const size_t columns : {1, 15, 16, 17, 100}) {
    for (const size_t rows : {1, 3, 4, 9}) {
      for (const size_t rank : {1, 2, 3, 4, 5, 8, 11}) {
        shapes.push_back({.rows = rows, .columns = columns, .rank = rank, .p_stride = rows + 2});
      }
    }
  }
  return shapes;
}

class LowRankKernelsTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (!GetParam()->runs_here()) GTEST_SKIP() << "this CPU lacks " << GetParam()->name;
  }
  static const LowRankKernels& kernels() { return GetParam()->lowrank; }
  static const LowRankKernels& scalar() { return FindKernels("scalar")->lowrank; }
};

INSTANTIATE_TEST_SUITE_P(All, LowRankKernelsTest,
                         ::testing::ValuesIn(AllKernels().begin(), AllKernels().end()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(LowRankKernelsTest, ProjectTakesTheGradientAndMultipliesByTheFactor) {
  for (const LowRankShape& shape : Shapes()) {
    const Example before(shape);
    Example after = before, twin = before;
    const double norm2 = kernels().project(shape, after.gradient.data(), kScale, after.x.data(),
                                           after.q.data(), after.p.data());
    EXPECT_EQ(norm2, scalar().project(shape, twin.gradient.data(), kScale, twin.x.data(),
                                      twin.q.data(), twin.p.data()));
    ASSERT_EQ(Difference(after.x, twin.x), "");
    ASSERT_EQ(Difference(after.p, twin.p), "");
    double expected_norm2 = 0;
    for (size_t i = 0; i < shape.rows; ++i) {
      for (size_t j = 0; j < shape.columns; ++j) {
        const float g = before.gradient[i * shape.columns + j] * kScale;
        ASSERT_EQ(after.X(i, j), g + before.X(i, j));
        expected_norm2 += double{after.X(i, j)} * double{after.X(i, j)};
      }
      for (size_t k = 0; k < shape.rank; ++k) {
        double sum = 0;
        for (size_t j = 0; j < shape.columns; ++j) sum += double{after.X(i, j)} * before.Q(k, j);
        ASSERT_NEAR(after.P(k, i), sum, 1e-4);
      }
    }
    EXPECT_NEAR(norm2, expected_norm2, 1e-5 * expected_norm2);
    // What lies between the rows taken and the next vector is another row's.
    for (size_t k = 0; k < shape.rank; ++k) {
      for (size_t i = shape.rows; i < shape.p_stride; ++i) ASSERT_EQ(after.P(k, i), before.P(k, i));
    }
  }
}

TEST_P(LowRankKernelsTest, ProjectBackAddsToTheOtherFactor) {
  for (const LowRankShape& shape : Shapes()) {
    const Example before(shape);
    Example after = before, twin = before;
    kernels().project_back(shape, after.x.data(), after.p.data(), after.q.data());
    scalar().project_back(shape, twin.x.data(), twin.p.data(), twin.q.data());
    ASSERT_EQ(Difference(after.q, twin.q), "");
    for (size_t k = 0; k < shape.rank; ++k) {
      for (size_t j = 0; j < shape.columns; ++j) {
        double sum = before.Q(k, j);
        for (size_t i = 0; i < shape.rows; ++i) sum += double{before.X(i, j)} * before.P(k, i);
        ASSERT_NEAR(after.Q(k, j), sum, 1e-4);
      }
    }
  }
}

TEST_P(LowRankKernelsTest, SubtractLeavesWhatTheFactorsDoNotCarry) {
  for (const LowRankShape& shape : Shapes()) {
    const Example before(shape);
    Example after = before, twin = before;
    const double norm2 = kernels().subtract(shape, after.p.data(), after.q.data(), after.x.data());
    EXPECT_EQ(norm2, scalar().subtract(shape, twin.p.data(), twin.q.data(), twin.x.data()));
    ASSERT_EQ(Difference(after.x, twin.x), "");
    double expected_norm2 = 0;
    for (size_t i = 0; i < shape.rows; ++i) {
      for (size_t j = 0; j < shape.columns; ++j) {
        double left = before.X(i, j);
        for (size_t k = 0; k < shape.rank; ++k) left -= double{before.P(k, i)} * before.Q(k, j);
        ASSERT_NEAR(after.X(i, j), left, 1e-4);
        expected_norm2 += left * left;
      }
    }
    EXPECT_NEAR(norm2, expected_norm2, 1e-4 * (1 + expected_norm2));
  }
}

TEST_P(LowRankKernelsTest, RowsTakenApartGiveTheSameBits) {
  const LowRankShape whole{.rows = 8, .columns = 37, .rank = 5, .p_stride = 8};
  Example together(whole), apart(whole);
  kernels().project(whole, together.gradient.data(), kScale, together.x.data(), together.q.data(),
                    together.p.data());
  kernels().project_back(whole, together.x.data(), together.p.data(), together.q.data());
  LowRankShape part = whole;
  part.rows = 4;
  const std::vector<float> q = apart.q;
  for (const size_t row : {0, 4}) {
    kernels().project(part, apart.gradient.data() + row * whole.columns, kScale,
                      apart.x.data() + row * whole.columns, q.data(), apart.p.data() + row);
  }
  for (const size_t row : {0, 4}) {
    kernels().project_back(part, apart.x.data() + row * whole.columns, apart.p.data() + row,
                           apart.q.data());
  }
  EXPECT_EQ(Difference(together.p, apart.p), "");
  EXPECT_EQ(Difference(together.q, apart.q), "");
}

}  // namespace
}  // namespace slimps
