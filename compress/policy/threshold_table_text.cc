// SPDX-License-Identifier: Apache-2.0
// ThresholdTable as text: Explain writes it for people, ToText and Parse write and read files.
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
    "bytes t_c_ns t_cq_ns t_pq_ns raw_samples compressed_samples tensors";
constexpr size_t kColumns = 7;
// Files from before tensors were counted have these columns.
constexpr std::string_view kOldColumnsLine =
    "bytes t_c_ns t_cq_ns t_pq_ns raw_samples compressed_samples";
constexpr size_t kOldColumns = 6;

constexpr char kRule[] =
    "rule: the threshold is the size from which on compressing saves most: the largest sum, over "
    "that size and all above "
    "it, of tensors x (t_c - t_q).\n";

double Ms(absl::Duration time) { return absl::ToDoubleMilliseconds(time); }

std::string Size(uint64_t bytes) {
  if (bytes >= 1'000'000) return absl::StrFormat("%.2f MB", static_cast<double>(bytes) / 1e6);
  if (bytes >= 1'000) return absl::StrFormat("%.2f kB", static_cast<double>(bytes) / 1e3);
  return absl::StrFormat("%d B", bytes);
}

// Returns what is done with a row of DecidedRows.
std::string Decision(const ThresholdRow& row, std::optional<uint64_t> threshold) {
  const bool compressed = threshold.has_value() && row.bytes >= *threshold;
  const char* const done = compressed ? "compressed" : "raw";
  if (!row.complete()) {
    return absl::StrCat(done, ": ",
                        row.raw_samples > 0          ? "never measured compressed"
                        : row.compressed_samples > 0 ? "never measured raw"
                                                     : "never measured");
  }
  if (compressed && row.bytes == *threshold) return "compressed, from here up";
  if (compressed == row.gains()) return done;
  return absl::StrCat(
      done, compressed ? ", though this size alone loses" : ", though this size alone gains");
}

// Returns one cell. A `~` marks times without samples; "-" marks times that are not known.
std::string Cell(const ThresholdRow& decided, uint64_t samples, double value, int decimals) {
  if (!decided.complete()) return "-";
  return absl::StrFormat("%s%.*f", samples > 0 ? "" : "~", decimals, value);
}

std::string PerSecond(double ns_per_byte) {
  return ns_per_byte <= 0 ? "any rate" : absl::StrFormat("%.4g MB/s", 1e3 / ns_per_byte);
}

// Returns the lines behind the table. Sizes are fp32 bytes.
std::string ModelLine(const LinkModel& model) {
  return absl::StrFormat(
      "times: as measured, smoothed by lines through all sizes, which the threshold is decided by "
      "(~: by the lines alone): "
      "raw %.3f ms + bytes / %s; compressed %.3f ms + bytes / %s; coding %.3f ms + bytes / "
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

absl::Status CheckRow(const ThresholdRow& row) {
  for (absl::Duration time : {row.t_c, row.t_cq, row.t_pq}) {
    if (time < absl::ZeroDuration() || time > ThresholdTable::kMaxTime) {
      return absl::InvalidArgumentError(absl::StrCat(
          "threshold table, size ", row.bytes, ": a time of ", absl::FormatDuration(time),
          ", expected 0 to ", absl::FormatDuration(ThresholdTable::kMaxTime)));
    }
  }
  for (const auto& [count, of_what] :
       {std::pair(row.raw_samples, "samples"), std::pair(row.compressed_samples, "samples"),
        std::pair(row.tensors, "tensors")}) {
    if (count > ThresholdTable::kMaxSamples) {
      return absl::InvalidArgumentError(absl::StrCat("threshold table, size ", row.bytes, ": ",
                                                     count, " ", of_what, ", expected at most ",
                                                     ThresholdTable::kMaxSamples));
    }
  }
  return absl::OkStatus();
}

// Returns what was decided, and what it is worth.
std::string ThresholdLine(std::span<const ThresholdRow> rows, std::optional<uint64_t> threshold) {
  const auto name = [](std::optional<uint64_t> bytes) {
    return bytes.has_value() ? absl::StrCat(*bytes, " bytes (", Size(*bytes), ")")
                             : std::string("none");
  };
  const std::optional<uint64_t> best = BestThreshold(rows);
  std::string text =
      absl::StrCat("threshold: ", name(threshold),
                   threshold.has_value() ? ": smaller tensors travel raw, the others compressed\n"
                   : best.has_value()    ? ": every tensor travels raw\n"
                                      : ", compressing saves nothing: every tensor travels raw\n");
  if (best != threshold) {
    absl::StrAppend(&text, "in force though the rule says ", name(best),
                    ": it moves where that is worth it, or it was set by hand\n");
  }
  const StepEstimate step = EstimateStep(rows, threshold);
  absl::StrAppend(
      &text,
      absl::StrFormat("estimated to save: %.3f ms of the %.3f ms that a step's %d tensors take "
                      "raw, one after the other\n",
                      Ms(step.saved), Ms(step.raw), step.tensors));
  return text;
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
  if (empty()) return "threshold: none, nothing was measured: every tensor travels raw\n";
  const std::vector<ThresholdRow> rows = Rows();
  const std::vector<ThresholdRow> decided = DecidedRows(rows);
  std::string text = absl::StrFormat("%12s %10s %7s %10s %10s %10s %10s %7s %10s %10s  %s\n",
                                     "bytes", "size", "tensors", "t_c ms", "t_cq ms", "t_pq ms",
                                     "t_q ms", "gain", "saves ms", "and above", "decision");
  std::vector<double> sums(rows.size() + 1);  // saved by the row and all above it
  for (size_t i = rows.size(); i-- > 0;) {
    const double saves =
        decided[i].complete() ? decided[i].weight() * Ms(decided[i].t_c - decided[i].t_q()) : 0;
    sums[i] = sums[i + 1] + saves;
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const ThresholdRow& row = decided[i];
    const uint64_t raw = rows[i].raw_samples, compressed = rows[i].compressed_samples;
    const uint64_t both = std::min(raw, compressed);
    absl::StrAppend(
        &text, absl::StrFormat(
                   "%12d %10s %7s %10s %10s %10s %10s %7s %10s %10s  %s\n", row.bytes,
                   Size(row.bytes), row.tensors > 0 ? absl::StrCat(row.tensors) : "1?",
                   Cell(row, raw, Ms(row.t_c), 3), Cell(row, compressed, Ms(row.t_cq), 3),
                   Cell(row, compressed, Ms(row.t_pq), 3), Cell(row, compressed, Ms(row.t_q()), 3),
                   Cell(row, both, row.gain(), 2), Cell(row, both, sums[i] - sums[i + 1], 3),
                   Cell(row, 1, sums[i], 3), Decision(row, threshold)));
  }
  if (const LinkModel model(rows); model.known()) absl::StrAppend(&text, ModelLine(model));
  absl::StrAppend(&text, kRule);
  absl::StrAppend(&text, ThresholdLine(rows, threshold));
  return text;
}

std::string ThresholdTable::ToText() const {
  std::string text =
      absl::StrCat(std::string(kVersionLine), "\ncodec ", codec_.empty() ? "-" : codec_, "\n",
                   std::string(kColumnsLine), "\n");
  for (const ThresholdRow& row : Rows()) {
    absl::StrAppend(&text, row.bytes, " ", absl::ToInt64Nanoseconds(row.t_c), " ",
                    absl::ToInt64Nanoseconds(row.t_cq), " ", absl::ToInt64Nanoseconds(row.t_pq));
    absl::StrAppend(&text, " ", row.raw_samples, " ", row.compressed_samples, " ", row.tensors,
                    "\n");
  }
  absl::StrAppend(&text, "end\n");
  return text;
}

absl::StatusOr<ThresholdTable> ThresholdTable::Parse(std::string_view text) {
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
  return FromRows(std::move(codec), rows);
}

}  // namespace slimps
