#include "compress/policy/threshold_table.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "compress/policy/threshold_table_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

absl::Duration Ms(double ms) { return absl::Microseconds(std::llround(ms * 1000)); }

// The worked example of the paper's figure 6.
ThresholdTable WorkedExample() {
  ThresholdTable table("1bit:scaling=l1");
  table.AddRaw(1'000'000, Ms(28.5));
  table.AddCompressed(1'000'000, Ms(24.3), Ms(6.3));
  table.AddRaw(1'600'000, Ms(30.5));
  table.AddCompressed(1'600'000, Ms(25.3), Ms(6.5));
  table.AddRaw(2'200'000, Ms(40.2));
  table.AddCompressed(2'200'000, Ms(28.3), Ms(6.8));
  table.AddRaw(4'000'000, Ms(75.5));
  table.AddCompressed(4'000'000, Ms(37.3), Ms(8.5));
  return table;
}

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
  EXPECT_THAT(table.Explain(), HasSubstr("nothing was measured"));
  table.AddRaw(4096, Ms(1));
  table.AddCompressed(4096, Ms(1), Ms(0));  // exactly 1 is no gain
  EXPECT_EQ(table.BestCompressionThreshold(), std::nullopt);
  EXPECT_THAT(table.Explain(), HasSubstr("threshold: none, no size gains"));
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
  EXPECT_EQ(rows[1].t_c, Ms(1));  // nobody measured it both ways: the one way is kept
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

TEST(ThresholdTable, ExplainGivesAReasonOnEveryLine) {
  ThresholdTable table = WorkedExample();
  table.AddRaw(8'000'000, Ms(1));
  table.AddCompressed(8'000'000, Ms(3), Ms(1));
  table.AddRaw(500, Ms(9));
  table.AddCompressed(500, Ms(5), Ms(2));
  table.AddRaw(600, Ms(1));
  table.AddCompressed(600, Ms(3), Ms(2));
  const std::string text = table.Explain(2'200'000);
  EXPECT_THAT(text, HasSubstr("raw: compression costs 6.300 ms and saves 4.200 ms"));
  EXPECT_THAT(text, HasSubstr("compressed: first size that gains: compression costs 6.800 ms and "
                              "saves 11.900 ms"));
  EXPECT_THAT(text, HasSubstr("compressed: compression costs 8.500 ms and saves 38.200 ms"));
  EXPECT_THAT(text, HasSubstr("compressed: above the threshold, although compression costs 1.000 "
                              "ms and sending takes 2.000 ms longer"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "raw: below the threshold, although compression costs 2.000 ms and saves 4.000 ms"));
  EXPECT_THAT(text, HasSubstr("raw: compression costs 2.000 ms and sending takes 2.000 ms longer"));
  EXPECT_THAT(text, HasSubstr("threshold: 2200000 bytes (2.20 MB)"));
  EXPECT_THAT(text, HasSubstr("0.93"));
  EXPECT_THAT(table.Explain(std::nullopt),
              HasSubstr("raw: no threshold, although compression costs"));
}

TEST(ThresholdTable, ExplainMarksWhatWasFilledInAndGivesTheModel) {
  ThresholdTable table("1bit");
  for (const uint64_t bytes : {1'000'000, 2'000'000, 8'000'000}) {
    table.AddRaw(bytes, Ms(1 + static_cast<double>(bytes) / 1e6));  // 1 GB/s
    table.AddCompressed(bytes, Ms(1 + static_cast<double>(bytes) / 10e6), Ms(0.5));
  }
  table.AddSize(4'000'000);
  const std::string text = table.Explain();
  EXPECT_THAT(text, HasSubstr("~5.000"));
  EXPECT_THAT(text,
              HasSubstr("compressed: by the model compression costs 0.500 ms and saves 3.600 ms"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "model: raw 1.000 ms + bytes / 1000 MB/s; compressed 1.000 ms + bytes / 1e+04 MB/s; "
          "coding 0.500 ms + bytes / any rate"));
  ThresholdTable unknown("1bit");
  unknown.AddRaw(4, Ms(1));
  unknown.AddSize(8);
  EXPECT_THAT(unknown.Explain(), HasSubstr("raw: never measured compressed"));
  EXPECT_THAT(unknown.Explain(), HasSubstr("raw: never measured\n"));
}

TEST(ThresholdTable, TextReadsBackEqual) {
  ThresholdTable table = WorkedExample();
  table.AddRaw(1'000'000, absl::Nanoseconds(12345677));  // a mean that is no whole microsecond
  table.AddRaw(7, Ms(1));
  const absl::StatusOr<ThresholdTable> parsed = ThresholdTable::Parse(table.ToText());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->Rows(), table.Rows());
  EXPECT_EQ(parsed->codec(), "1bit:scaling=l1");
  EXPECT_EQ(parsed->ToText(), table.ToText());
}

std::string ParseError(const std::string& text) {
  const absl::StatusOr<ThresholdTable> parsed = ThresholdTable::Parse(text);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(parsed.status().message());
}

TEST(ThresholdTable, ParseNamesTheLineAndWhatItExpected) {
  const std::string head =
      "slimps threshold table 1\ncodec 1bit\n"
      "bytes t_c_ns t_cq_ns t_pq_ns raw_samples compressed_samples\n";
  EXPECT_TRUE(ThresholdTable::Parse("# a comment\n\n" + head + "4 1 2 3 1 1\nend\n").ok());
  EXPECT_THAT(ParseError(""), HasSubstr("line 1: expected 'end'"));
  EXPECT_THAT(ParseError("slimps threshold table 2\n"),
              HasSubstr("line 1: expected 'slimps threshold table 1', got"));
  EXPECT_THAT(ParseError("slimps threshold table 1\nkodec\n"), HasSubstr("'codec NAME'"));
  EXPECT_THAT(ParseError(head + "4 1 2 3 1 1\n"), HasSubstr("line 5: expected 'end'"));
  EXPECT_THAT(ParseError(head + "4 1 x 3 1 1\nend\n"),
              HasSubstr("line 4: expected an unsigned number in column 3"));
  EXPECT_THAT(ParseError(head + "4 1 -2 3 1 1\nend\n"), HasSubstr("column 3"));
  EXPECT_THAT(ParseError(head + "4 1 2 3 1\nend\n"), HasSubstr("6 numbers"));
  EXPECT_THAT(ParseError(head + "4 1 2 3 1 1 9\nend\n"), HasSubstr("the end after column 6"));
  EXPECT_THAT(ParseError(head + "4  1 2 3 1 1\nend\n"), HasSubstr("column 2"));
  EXPECT_THAT(ParseError(head + "4 1 2 3 1 1\n4 1 2 3 1 1\nend\n"),
              HasSubstr("line 5: expected a size over 4"));
  EXPECT_THAT(ParseError(head + "4 99999999999999 2 3 1 1\nend\n"), HasSubstr("at most"));
  EXPECT_THAT(ParseError(head + "4 99999999999999999999999 2 3 1 1\nend\n"), HasSubstr("column 2"));
  EXPECT_THAT(ParseError(head + "4 1 2 3 99999999 1\nend\n"), HasSubstr("samples"));
  EXPECT_THAT(ParseError(head + "end\nmore\n"), HasSubstr("nothing after 'end'"));
}

TEST(ThresholdTable, FromRowsRefusesWhatNoProfileCanHold) {
  const ThresholdRow good = {.bytes = 4, .t_c = Ms(1), .raw_samples = 1};
  ThresholdRow negative = good, infinite = good, many = good;
  negative.t_cq = Ms(-1);
  infinite.t_pq = absl::InfiniteDuration();
  many.raw_samples = ThresholdTable::kMaxSamples + 1;
  EXPECT_TRUE(ThresholdTable::FromRows("1bit", std::vector{good}).ok());
  EXPECT_FALSE(ThresholdTable::FromRows("1bit", std::vector{good, good}).ok());
  EXPECT_FALSE(ThresholdTable::FromRows("1bit", std::vector{negative}).ok());
  EXPECT_FALSE(ThresholdTable::FromRows("1bit", std::vector{infinite}).ok());
  EXPECT_FALSE(ThresholdTable::FromRows("1bit", std::vector{many}).ok());
}

std::string TemporaryFile() { return ::testing::TempDir() + "/threshold_table_test.txt"; }

TEST(ThresholdTable, FileHoldsTheTableAndItsExplanation) {
  const std::string path = TemporaryFile();
  ASSERT_TRUE(SaveThresholdTables({.push = WorkedExample(), .pull = {}}, path).ok());
  const absl::StatusOr<ThresholdTables> loaded = LoadThresholdTables(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_TRUE(loaded->push.has_value());
  EXPECT_EQ(loaded->push->Rows(), WorkedExample().Rows());
  EXPECT_FALSE(loaded->pull.has_value());
  std::ifstream file(path);
  std::string first;
  std::getline(file, first);
  EXPECT_THAT(first, HasSubstr("# "));
  std::remove(path.c_str());
  EXPECT_EQ(LoadThresholdTables(path).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SaveThresholdTables({}, "/nonexistent/folder/table").code(),
            absl::StatusCode::kUnavailable);
  std::ofstream(path) << "garbage\n";
  EXPECT_THAT(std::string(LoadThresholdTables(path).status().message()), HasSubstr(path));
  std::remove(path.c_str());
}

TEST(ThresholdTable, FileOfAnOlderVersionHoldsPushesAlone) {
  const std::string path = TemporaryFile();
  std::ofstream(path) << "# as it was saved before pulls were measured\n"
                      << WorkedExample().ToText();
  const absl::StatusOr<ThresholdTables> loaded = LoadThresholdTables(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->push->Rows(), WorkedExample().Rows());
  EXPECT_FALSE(loaded->pull.has_value());
  std::remove(path.c_str());
}

TEST(ThresholdTable, FileHoldsBothDirectionsAndNamesTheLineThatIsWrong) {
  const std::string path = TemporaryFile();
  ThresholdTable pull("fp16");
  pull.AddRaw(4096, Ms(3));
  pull.AddCompressed(4096, Ms(2), Ms(0.5));
  for (const bool pushes : {true, false}) {
    ThresholdTables tables{.push = {}, .pull = pull};
    if (pushes) tables.push = WorkedExample();
    ASSERT_TRUE(SaveThresholdTables(tables, path).ok());
    const absl::StatusOr<ThresholdTables> loaded = LoadThresholdTables(path);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->push.has_value(), pushes);
    ASSERT_TRUE(loaded->pull.has_value());
    EXPECT_EQ(loaded->pull->Rows(), pull.Rows());
    EXPECT_EQ(loaded->pull->codec(), "fp16");
  }
  const std::string push = WorkedExample().ToText();  // 8 lines
  std::ofstream(path) << push << "pull\nslimps threshold table 1\ncodec\n";
  EXPECT_THAT(std::string(LoadThresholdTables(path).status().message()),
              HasSubstr("line 11: expected 'codec NAME'"));
  std::ofstream(path) << push << "pull\n";
  EXPECT_THAT(std::string(LoadThresholdTables(path).status().message()),
              HasSubstr("line 10: expected 'end'"));
  std::remove(path.c_str());
}

// ---- a transport simulated as start-up time plus size over bandwidth
// -------------------------------------------------

struct Link {
  double startup_ms;
  double bytes_per_ms;
  double codec_fixed_ms;      // encode + decode: a fixed part
  double codec_bytes_per_ms;  // and a part by size
};

constexpr double kRatio = 31;  // of 1bit

// t_c > t_cq + t_pq solved for the size: the start-up times cancel.
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
    // Sizes are powers of two; the right class is the first at or above the exact size.
    const double right_class = std::ceil(std::log2(exact));
    EXPECT_LE(std::abs(std::log2(static_cast<double>(*threshold)) - right_class), 1.0)
        << "exact " << exact << ", chosen " << *threshold;
  }
}

}  // namespace
}  // namespace slimps
