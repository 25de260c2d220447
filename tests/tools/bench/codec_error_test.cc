// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/models/codec_error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace slimps {
namespace {

TEST(LowRankError, IsTheEnergyThatNoMatrixOfThatRankHas) {
  // Singular values 4, 2 and 1.
  const size_t rows = 6, columns = 9;
  std::vector<float> matrix(rows * columns);
  matrix[0 * columns + 3] = 4;
  matrix[2 * columns + 0] = -2;
  matrix[5 * columns + 8] = 1;
  EXPECT_NEAR(LowRankError(matrix, rows, 1), 5, 0.05);
  EXPECT_NEAR(LowRankError(matrix, rows, 2), 1, 0.01);
  EXPECT_NEAR(LowRankError(matrix, rows, 3), 0, 1e-9);
  EXPECT_NEAR(LowRankError(matrix, rows, 5), 0, 1e-9) << "more columns than the matrix has ranks";
}

TEST(ErrorOfCodec, FallsWithBitsAndIsNothingForRaw) {
  const auto model = FindModel("inception_bn");
  ASSERT_TRUE(model.ok());
  const auto error = [&](std::string_view codec) {
    const auto found = ErrorOfCodec(*model, codec);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.value_or(-1);
  };
  EXPECT_EQ(error("none"), 0);
  const double eight = error("qsgd:bits=8,norm=max"), four = error("qsgd:bits=4,norm=max");
  EXPECT_GT(eight, 0);
  EXPECT_GT(four, 16 * eight);
  EXPECT_LT(four, 1);
  const double rank = error("powersgd:rank=4");
  EXPECT_GT(rank, 0);
  EXPECT_LT(rank, 1);
  EXPECT_GT(rank, error("powersgd:rank=8"));
}

TEST(ErrorOfCodec, RefusesWhatItCannotTell) {
  const auto model = FindModel("inception_bn");
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(ErrorOfCodec(*model, "qsdg").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOfCodec(*model, "thc").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace slimps
