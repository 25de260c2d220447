// The threshold table in words, as text and in files.
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "compress/policy/threshold_table_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/threshold_example.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace slimps
