// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/threshold_table.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "compress/policy/threshold_explanation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/policy/threshold_example.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

TEST(ProfilingStep, EvenRoundsAreCompressedAndOddRawUntilPreSteps) {
  EXPECT_EQ(ProfilingStep(1, 20), StepKind::kRaw);
  EXPECT_EQ(ProfilingStep(2, 20), StepKind::kCompressed);
  EXPECT_EQ(ProfilingStep(19, 20), StepKind::kRaw);
  EXPECT_EQ(ProfilingStep(20, 20), StepKind::kCompressed);
  EXPECT_EQ(ProfilingStep(21, 20), StepKind::kDecided);
  EXPECT_EQ(ProfilingStep(1, 0), StepKind::kDecided);
}

TEST(ProfilingStep, FirstTwoRoundsDoNotCount) {
  EXPECT_FALSE(ProfilingCounts(1));
  EXPECT_FALSE(ProfilingCounts(2));
  EXPECT_TRUE(ProfilingCounts(3));
}

TEST(ThresholdTable, WorkedExampleChoosesTwoPointTwoMegabytes) {
  const ThresholdTable table = WorkedExample();
  EXPECT_EQ(table.BestCompressionThreshold(), 2'200'000u);
  const std::vector<ThresholdRow> rows = table.Rows();
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].t_q(), Ms(30.6));
  EXPECT_NEAR(rows[0].gain(), 0.93, 0.005);
  EXPECT_NEAR(rows[1].gain(), 0.96, 0.005);
  EXPECT_NEAR(rows[2].gain(), 1.15, 0.005);
  EXPECT_NEAR(rows[3].gain(), 1.65, 0.005);
}

TEST(ThresholdTable, MeansAreOverTheSamplesOfEachSize) {
  ThresholdTable table;
  table.AddRaw(8, Ms(1));
  table.AddRaw(8, Ms(2));
  table.AddCompressed(8, Ms(4), Ms(1));
  table.AddCompressed(8, Ms(6), Ms(2));
  table.AddRaw(16, Ms(100));
  const std::vector<ThresholdRow> rows = table.Rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].t_c, Ms(1.5));
  EXPECT_EQ(rows[0].t_cq, Ms(5));
  EXPECT_EQ(rows[0].t_pq, Ms(1.5));
  EXPECT_EQ(rows[0].raw_samples, 2u);
  EXPECT_FALSE(rows[1].complete());
}

TEST(ThresholdTable, ATenthOfTheSamplesTwentyTimesTooLongMovesNothing) {
  std::mt19937_64 random(11);
  ThresholdTable clean, noisy;
  for (int i = 0; i < 100; ++i) {
    for (uint64_t bytes = 1 << 10; bytes <= 1 << 24; bytes *= 2) {
      const double raw = 0.1 + static_cast<double>(bytes) / 12.5e3;
      const double jitter = 1 + 0.05 * static_cast<double>(random() % 100) / 100;
      const double bad = random() % 10 == 0 ? 20 : 1;
      clean.AddRaw(bytes, Ms(raw * jitter));
      noisy.AddRaw(bytes, Ms(raw * jitter * bad));
      const double t_cq = 0.1 + static_cast<double>(bytes) / 31 / 12.5e3;
      clean.AddCompressed(bytes, Ms(t_cq * jitter), Ms(0.4));
      noisy.AddCompressed(bytes, Ms(t_cq * jitter * (random() % 10 == 0 ? 20 : 1)),
                          Ms(random() % 10 == 0 ? 8 : 0.4));
    }
  }
  EXPECT_EQ(noisy.BestCompressionThreshold(), clean.BestCompressionThreshold());
  const std::vector<ThresholdRow> expected = clean.Rows(), got = noisy.Rows();
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_LT(absl::FDivDuration(got[i].t_c, expected[i].t_c), 1.02);
    EXPECT_LT(absl::FDivDuration(got[i].t_cq, expected[i].t_cq), 1.02);
    EXPECT_EQ(got[i].t_pq, expected[i].t_pq);
  }
}

TEST(ThresholdTable, TheNewestSamplesCount) {
  ThresholdTable table("1bit", /*kept_samples=*/3);
  for (int i = 0; i < 10; ++i) table.AddRaw(8, Ms(10));
  table.AddRaw(8, Ms(1));
  EXPECT_EQ(table.Rows()[0].t_c, Ms(10));
  table.AddRaw(8, Ms(1));
  EXPECT_EQ(table.Rows()[0].t_c, Ms(1));
  EXPECT_EQ(table.Rows()[0].raw_samples, 12u);
}

TEST(ThresholdTable, NothingGainsMeansNoThreshold) {
  ThresholdTable table;
  EXPECT_EQ(table.BestCompressionThreshold(), std::nullopt);
  EXPECT_THAT(ExplainTable(table), HasSubstr("nothing was measured"));
  table.AddRaw(4096, Ms(1));
  table.AddCompressed(4096, Ms(1), Ms(0));  // exactly 1 is no gain
  EXPECT_EQ(table.BestCompressionThreshold(), std::nullopt);
  EXPECT_THAT(ExplainTable(table), HasSubstr("threshold: none, compressing saves nothing"));
}

TEST(ThresholdTable, SizesMeasuredOnlyOneWayNeverDecide) {
  ThresholdTable table;
  table.AddRaw(100, Ms(1000));
  table.AddCompressed(200, Ms(0), Ms(0));
  EXPECT_EQ(table.BestCompressionThreshold(), std::nullopt);
}

TEST(ThresholdTable, FreeCompressionGains) {
  ThresholdTable table;
  table.AddRaw(100, Ms(1));
  table.AddCompressed(100, Ms(0), Ms(0));
  EXPECT_TRUE(std::isinf(table.Rows()[0].gain()));
  EXPECT_EQ(table.BestCompressionThreshold(), 100u);
}

TEST(ThresholdTable, NegativeTimesOfABadClockCountAsZero) {
  ThresholdTable table;
  table.AddRaw(100, Ms(-5));
  EXPECT_EQ(table.Rows()[0].t_c, absl::ZeroDuration());
}

TEST(ThresholdTable, AverageIsTheMeanOfWorkersMeans) {
  ThresholdTable one("1bit"), two("1bit");
  one.AddRaw(64, Ms(1));
  one.AddRaw(64, Ms(1));
  one.AddRaw(64, Ms(1));
  one.AddCompressed(64, Ms(2), Ms(4));
  two.AddRaw(64, Ms(3));
  two.AddCompressed(64, Ms(4), Ms(2));
  const ThresholdTable tables[] = {one, two};
  const ThresholdTable mean = ThresholdTable::Average(tables);
  const std::vector<ThresholdRow> rows = mean.Rows();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].t_c, Ms(2));  // not 1.5, the mean over all samples
  EXPECT_EQ(rows[0].t_cq, Ms(3));
  EXPECT_EQ(rows[0].t_pq, Ms(3));
  EXPECT_EQ(rows[0].raw_samples, 4u);
  EXPECT_EQ(rows[0].compressed_samples, 2u);
  EXPECT_EQ(mean.codec(), "1bit");
}

TEST(ThresholdTable, AverageTakesThoseWorkersThatMeasuredASizeBothWays) {
  ThresholdTable one, two;
  one.AddRaw(64, Ms(10));
  one.AddCompressed(64, Ms(1), Ms(1));
  two.AddRaw(64, Ms(1000));
  two.AddRaw(128, Ms(1));
  two.AddSize(256);
  const ThresholdTable tables[] = {one, two};
  const std::vector<ThresholdRow> rows = ThresholdTable::Average(tables).Rows();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].t_c, Ms(10));
  EXPECT_EQ(rows[0].raw_samples, 1u);
  EXPECT_EQ(rows[1].t_c, Ms(1));  // no worker measured it both ways: the one way is kept
  EXPECT_FALSE(rows[1].complete());
  EXPECT_EQ(rows[2].raw_samples + rows[2].compressed_samples, 0u);
}

TEST(ThresholdTable, OneOfThreeWorkersWithABadLinkDoesNotMoveTheAverage) {
  std::vector<ThresholdTable> workers(3);
  for (size_t i = 0; i < 3; ++i) {
    workers[i].AddRaw(64, Ms(i == 2 ? 500 : 10));
    workers[i].AddCompressed(64, Ms(i == 1 ? 400 : 2), Ms(1));
  }
  const std::vector<ThresholdRow> rows = ThresholdTable::Average(workers).Rows();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].t_c, Ms(10));
  EXPECT_EQ(rows[0].t_cq, Ms(2));
}

struct Link {
  double startup_ms;
  double bytes_per_ms;
  double codec_fixed_ms;      // encode + decode: a fixed part
  double codec_bytes_per_ms;  // and a part by size
};

constexpr double kRatio = 31;  // of 1bit

// The threshold is t_c > t_cq + t_pq solved for the size. The start-up times cancel.
double ClosedFormThreshold(const Link& link) {
  const double saved_per_byte = (1 - 1 / kRatio) / link.bytes_per_ms - 1 / link.codec_bytes_per_ms;
  return saved_per_byte <= 0 ? INFINITY : link.codec_fixed_ms / saved_per_byte;
}

TEST(ThresholdTable, OnASimulatedLinkThresholdIsWithinOneSizeClassOfTheClosedForm) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise(1.0, 0.05);
  const Link links[] = {
      {0.2, 12.5e3, 0.05, 1e6},                              // 100 Mbit/s
      {0.05, 125e3, 0.1, 1e6},                               // 1 Gbit/s
      {0.02, 1.25e6, 0.02, 2e6},                             // 10 Gbit/s
      {0.02, 1.25e6, 0.2, 4e6},  {0.02, 12.5e6, 0.02, 2e6},  // 100 Gbit/s: compression never pays
  };
  for (const Link& link : links) {
    std::vector<ThresholdTable> workers(4);
    for (ThresholdTable& table : workers) {
      for (uint64_t round = 1; round <= 20; ++round) {
        for (uint64_t bytes = 64; bytes <= (64 << 20); bytes *= 2) {
          const auto size = static_cast<double>(bytes);
          const double cold = ProfilingCounts(round) ? 0 : 50;
          if (ProfilingStep(round, 20) == StepKind::kRaw && ProfilingCounts(round)) {
            table.AddRaw(bytes,
                         Ms(cold + noise(random) * (link.startup_ms + size / link.bytes_per_ms)));
          } else if (ProfilingStep(round, 20) == StepKind::kCompressed && ProfilingCounts(round)) {
            const double t_cq = link.startup_ms + size / kRatio / link.bytes_per_ms;
            const double t_pq = link.codec_fixed_ms + size / link.codec_bytes_per_ms;
            table.AddCompressed(bytes, Ms(cold + noise(random) * t_cq), Ms(noise(random) * t_pq));
          }
        }
      }
    }
    const std::optional<uint64_t> threshold =
        ThresholdTable::Average(workers).BestCompressionThreshold();
    const double exact = ClosedFormThreshold(link);
    if (std::isinf(exact)) {
      EXPECT_EQ(threshold, std::nullopt);
      continue;
    }
    ASSERT_TRUE(threshold.has_value());
    // Sizes are powers of two. The right class is the first one at or above the exact size.
    const double right_class = std::ceil(std::log2(exact));
    EXPECT_LE(std::abs(std::log2(static_cast<double>(*threshold)) - right_class), 1.0)
        << "exact " << exact << ", chosen " << *threshold;
  }
}

}  // namespace
}  // namespace slimps
