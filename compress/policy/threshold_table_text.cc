// The two faces of a ThresholdTable as text: Explain for people, ToText and Parse for files.
#include <charconv>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compress/policy/link_model.h"
#include "compress/policy/threshold_choice.h"
#include "compress/policy/threshold_table.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr std::string_view kVersionLine = "slimps threshold table 1";
constexpr std::string_view kColumnsLine =
    "bytes t_c_ns t_cq_ns t_pq_ns raw_samples compressed_samples";
constexpr size_t kColumns = 6;

double Ms(absl::Duration time) { return absl::ToDoubleMilliseconds(time); }

std::string Size(uint64_t bytes) {
  if (bytes >= 1'000'000) return absl::StrFormat("%.2f MB", static_cast<double>(bytes) / 1e6);
  if (bytes >= 1'000) return absl::StrFormat("%.2f kB", static_cast<double>(bytes) / 1e3);
  return absl::StrFormat("%d B", bytes);
}

// "costs 6.300 ms and saves 4.200 ms".
std::string Balance(const ThresholdRow& row) {
  if (row.t_cq > row.t_c) {
    return absl::StrFormat("costs %.3f ms and sending takes %.3f ms longer", Ms(row.t_pq),
                           Ms(row.t_cq - row.t_c));
  }
  return absl::StrFormat("costs %.3f ms and saves %.3f ms", Ms(row.t_pq), Ms(row.t_c - row.t_cq));
}

// What is done with `row`, whose missing times were filled in where that was possible, and why.
std::string Reason(const ThresholdRow& row, bool measured, std::optional<uint64_t> threshold) {
  const bool compressed = threshold.has_value() && row.bytes >= *threshold;
  const char* const done = compressed ? "compressed" : "raw";
  if (!row.complete()) {
    return absl::StrCat(done, ": ",
                        row.raw_samples > 0          ? "never measured compressed"
                        : row.compressed_samples > 0 ? "never measured raw"
                                                     : "never measured");
  }
  std::string why = compressed && row.bytes == *threshold ? "first size that gains: " : "";
  if (compressed != row.gains()) {
    why = compressed              ? "above the threshold, although "
          : threshold.has_value() ? "below the threshold, although "
                                  : "no threshold, although ";
  }
  return absl::StrCat(done, ": ", why, measured ? "" : "by the model ", "compression ",
                      Balance(row));
}

std::string Cell(const ThresholdRow& filled, uint64_t samples, absl::Duration time) {
  if (samples == 0 && !filled.complete()) return "-";
  return absl::StrFormat(samples > 0 ? "%.3f" : "~%.3f", Ms(time));
}

std::string PerSecond(double ns_per_byte) {
  return ns_per_byte <= 0 ? "any rate" : absl::StrFormat("%.4g MB/s", 1e3 / ns_per_byte);
}

// The lines behind the table, in fp32 bytes.
std::string ModelLine(const LinkModel& model) {
  return absl::StrFormat(
      "model: raw %.3f ms + bytes / %s; compressed %.3f ms + bytes / %s; coding %.3f ms + bytes / "
      "%s\n",
      model.startup() / 1e6, PerSecond(model.raw_per_byte()), model.compressed_startup() / 1e6,
      PerSecond(model.compressed_per_byte()), model.coding_startup() / 1e6,
      PerSecond(model.coding_per_byte()));
}

absl::Status BadLine(size_t line, const std::string& expected, std::string_view got) {
  return absl::InvalidArgumentError(absl::StrCat("threshold table, line ", line, ": expected ",
                                                 expected, ", got '",
                                                 std::string(got.substr(0, 80)), "'"));
}

// One row's line: six unsigned decimal numbers, single blanks between them.
absl::StatusOr<ThresholdRow> ParseRow(size_t line_number, std::string_view line) {
  uint64_t values[kColumns] = {};
  const char* at = line.data();
  const char* const end = line.data() + line.size();
  for (size_t i = 0; i < kColumns; ++i) {
    if (i > 0 && (at == end || *at++ != ' ')) {
      return BadLine(line_number, absl::StrCat(kColumns, " numbers with one blank between"), line);
    }
    const auto [next, error] = std::from_chars(at, end, values[i]);
    if (error != std::errc()) {
      return BadLine(line_number, absl::StrCat("an unsigned number in column ", i + 1), line);
    }
    at = next;
  }
  if (at != end) return BadLine(line_number, absl::StrCat("the end after column ", kColumns), line);
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
                      .compressed_samples = values[5]};
}

absl::Status CheckRow(const ThresholdRow& row) {
  for (absl::Duration time : {row.t_c, row.t_cq, row.t_pq}) {
    if (time < absl::ZeroDuration() || time > ThresholdTable::kMaxTime) {
      return absl::InvalidArgumentError(absl::StrCat(
          "threshold table, size ", row.bytes, ": a time of ", absl::FormatDuration(time),
          ", expected 0 to ", absl::FormatDuration(ThresholdTable::kMaxTime)));
    }
  }
  for (uint64_t samples : {row.raw_samples, row.compressed_samples}) {
    if (samples > ThresholdTable::kMaxSamples) {
      return absl::InvalidArgumentError(absl::StrCat("threshold table, size ", row.bytes, ": ",
                                                     samples, " samples, expected at most ",
                                                     ThresholdTable::kMaxSamples));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ThresholdTable> ThresholdTable::FromRows(std::string codec,
                                                        std::span<const ThresholdRow> rows) {
  if (rows.size() > kMaxRows) {
    return absl::InvalidArgumentError(
        absl::StrCat("threshold table: ", rows.size(), " rows, expected at most ", kMaxRows));
  }
  ThresholdTable table(std::move(codec));
  for (const ThresholdRow& row : rows) {
    SLIMPS_RETURN_IF_ERROR(CheckRow(row));
    if (!table.entries_.emplace(row.bytes, EntryWith(row, table.kept_samples_)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("threshold table: size ", row.bytes, " appears twice"));
    }
  }
  return table;
}

std::string ThresholdTable::Explain(std::optional<uint64_t> threshold) const {
  std::string text = absl::StrFormat("%12s %10s %10s %10s %10s %10s %7s  %s\n", "bytes", "size",
                                     "t_c ms", "t_cq ms", "t_pq ms", "t_q ms", "gain", "decision");
  const std::vector<ThresholdRow> rows = Rows();
  const std::vector<ThresholdRow> filled = FilledRows(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const ThresholdRow& row = filled[i];
    const auto [raw, compressed] = std::pair(rows[i].raw_samples, rows[i].compressed_samples);
    absl::StrAppend(
        &text,
        absl::StrFormat("%12d %10s %10s %10s %10s %10s %7s  %s\n", row.bytes, Size(row.bytes),
                        Cell(row, raw, row.t_c), Cell(row, compressed, row.t_cq),
                        Cell(row, compressed, row.t_pq), Cell(row, compressed, row.t_q()),
                        row.complete()
                            ? absl::StrFormat(rows[i].complete() ? "%.2f" : "~%.2f", row.gain())
                            : "-",
                        Reason(row, rows[i].complete(), threshold)));
  }
  if (const LinkModel model(rows); model.known()) absl::StrAppend(&text, ModelLine(model));
  if (threshold.has_value()) {
    absl::StrAppend(&text, "threshold: ", *threshold, " bytes (", Size(*threshold),
                    "): smaller tensors travel raw, the others compressed\n");
  } else if (empty()) {
    absl::StrAppend(&text, "threshold: none, nothing was measured: every tensor travels raw\n");
  } else {
    absl::StrAppend(&text, "threshold: none, no size gains: every tensor travels raw\n");
  }
  return text;
}

std::string ThresholdTable::ToText() const {
  std::string text =
      absl::StrCat(std::string(kVersionLine), "\ncodec ", codec_.empty() ? "-" : codec_, "\n",
                   std::string(kColumnsLine), "\n");
  for (const ThresholdRow& row : Rows()) {
    absl::StrAppend(&text, row.bytes, " ", absl::ToInt64Nanoseconds(row.t_c), " ",
                    absl::ToInt64Nanoseconds(row.t_cq), " ", absl::ToInt64Nanoseconds(row.t_pq));
    absl::StrAppend(&text, " ", row.raw_samples, " ", row.compressed_samples, "\n");
  }
  absl::StrAppend(&text, "end\n");
  return text;
}

absl::StatusOr<ThresholdTable> ThresholdTable::Parse(std::string_view text) {
  std::vector<ThresholdRow> rows;
  std::string codec;
  bool ended = false;
  size_t line_number = 0;  // without comments and blank lines, `step` counts what was expected
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
        if (line != kColumnsLine) {
          return BadLine(line_number, absl::StrCat("'", std::string(kColumnsLine), "'"), line);
        }
        ++step;
        break;
      default: {
        if (line == "end") {
          ended = true;
          break;
        }
        SLIMPS_ASSIGN_OR_RETURN(const ThresholdRow row, ParseRow(line_number, line));
        if (!rows.empty() && row.bytes <= rows.back().bytes) {
          return BadLine(line_number, absl::StrCat("a size over ", rows.back().bytes), line);
        }
        rows.push_back(row);
      }
    }
  }
  if (!ended) return BadLine(line_number + 1, "'end'", "the end of the file");
  return FromRows(std::move(codec), rows);
}

}  // namespace slimps
