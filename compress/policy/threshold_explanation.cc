// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/threshold_explanation.h"

#include <algorithm>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "compress/policy/link_model.h"
#include "compress/policy/threshold_choice.h"
#include "compress/policy/threshold_row.h"

namespace slimps {
namespace {

constexpr char kRule[] =
    "rule: the threshold is the size from which on compressing saves most: the largest sum, "
    "over that size and all above it, of tensors x (t_c - t_q).\n";

// Under this share of a step's bytes, compression hardly takes part.
constexpr double kNearlyRaw = 0.1;

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
      "times: as measured, smoothed by lines through all sizes, "
      "which the threshold is decided by (~: by the lines alone): "
      "raw %.3f ms + bytes / %s; "
      "compressed %.3f ms + bytes / %s; "
      "coding %.3f ms + bytes / %s\n",
      model.startup() / 1e6, PerSecond(model.raw_per_byte()), model.compressed_startup() / 1e6,
      PerSecond(model.compressed_per_byte()), model.coding_startup() / 1e6,
      PerSecond(model.coding_per_byte()));
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
                   : AreComparable(rows) ? ", compressing saves nothing: every tensor travels raw\n"
                                         : ", too little was measured to decide\n");
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

std::string ExplainTable(const ThresholdTable& table, std::optional<uint64_t> threshold) {
  if (table.empty()) return "threshold: none, nothing was measured: every tensor travels raw\n";
  const std::vector<ThresholdRow> rows = table.Rows();
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

DecisionLine SummarizeDecision(const ThresholdTable& table, std::optional<uint64_t> threshold,
                               std::string_view option) {
  const std::vector<ThresholdRow> rows = table.Rows();
  double all = 0, compressed = 0;
  for (const ThresholdRow& row : rows) {
    const double bytes = row.weight() * static_cast<double>(row.bytes);
    all += bytes;
    if (threshold.has_value() && row.bytes >= *threshold) compressed += bytes;
  }
  DecisionLine line;
  line.is_nearly_raw = compressed < kNearlyRaw * all;
  const std::string from = threshold.has_value()
                               ? absl::StrCat(" (tensors from ", *threshold, " bytes on)")
                               : std::string();
  line.text = absl::StrFormat("%s: %s compresses %.0f%% of a step's bytes%s", option, table.codec(),
                              all > 0 ? 100 * compressed / all : 0, from);
  if (!line.is_nearly_raw) return line;
  absl::StrAppend(&line.text,
                  AreComparable(rows) ? ", because sending the others raw takes less time here"
                                      : ", because too little was measured to decide",
                  "; a run that tries the codec's accuracy tests hardly anything: ",
                  std::string(option), "=0 compresses every tensor");
  return line;
}

std::string ExplainTable(const ThresholdTable& table) {
  return ExplainTable(table, table.BestCompressionThreshold());
}

}  // namespace slimps
