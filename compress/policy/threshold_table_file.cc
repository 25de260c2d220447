// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/threshold_table_file.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "compress/policy/threshold_explanation.h"
#include "compress/policy/threshold_row.h"
#include "proto/base/file.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// A limit before anything is read: a file from elsewhere must not fill the memory.
constexpr std::streamsize kMaxFileBytes = 16 << 20;
constexpr std::string_view kPullLine = "pull\n";

constexpr std::string_view kVersionLine = "slimps threshold table 1";
constexpr std::string_view kColumnsLine =
    "bytes t_c_ns t_cq_ns t_pq_ns raw_samples compressed_samples tensors";
constexpr size_t kColumns = 7;
// Files from before tensors were counted have these columns.
constexpr std::string_view kOldColumnsLine =
    "bytes t_c_ns t_cq_ns t_pq_ns raw_samples compressed_samples";
constexpr size_t kOldColumns = 6;

absl::Status BadLine(size_t line, const std::string& expected, std::string_view got) {
  return absl::InvalidArgumentError(absl::StrCat("threshold table, line ", line, ": expected ",
                                                 expected, ", got '",
                                                 std::string(got.substr(0, 80)), "'"));
}

// Parses one row: `columns` unsigned decimal numbers with one blank between.
absl::StatusOr<ThresholdRow> ParseRow(size_t line_number, std::string_view line, size_t columns) {
  uint64_t values[kColumns] = {};
  const char* at = line.data();
  const char* const end = line.data() + line.size();
  for (size_t i = 0; i < columns; ++i) {
    if (i > 0 && (at == end || *at++ != ' ')) {
      return BadLine(line_number, absl::StrCat(columns, " numbers with one blank between"), line);
    }
    const auto [next, error] = std::from_chars(at, end, values[i]);
    if (error != std::errc()) {
      return BadLine(line_number, absl::StrCat("an unsigned number in column ", i + 1), line);
    }
    at = next;
  }
  if (at != end) return BadLine(line_number, absl::StrCat("the end after column ", columns), line);
  // Check the limit before the number becomes a Duration.
  const auto max_ns = static_cast<uint64_t>(absl::ToInt64Nanoseconds(ThresholdTable::kMaxTime));
  for (size_t i = 1; i <= 3; ++i) {
    if (values[i] > max_ns) {
      return BadLine(line_number, absl::StrCat("at most ", max_ns, " ns in column ", i + 1), line);
    }
  }
  return ThresholdRow{.bytes = values[0],
                      .t_c = absl::Nanoseconds(values[1]),
                      .t_cq = absl::Nanoseconds(values[2]),
                      .t_pq = absl::Nanoseconds(values[3]),
                      .raw_samples = values[4],
                      .compressed_samples = values[5],
                      .tensors = values[6]};
}

std::string AsComments(const std::string& text) {
  std::istringstream lines(text);
  std::string commented, line;
  while (std::getline(lines, line)) absl::StrAppend(&commented, "# ", line, "\n");
  return commented;
}

std::string FileText(const ThresholdTable& table) {
  return absl::StrCat(AsComments(ExplainTable(table)), TableToText(table));
}

absl::StatusOr<ThresholdTables> ParseTables(const std::string& text) {
  ThresholdTables tables;
  const size_t mark =
      text.starts_with(kPullLine) ? 0 : text.find(absl::StrCat("\n", std::string(kPullLine)));
  if (mark != 0) {
    const size_t end = mark == std::string::npos ? mark : mark + 1;
    SLIMPS_ASSIGN_OR_RETURN(tables.push, ParseTable(text.substr(0, end)));
  }
  if (mark == std::string::npos) return tables;
  const size_t pull = mark + (mark == 0 ? 0 : 1) + kPullLine.size();
  // Blank lines stand for the lines before the mark, so that errors name the line in the file.
  const auto lines = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(pull), '\n');
  SLIMPS_ASSIGN_OR_RETURN(
      tables.pull,
      ParseTable(absl::StrCat(std::string(static_cast<size_t>(lines), '\n'), text.substr(pull))));
  return tables;
}

}  // namespace

std::string TableToText(const ThresholdTable& table) {
  std::string text = absl::StrCat(std::string(kVersionLine), "\ncodec ",
                                  table.codec().empty() ? "-" : table.codec(), "\n",
                                  std::string(kColumnsLine), "\n");
  for (const ThresholdRow& row : table.Rows()) {
    absl::StrAppend(&text, row.bytes, " ", absl::ToInt64Nanoseconds(row.t_c), " ",
                    absl::ToInt64Nanoseconds(row.t_cq), " ", absl::ToInt64Nanoseconds(row.t_pq));
    absl::StrAppend(&text, " ", row.raw_samples, " ", row.compressed_samples, " ", row.tensors,
                    "\n");
  }
  absl::StrAppend(&text, "end\n");
  return text;
}

absl::StatusOr<ThresholdTable> ParseTable(std::string_view text) {
  std::vector<ThresholdRow> rows;
  std::string codec;
  bool ended = false;
  size_t columns = kColumns;
  size_t line_number = 0;
  // The step names what must come next. Comments and blank lines do not change it.
  size_t step = 0;
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    const std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    ++line_number;
    if (line.empty() || line.front() == '#') continue;
    if (ended) return BadLine(line_number, "nothing after 'end'", line);
    switch (step) {
      case 0:
        if (line != kVersionLine) {
          return BadLine(line_number, absl::StrCat("'", std::string(kVersionLine), "'"), line);
        }
        ++step;
        break;
      case 1:
        if (!line.starts_with("codec ") || line.size() == 6) {
          return BadLine(line_number, "'codec NAME'", line);
        }
        codec = line.substr(6) == "-" ? std::string() : std::string(line.substr(6));
        ++step;
        break;
      case 2:
        if (line == kOldColumnsLine) columns = kOldColumns;
        if (line != kColumnsLine && line != kOldColumnsLine) {
          return BadLine(line_number, absl::StrCat("'", std::string(kColumnsLine), "'"), line);
        }
        ++step;
        break;
      default: {
        if (line == "end") {
          ended = true;
          break;
        }
        SLIMPS_ASSIGN_OR_RETURN(const ThresholdRow row, ParseRow(line_number, line, columns));
        if (!rows.empty() && row.bytes <= rows.back().bytes) {
          return BadLine(line_number, absl::StrCat("a size over ", rows.back().bytes), line);
        }
        rows.push_back(row);
      }
    }
  }
  if (!ended) return BadLine(line_number + 1, "'end'", "the end of the file");
  return ThresholdTable::FromRows(std::move(codec), rows);
}

absl::Status SaveThresholdTables(const ThresholdTables& tables, const std::string& path) {
  std::string text;
  if (tables.push.has_value()) absl::StrAppend(&text, FileText(*tables.push));
  if (tables.pull.has_value()) {
    absl::StrAppend(&text, std::string(kPullLine), FileText(*tables.pull));
  }
  return Prefixed(WriteFileDurably(path, text), "threshold table");
}

absl::StatusOr<ThresholdTables> LoadThresholdTables(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("threshold table: cannot open ", path));
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), kMaxFileBytes + 1);
  if (file.gcount() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("threshold table: ", path, " is larger than ", kMaxFileBytes, " bytes"));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  absl::StatusOr<ThresholdTables> tables = ParseTables(text);
  if (!tables.ok()) return Prefixed(tables.status(), path);
  return tables;
}

}  // namespace slimps
