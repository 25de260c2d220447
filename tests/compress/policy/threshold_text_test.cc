// SPDX-License-Identifier: Apache-2.0
// The threshold table as a printed table, as text and in files.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "compress/policy/threshold_explanation.h"
#include "compress/policy/threshold_table_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/policy/threshold_example.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

TEST(ThresholdTable, ExplainSaysOfEveryLineWhatIsDone) {
  const ThresholdTable table = WorkedExample();
  const std::string text = ExplainTable(table, 2'200'000);
  EXPECT_THAT(text, HasSubstr("  raw\n"));
  EXPECT_THAT(text, HasSubstr("  compressed, from here up\n"));
  EXPECT_THAT(text, HasSubstr("  compressed\n"));
  EXPECT_THAT(text, HasSubstr("threshold: 2200000 bytes (2.20 MB)"));
  EXPECT_THAT(text, HasSubstr("0.93"));
  EXPECT_EQ(text.find("this size alone"), std::string::npos);
  EXPECT_EQ(text.find("in force"), std::string::npos);
  const std::string higher = ExplainTable(table, 4'000'000);
  EXPECT_THAT(higher, HasSubstr("  raw, though this size alone gains\n"));
  EXPECT_THAT(higher, HasSubstr("in force though the rule says 2200000 bytes"));
  EXPECT_THAT(ExplainTable(table, 1'000'000),
              HasSubstr("  compressed, though this size alone loses\n"));
  EXPECT_THAT(ExplainTable(table, std::nullopt),
              HasSubstr("in force though the rule says 2200000"));
}

// A line of the printed table, as a person reads it.
struct PrintedRow {
  uint64_t bytes = 0;
  double tensors = 0, t_c = 0, t_q = 0;
  std::string decision;
};

std::vector<PrintedRow> Printed(const std::string& text) {
  std::vector<PrintedRow> rows;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);  // the columns' names
  while (std::getline(lines, line) && !line.starts_with("times:")) {
    std::erase(line, '~');
    std::istringstream cells(line);
    PrintedRow row;
    std::string size, unit, t_cq, t_pq, gain, saves, above;
    cells >> row.bytes >> size >> unit >> row.tensors >> row.t_c >> t_cq >> t_pq >> row.t_q >>
        gain >> saves >> above;
    std::getline(cells, row.decision);
    rows.push_back(row);
  }
  return rows;
}

// Returns the table of a small network whose small tensors scatter: some gain and some lose by
// chance.
ThresholdTable ScatteringTable() {
  ThresholdTable table("1bit");
  const struct {
    uint64_t bytes;
    double t_c, t_cq, t_pq;
    uint64_t tensors;
  } sizes[] = {{40, 0.240, 0.195, 0.005, 2},      {2048, 0.200, 0.205, 0.010, 4},
               {20'480, 0.420, 0.170, 0.020, 1},  {65'536, 0.400, 0.330, 0.090, 3},
               {524'288, 1.200, 0.500, 0.600, 2}, {4'194'304, 8.000, 0.900, 3.000, 1}};
  for (const auto& size : sizes) {
    table.AddRaw(size.bytes, Ms(size.t_c));
    table.AddCompressed(size.bytes, Ms(size.t_cq), Ms(size.t_pq));
    table.AddSize(size.bytes, size.tensors);
  }
  return table;
}

TEST(ThresholdTable, ThePrintedRowsGiveTheThresholdByThePrintedRule) {
  const ThresholdTable table = ScatteringTable();
  const std::optional<uint64_t> threshold = table.BestCompressionThreshold();
  ASSERT_TRUE(threshold.has_value());
  const std::string text = ExplainTable(table);
  const std::vector<PrintedRow> rows = Printed(text);
  ASSERT_EQ(rows.size(), 6u) << text;
  double sum = 0, most = 0, raw = 0;
  uint64_t by_rule = 0;
  for (size_t i = rows.size(); i-- > 0;) {
    raw += rows[i].tensors * rows[i].t_c;
    sum += rows[i].tensors * (rows[i].t_c - rows[i].t_q);
    if (sum <= most) continue;
    most = sum;
    by_rule = rows[i].bytes;
  }
  EXPECT_EQ(by_rule, *threshold) << text;
  for (const PrintedRow& row : rows) {
    EXPECT_EQ(row.decision == "  compressed, from here up", row.bytes == *threshold) << text;
    const bool gains = row.t_c > row.t_q, compressed = row.bytes >= *threshold;
    EXPECT_EQ(row.decision.find("alone") != std::string::npos, gains != compressed) << text;
  }
  double saved = 0, of = 0;
  const size_t line = text.find("estimated to save: ");
  ASSERT_NE(line, std::string::npos) << text;
  ASSERT_EQ(std::sscanf(text.c_str() + line,
                        "estimated to save: %lf ms of the %lf ms that a step's 13", &saved, &of),
            2);
  EXPECT_NEAR(saved, most, 0.01);
  EXPECT_NEAR(of, raw, 0.01);
}

TEST(ThresholdTable, WhereNearlyEverythingGoesRawTheLineSaysHowToCompressIt) {
  ThresholdTable table("1bit");
  for (const uint64_t bytes : {1'000, 9'000, 200'000}) {
    table.AddRaw(bytes, Ms(1));
    table.AddCompressed(bytes, Ms(bytes < 200'000 ? 2 : 0.1), Ms(0));
  }
  table.AddSize(9'000, 11);
  const DecisionLine most = SummarizeDecision(table, 200'000, "threshold");
  EXPECT_FALSE(most.is_nearly_raw);
  EXPECT_EQ(most.text,
            "threshold: 1bit compresses 67% of a step's bytes (tensors from 200000 bytes on)");
  table.AddSize(9'000, 1000);
  const DecisionLine little = SummarizeDecision(table, 200'000, "threshold");
  EXPECT_TRUE(little.is_nearly_raw);
  EXPECT_THAT(little.text, HasSubstr("compresses 2% of a step's bytes"));
  EXPECT_THAT(little.text, HasSubstr("; a run that tries the codec's accuracy tests hardly "
                                     "anything: threshold=0 compresses every tensor"));
  const DecisionLine none = SummarizeDecision(table, std::nullopt, "pull_threshold");
  EXPECT_TRUE(none.is_nearly_raw);
  EXPECT_THAT(none.text, HasSubstr("pull_threshold: 1bit compresses 0% of a step's bytes, because "
                                   "sending the others raw takes less time here"));
  EXPECT_THAT(none.text, HasSubstr("pull_threshold=0"));
  ThresholdTable unknown("1bit");
  unknown.AddRaw(4, Ms(1));
  EXPECT_THAT(SummarizeDecision(unknown, std::nullopt, "threshold").text,
              HasSubstr("too little was measured to decide"));
  EXPECT_THAT(ExplainTable(unknown), HasSubstr("too little was measured to decide"));
}

TEST(ThresholdTable, ExplainMarksWhatWasFilledIn) {
  ThresholdTable table("1bit");
  for (const uint64_t bytes : {1'000'000, 2'000'000, 8'000'000}) {
    table.AddRaw(bytes, Ms(1 + static_cast<double>(bytes) / 1e6));  // 1 GB/s
    table.AddCompressed(bytes, Ms(1 + static_cast<double>(bytes) / 10e6), Ms(0.5));
  }
  table.AddSize(4'000'000);
  const std::string text = ExplainTable(table);
  EXPECT_THAT(text, HasSubstr("~5.000"));
  EXPECT_THAT(
      text, HasSubstr("raw 1.000 ms + bytes / 1000 MB/s; compressed 1.000 ms + bytes / 1e+04 MB/s; "
                      "coding 0.500 ms + bytes / any rate"));
  ThresholdTable unknown("1bit");
  unknown.AddRaw(4, Ms(1));
  unknown.AddSize(8);
  EXPECT_THAT(ExplainTable(unknown), HasSubstr("raw: never measured compressed"));
  EXPECT_THAT(ExplainTable(unknown), HasSubstr("raw: never measured\n"));
}

TEST(ThresholdTable, TextReadsBackEqual) {
  ThresholdTable table = WorkedExample();
  table.AddRaw(1'000'000, absl::Nanoseconds(12345677));  // a mean that is not a whole microsecond
  table.AddRaw(7, Ms(1));
  table.AddSize(7, 3);
  const absl::StatusOr<ThresholdTable> parsed = ParseTable(TableToText(table));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->Rows(), table.Rows());
  EXPECT_EQ(parsed->codec(), "1bit:scaling=l1");
  EXPECT_EQ(TableToText(*parsed), TableToText(table));
}

std::string ParseError(const std::string& text) {
  const absl::StatusOr<ThresholdTable> parsed = ParseTable(text);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(parsed.status().message());
}

TEST(ThresholdTable, ParseNamesTheLineAndWhatItExpected) {
  const std::string head =
      "slimps threshold table 1\ncodec 1bit\n"
      "bytes t_c_ns t_cq_ns t_pq_ns raw_samples compressed_samples\n";
  const std::string columns =
      "slimps threshold table 1\ncodec 1bit\nbytes t_c_ns t_cq_ns t_pq_ns raw_samples "
      "compressed_samples tensors\n";
  EXPECT_EQ(ParseTable(columns + "4 1 2 3 1 1 5\nend\n")->Rows()[0].tensors, 5u);
  EXPECT_THAT(ParseError(columns + "4 1 2 3 1 1\nend\n"), HasSubstr("7 numbers"));
  EXPECT_THAT(ParseError(columns + "4 1 2 3 1 1 9999999\nend\n"), HasSubstr("tensors"));
  EXPECT_TRUE(ParseTable("# a comment\n\n" + head + "4 1 2 3 1 1\nend\n").ok());
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
                      << TableToText(WorkedExample());
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
  const std::string push = TableToText(WorkedExample());  // 8 lines
  std::ofstream(path) << push << "pull\nslimps threshold table 1\ncodec\n";
  EXPECT_THAT(std::string(LoadThresholdTables(path).status().message()),
              HasSubstr("line 11: expected 'codec NAME'"));
  std::ofstream(path) << push << "pull\n";
  EXPECT_THAT(std::string(LoadThresholdTables(path).status().message()),
              HasSubstr("line 10: expected 'end'"));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace slimps
