// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/link_model.h"

#include <cmath>
#include <random>

#include "compress/policy/least_squares.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

TEST(FitNonNegative, FindsALineAndIgnoresWhatNothingDetermines) {
  const Coefficients line = FitNonNegative({{{1, 0, 0}, 5}, {{1, 10, 0}, 25}, {{1, 20, 0}, 45}});
  EXPECT_NEAR(line[0], 5, 1e-9);
  EXPECT_NEAR(line[1], 2, 1e-9);
  EXPECT_EQ(line[2], 0);
  EXPECT_EQ(FitNonNegative({}), Coefficients{});
}

TEST(FitNonNegative, NoCoefficientIsBelowZero) {
  // The times fall: the best line with no negative slope is level.
  const Coefficients falling = FitNonNegative({{{1, 1, 0}, 4}, {{1, 2, 0}, 3}, {{1, 3, 0}, 2}});
  EXPECT_EQ(falling[1], 0);
  EXPECT_GT(falling[0], 2);
  EXPECT_LT(falling[0], 4);
  // The line meets zero below the axis: there is no start-up time.
  const Coefficients steep = FitNonNegative({{{1, 1, 0}, 1}, {{1, 2, 0}, 4}, {{1, 3, 0}, 7}});
  EXPECT_EQ(steep[0], 0);
  EXPECT_GT(steep[1], 1);
}

TEST(FitNonNegative, APointFarOffHardlyMovesTheLine) {
  std::vector<Equation> equations;
  for (int x = 1; x <= 12; ++x) {
    equations.push_back({{1, static_cast<double>(x), 0}, 5 + 2.0 * x * (x == 7 ? 30 : 1)});
  }
  const Coefficients line = FitNonNegative(equations);
  EXPECT_NEAR(line[0], 5, 0.3);
  EXPECT_NEAR(line[1], 2, 0.1);
}

ThresholdRow Row(uint64_t bytes, double c_us, double cq_us, double pq_us, uint64_t samples = 9) {
  return {.bytes = bytes,
          .t_c = absl::Nanoseconds(std::llround(c_us * 1000)),
          .t_cq = absl::Nanoseconds(std::llround(cq_us * 1000)),
          .t_pq = absl::Nanoseconds(std::llround(pq_us * 1000)),
          .raw_samples = samples,
          .compressed_samples = samples};
}

// 200 us + 10 ns a byte, with compression for a thirty-second of the bytes. Coding takes 8 us + 0.5
// ns a byte.
ThresholdRow Exact(uint64_t bytes) {
  const auto size = static_cast<double>(bytes);
  return Row(bytes, 200 + size / 100, 200 + size / 3200, 8 + size / 2000);
}

TEST(LinkModel, FindsStartUpAndRates) {
  std::vector<ThresholdRow> rows;
  for (uint64_t bytes = 256; bytes <= 16 << 20; bytes *= 4) rows.push_back(Exact(bytes));
  const LinkModel model(rows);
  ASSERT_TRUE(model.known());
  EXPECT_NEAR(model.startup(), 200e3, 200);
  EXPECT_NEAR(model.raw_per_byte(), 10, 0.01);
  EXPECT_NEAR(model.compressed_per_byte(), 10 / 32.0, 0.001);
  EXPECT_NEAR(model.coding_startup(), 8e3, 10);
  EXPECT_NEAR(model.coding_per_byte(), 0.5, 0.001);
}

TEST(LinkModel, FillsInSizesBetweenAndBeyondTheMeasuredOnes) {
  const std::vector<ThresholdRow> rows = {Exact(1 << 12), Exact(1 << 16), Exact(1 << 20)};
  const LinkModel model(rows);
  for (const uint64_t bytes :
       {uint64_t{64}, uint64_t{1} << 14, uint64_t{1} << 18, uint64_t{1} << 24}) {
    const ThresholdRow expected = Exact(bytes);
    EXPECT_NEAR(model.At(bytes).t_c / absl::ToDoubleNanoseconds(expected.t_c), 1, 0.01) << bytes;
    EXPECT_NEAR(model.At(bytes).t_cq / absl::ToDoubleNanoseconds(expected.t_cq), 1, 0.01) << bytes;
    EXPECT_NEAR(model.At(bytes).t_pq / absl::ToDoubleNanoseconds(expected.t_pq), 1, 0.01) << bytes;
  }
}

TEST(LinkModel, LargeSizesKeepWhatWasMeasuredAndNeighboursLeanTowardsIt) {
  std::vector<ThresholdRow> rows;
  for (uint64_t bytes = 1 << 18; bytes <= 64 << 20; bytes *= 4) rows.push_back(Exact(bytes));
  rows[2].t_c *= 1.3;  // 4 MiB
  const LinkModel model(rows);
  EXPECT_NEAR(model.At(4 << 20).t_c, absl::ToDoubleNanoseconds(rows[2].t_c), 1000);
  const double eight = model.At(8 << 20).t_c / absl::ToDoubleNanoseconds(Exact(8 << 20).t_c);
  EXPECT_GT(eight, 1.05);
  EXPECT_LT(eight, 1.3);
}

TEST(LinkModel, NoiseOfStartUpTimesIsNotTakenForACostOfTheSize) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> jitter(0, 20);  // us
  std::vector<ThresholdRow> rows;
  for (uint64_t bytes = 64; bytes <= 16 << 20; bytes *= 2) {
    ThresholdRow row = Exact(bytes);
    row.t_c += absl::Microseconds(jitter(random));
    row.t_cq += absl::Microseconds(jitter(random));
    rows.push_back(row);
  }
  const LinkModel model(rows);
  // Compressing a tiny tensor loses its coding time. The model finds that far more exactly than the
  // jitter of one sample.
  EXPECT_NEAR(model.At(64).saving(), -8e3, 4e3);
  EXPECT_NEAR(model.At(512).saving(), -3.3e3, 4e3);
}

TEST(LinkModel, CompressedPushesThatAlwaysBeginLaterHaveAStartUpOfTheirOwn) {
  std::mt19937_64 random(4);
  std::normal_distribution<double> jitter(0, 5);  // us
  std::vector<ThresholdRow> rows;
  for (uint64_t bytes = 64; bytes <= 16 << 20; bytes *= 2) {
    ThresholdRow row = Exact(bytes);
    row.t_c += absl::Microseconds(jitter(random));
    row.t_cq += absl::Microseconds(60 + jitter(random));
    rows.push_back(row);
  }
  EXPECT_NEAR(LinkModel(rows).At(64).saving(), -68e3, 6e3);
}

TEST(LinkModel, OneSizeOrOneWayIsNotEnough) {
  EXPECT_FALSE(LinkModel({}).known());
  EXPECT_FALSE(LinkModel(std::vector{Exact(64)}).known());
  ThresholdRow raw = Exact(128);
  raw.compressed_samples = 0;
  EXPECT_FALSE(LinkModel(std::vector{Exact(64), raw}).known());
  EXPECT_TRUE(LinkModel(std::vector{Exact(64), raw, Exact(256)}).known());
}

TEST(LinkModel, TimesOfZeroAreTheClocksGrain) {
  const std::vector<ThresholdRow> rows = {Row(0, 0, 0, 0), Row(100, 0, 0, 0)};
  const LinkModel model(rows);
  ASSERT_TRUE(model.known());
  EXPECT_TRUE(std::isfinite(model.At(0).saving()));
  EXPECT_TRUE(std::isfinite(model.At(1 << 30).saving()));
}

}  // namespace
}  // namespace slimps
