// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/threshold_choice.h"

#include <cmath>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

using ::testing::Optional;

ThresholdRow Row(uint64_t bytes, double c_us, double q_us, uint64_t samples = 9) {
  return {.bytes = bytes,
          .t_c = absl::Nanoseconds(std::llround(c_us * 1000)),
          .t_cq = absl::Nanoseconds(std::llround(q_us * 1000)),
          .t_pq = absl::Microseconds(1),
          .raw_samples = samples,
          .compressed_samples = samples};
}

constexpr uint64_t kMb = 1'000'000;

TEST(BestThreshold, IsTheSizeFromWhichOnTheGainStaysOverOne) {
  const std::vector<ThresholdRow> rows = {Row(kMb, 1000, 1200), Row(2 * kMb, 2000, 2100),
                                          Row(4 * kMb, 4000, 3900), Row(8 * kMb, 8000, 7500)};
  EXPECT_THAT(BestThreshold(rows), Optional(4 * kMb));
}

TEST(BestThreshold, OneSizeThatScattersNeitherBeginsNorEndsIt) {
  std::vector<ThresholdRow> rows = {Row(kMb, 1000, 900),          Row(2 * kMb, 2000, 2600),
                                    Row(4 * kMb, 4000, 4500),     Row(8 * kMb, 8000, 5000),
                                    Row(16 * kMb, 16000, 16'100), Row(32 * kMb, 32'000, 20'000)};
  EXPECT_THAT(BestThreshold(rows), Optional(8 * kMb));  // 1 MB gains, but the next sizes lose more
  rows[5] = Row(32 * kMb, 32'000, 40'000);
  EXPECT_EQ(BestThreshold(rows), std::nullopt);  // the largest size loses more than all gain
}

TEST(BestThreshold, SizesMeasuredOneWayOrNotAtAllAreFilledIn) {
  std::vector<ThresholdRow> rows;
  for (uint64_t bytes = 1024; bytes <= 16 << 20; bytes *= 2) {
    const auto size = static_cast<double>(bytes);
    rows.push_back(Row(bytes, 100 + size / 100, 100 + size / 3200));
    rows.back().t_pq = absl::Microseconds(50);  // break-even at 5 kB
  }
  ASSERT_THAT(BestThreshold(rows), Optional(8192u));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i % 4 != 0) rows[i].raw_samples = rows[i].compressed_samples = 0;
    if (i % 4 == 1) rows[i].raw_samples = 9;
  }
  ASSERT_FALSE(rows[3].complete());  // 8192
  EXPECT_THAT(BestThreshold(rows), Optional(8192u));
  const std::vector<ThresholdRow> decided = DecidedRows(rows);
  EXPECT_TRUE(decided[3].complete());
  EXPECT_NEAR(absl::ToDoubleMicroseconds(decided[3].t_c), 100 + 81.92, 3);
  EXPECT_NEAR(absl::ToDoubleMicroseconds(decided[4].t_c), absl::ToDoubleMicroseconds(rows[4].t_c),
              3);
}

TEST(BestThreshold, ASizeCountsForAsManyTensorsAsAStepHas) {
  std::vector<ThresholdRow> rows = {Row(kMb, 1000, 1300), Row(2 * kMb, 2000, 1600)};
  EXPECT_THAT(BestThreshold(rows), Optional(2 * kMb));
  rows[1].tensors = 2;
  EXPECT_EQ(EstimateStep(rows, 2 * kMb).tensors, 3u);
  EXPECT_EQ(EstimateStep(rows, std::nullopt).saved, absl::ZeroDuration());
  const auto us = [](absl::Duration time) { return absl::ToDoubleMicroseconds(time); };
  EXPECT_NEAR(us(EstimateStep(rows, 2 * kMb).raw), 5000, 10);
  EXPECT_NEAR(us(EstimateStep(rows, 2 * kMb).saved), 800, 10);
  EXPECT_NEAR(us(EstimateStep(rows, kMb).saved), 500, 10);
  rows = {Row(kMb, 1300, 1000), Row(2 * kMb, 2000, 2100), Row(4 * kMb, 4000, 3950)};
  EXPECT_THAT(BestThreshold(rows), Optional(kMb));
  rows[1].tensors = 10;  // together they lose more than the smallest gains
  EXPECT_THAT(BestThreshold(rows), Optional(4 * kMb));
}

TEST(BestThreshold, FollowsTheBandwidthMonotonously) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> noise(1, 0.03);
  uint64_t last = 0;
  for (const double bytes_per_us : {1.25, 12.5, 125.0, 1250.0}) {  // 10 Mbit/s to 10 Gbit/s
    std::vector<ThresholdRow> rows;
    for (uint64_t bytes = 64; bytes <= 64 << 20; bytes *= 2) {
      const auto size = static_cast<double>(bytes);
      rows.push_back(Row(bytes, noise(random) * (100 + size / bytes_per_us),
                         noise(random) * (100 + size / 31 / bytes_per_us)));
      rows.back().t_pq = absl::Microseconds(noise(random) * (10 + size / 4000));
    }
    const double exact = 10 / (30.0 / 31 / bytes_per_us - 1 / 4000.0);
    const auto best = BestThreshold(rows);
    ASSERT_TRUE(best.has_value()) << bytes_per_us;
    EXPECT_LE(std::abs(std::log2(static_cast<double>(std::max<uint64_t>(*best, 64)) /
                                 std::max(exact, 64.0))),
              1.5)
        << "exact " << exact << ", chosen " << *best;
    EXPECT_GE(*best, last);
    last = *best;
  }
}

// Returns the threshold after two tables with these rows in a row.
std::optional<uint64_t> Moved(std::span<const ThresholdRow> rows,
                              std::optional<uint64_t> in_force) {
  FollowedThreshold followed(in_force);
  (void)followed.Move(rows);
  return followed.Move(rows);
}

TEST(FollowedThreshold, StaysWhereOneClassWouldBringLessThanFivePercent) {
  const auto rows = [](double q_at_two) {
    return std::vector<ThresholdRow>{Row(kMb, 1000, 1500), Row(2 * kMb, 2000, q_at_two),
                                     Row(4 * kMb, 4000, 2000), Row(8 * kMb, 8000, 4000)};
  };
  EXPECT_THAT(BestThreshold(rows(1940)), Optional(2 * kMb));
  EXPECT_THAT(Moved(rows(1940), 4 * kMb), Optional(4 * kMb));  // it would bring 3 %
  EXPECT_THAT(Moved(rows(1850), 4 * kMb), Optional(2 * kMb));  // it would bring 8 %
  EXPECT_THAT(Moved(rows(2060), 2 * kMb), Optional(2 * kMb));
  EXPECT_THAT(Moved(rows(2150), 2 * kMb), Optional(4 * kMb));
}

TEST(FollowedThreshold, GoesSeveralClassesForLess) {
  std::vector<ThresholdRow> rows = {Row(kMb, 1000, 970), Row(2 * kMb, 2000, 1940),
                                    Row(4 * kMb, 4000, 3880), Row(8 * kMb, 8000, 4000)};
  EXPECT_THAT(Moved(rows, 8 * kMb), Optional(kMb));
  for (ThresholdRow& row : rows) row.t_c = row.t_q() * 1.005;
  EXPECT_THAT(Moved(rows, 8 * kMb), Optional(8 * kMb));
}

TEST(FollowedThreshold, StaysWhereNothingWasMeasuredOrNoSizeLiesBetween) {
  EXPECT_THAT(Moved({}, 4096), Optional(4096u));
  EXPECT_EQ(Moved({}, std::nullopt), std::nullopt);
  const std::vector<ThresholdRow> rows = {Row(kMb, 1000, 500), Row(8 * kMb, 8000, 4000)};
  EXPECT_THAT(Moved(rows, 1000), Optional(1000u));  // as good as kMb
}

TEST(FollowedThreshold, StaysWhereFewSizesWereMeasuredRawOrCompressed) {
  // One small size alone would say that nothing gains. Two sizes measured one way would say that
  // everything does.
  std::vector<ThresholdRow> rows = {Row(128, 26, 34), Row(256, 30, 10), Row(kMb, 0, 8)};
  rows[1].raw_samples = rows[2].raw_samples = 0;
  EXPECT_THAT(Moved(rows, 256), Optional(256u));
  rows[1].raw_samples = 9;
  EXPECT_THAT(Moved(rows, 256), Optional(256u));
  rows[2].t_c = absl::Microseconds(100'000);
  rows[2].raw_samples = 1;
  EXPECT_NE(Moved(rows, kMb), std::optional(kMb));
  rows[1].compressed_samples = rows[2].compressed_samples = 0;
  EXPECT_THAT(Moved(rows, kMb), Optional(kMb));
}

// Returns sizes of 1, 2, ..., 32 MB. Sizes from `gains_from` on gain.
std::vector<ThresholdRow> GainsFrom(uint64_t gains_from) {
  std::vector<ThresholdRow> rows;
  for (uint64_t bytes = kMb; bytes <= 32 * kMb; bytes *= 2) {
    const int64_t t_c = static_cast<int64_t>(bytes / 1000);
    rows.push_back(Row(bytes, t_c, bytes >= gains_from ? t_c * 4 / 5 : t_c * 6 / 5));
  }
  return rows;
}

TEST(FollowedThreshold, MovesOneClassAtOnce) {
  FollowedThreshold followed(8 * kMb);
  EXPECT_THAT(followed.Move(GainsFrom(4 * kMb)), Optional(4 * kMb));
  EXPECT_THAT(followed.Move(GainsFrom(8 * kMb)), Optional(8 * kMb));
}

TEST(FollowedThreshold, MovesFurtherWhenTwoTablesInARowAskForIt) {
  FollowedThreshold followed(16 * kMb);
  EXPECT_THAT(followed.Move(GainsFrom(kMb)), Optional(16 * kMb));
  EXPECT_THAT(followed.Move(GainsFrom(2 * kMb)), Optional(2 * kMb));  // the newer one
  FollowedThreshold up(2 * kMb);
  EXPECT_THAT(up.Move(GainsFrom(8 * kMb)), Optional(2 * kMb));
  EXPECT_THAT(up.Move(GainsFrom(16 * kMb)), Optional(16 * kMb));
}

TEST(FollowedThreshold, GoesToNoneAndBackWhenTwoTablesSaySo) {
  for (const uint64_t threshold :
       {2 * kMb, 32 * kMb}) {  // "none" lies one class above the largest size
    FollowedThreshold followed(threshold);
    EXPECT_THAT(followed.Move(GainsFrom(100 * kMb)), Optional(threshold));
    EXPECT_EQ(followed.Move(GainsFrom(100 * kMb)), std::nullopt);
    EXPECT_EQ(followed.Move(GainsFrom(threshold)), std::nullopt);
    EXPECT_THAT(followed.Move(GainsFrom(threshold)), Optional(threshold));
  }
}

TEST(FollowedThreshold, OneTableOfHalfAnotherLinkMovesNothing) {
  FollowedThreshold followed(8 * kMb);
  EXPECT_THAT(followed.Move(GainsFrom(100 * kMb)), Optional(8 * kMb));
  EXPECT_THAT(followed.Move(GainsFrom(8 * kMb)), Optional(8 * kMb));
  EXPECT_THAT(followed.Move(GainsFrom(100 * kMb)), Optional(8 * kMb));  // the first is forgotten
  // A move in one direction, then one in the other: each waits for the next table.
  EXPECT_THAT(followed.Move(GainsFrom(kMb)), Optional(8 * kMb));
  EXPECT_THAT(followed.Move(GainsFrom(kMb)), Optional(kMb));
}

TEST(FollowedThreshold, NoneIsFarWhereThereIsOneSizeToo) {
  const std::vector<ThresholdRow> one_size = {Row(kMb, 1000, 1200)};
  FollowedThreshold of_one(kMb);
  EXPECT_THAT(of_one.Move(one_size), Optional(kMb));
  EXPECT_EQ(of_one.Move(one_size), std::nullopt);
}

TEST(FollowedThreshold, GoesToNoneOnlyWhereBothAskForNone) {
  FollowedThreshold followed(2 * kMb);
  EXPECT_THAT(followed.Move(GainsFrom(8 * kMb)), Optional(2 * kMb));
  EXPECT_THAT(followed.Move(GainsFrom(100 * kMb)), Optional(8 * kMb));
}

TEST(FollowedThreshold, ATableOfFewSizesInBetweenForgetsNothing) {
  FollowedThreshold followed(16 * kMb);
  EXPECT_THAT(followed.Move(GainsFrom(2 * kMb)), Optional(16 * kMb));
  std::vector<ThresholdRow> few = GainsFrom(2 * kMb);
  for (size_t i = 1; i < few.size(); ++i) few[i].raw_samples = 0;
  EXPECT_THAT(followed.Move(few), Optional(16 * kMb));
  EXPECT_THAT(followed.Move(GainsFrom(2 * kMb)), Optional(2 * kMb));
}

}  // namespace
}  // namespace slimps
