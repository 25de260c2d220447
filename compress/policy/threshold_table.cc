// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/threshold_table.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "compress/policy/threshold_choice.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// The first rounds fill caches, open connections and allocate pools.
constexpr uint64_t kUncountedRounds = 2;

int64_t Clamp(absl::Duration time) {
  return absl::ToInt64Nanoseconds(std::clamp(time, absl::ZeroDuration(), ThresholdTable::kMaxTime));
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

// What several workers have measured for one size.
struct Workers {
  std::vector<ThresholdRow> complete, raw, compressed;
  uint64_t tensors = 0;
};

absl::Duration AverageOf(const std::vector<ThresholdRow>& rows,
                         absl::Duration ThresholdRow::*time) {
  std::vector<int64_t> values;
  for (const ThresholdRow& row : rows) values.push_back(absl::ToInt64Nanoseconds(row.*time));
  return absl::Nanoseconds(TrimmedMean(std::move(values)));
}

uint64_t SumOf(const std::vector<ThresholdRow>& rows, uint64_t ThresholdRow::*samples) {
  uint64_t sum = 0;
  for (const ThresholdRow& row : rows) sum += row.*samples;
  return std::min(sum, ThresholdTable::kMaxSamples);
}

}  // namespace

StepKind ProfilingStep(uint64_t round, uint64_t pre_steps) {
  if (round > pre_steps) return StepKind::kDecided;
  return round % 2 == 0 ? StepKind::kCompressed : StepKind::kRaw;
}

bool ProfilingCounts(uint64_t round) { return round > kUncountedRounds; }

ThresholdTable::Entry& ThresholdTable::EntryOf(uint64_t bytes) {
  return entries_
      .try_emplace(bytes, Entry{SampleWindow(kept_samples_), SampleWindow(kept_samples_),
                                SampleWindow(kept_samples_)})
      .first->second;
}

ThresholdTable::Entry ThresholdTable::EntryWith(const ThresholdRow& row, size_t kept_samples) {
  Entry entry{SampleWindow(kept_samples), SampleWindow(kept_samples),
              SampleWindow(kept_samples), row.raw_samples,
              row.compressed_samples,     row.tensors};
  // The single values are not known: every kept sample is taken to be the average.
  for (uint64_t i = 0; i < std::min<uint64_t>(row.raw_samples, kept_samples); ++i) {
    entry.t_c.Add(Clamp(row.t_c));
  }
  for (uint64_t i = 0; i < std::min<uint64_t>(row.compressed_samples, kept_samples); ++i) {
    entry.t_cq.Add(Clamp(row.t_cq));
    entry.t_pq.Add(Clamp(row.t_pq));
  }
  return entry;
}

void ThresholdTable::AddSize(uint64_t bytes, uint64_t tensors) {
  Entry& entry = EntryOf(bytes);
  entry.tensors = std::clamp(tensors, entry.tensors, kMaxSamples);
}

void ThresholdTable::AddRaw(uint64_t bytes, absl::Duration t_c) {
  Entry& entry = EntryOf(bytes);
  entry.t_c.Add(Clamp(t_c));
  entry.raw_samples = std::min(entry.raw_samples + 1, kMaxSamples);
}

void ThresholdTable::AddCompressed(uint64_t bytes, absl::Duration t_cq, absl::Duration t_pq) {
  Entry& entry = EntryOf(bytes);
  entry.t_cq.Add(Clamp(t_cq));
  entry.t_pq.Add(Clamp(t_pq));
  entry.compressed_samples = std::min(entry.compressed_samples + 1, kMaxSamples);
}

std::vector<ThresholdRow> ThresholdTable::Rows() const {
  std::vector<ThresholdRow> rows;
  rows.reserve(entries_.size());
  for (const auto& [bytes, entry] : entries_) {
    rows.push_back({.bytes = bytes,
                    .t_c = absl::Nanoseconds(entry.t_c.average()),
                    .t_cq = absl::Nanoseconds(entry.t_cq.average()),
                    .t_pq = absl::Nanoseconds(entry.t_pq.average()),
                    .raw_samples = entry.raw_samples,
                    .compressed_samples = entry.compressed_samples,
                    .tensors = entry.tensors});
  }
  return rows;
}

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

ThresholdTable ThresholdTable::Average(std::span<const ThresholdTable> workers) {
  std::map<uint64_t, Workers> sizes;
  for (const ThresholdTable& worker : workers) {
    for (const ThresholdRow& row : worker.Rows()) {
      Workers& size = sizes[row.bytes];
      size.tensors = std::max(size.tensors, row.tensors);
      if (row.complete()) size.complete.push_back(row);
      if (row.raw_samples > 0) size.raw.push_back(row);
      if (row.compressed_samples > 0) size.compressed.push_back(row);
    }
  }
  ThresholdTable average(workers.empty() ? std::string() : workers.front().codec());
  for (const auto& [bytes, size] : sizes) {
    // Prefer workers that measured the size both ways: their t_c and t_q were taken on the same
    // link.
    const auto& raw = size.complete.empty() ? size.raw : size.complete;
    const auto& compressed = size.complete.empty() ? size.compressed : size.complete;
    const ThresholdRow row = {
        .bytes = bytes,
        .t_c = AverageOf(raw, &ThresholdRow::t_c),
        .t_cq = AverageOf(compressed, &ThresholdRow::t_cq),
        .t_pq = AverageOf(compressed, &ThresholdRow::t_pq),
        .raw_samples = SumOf(raw, &ThresholdRow::raw_samples),
        .compressed_samples = SumOf(compressed, &ThresholdRow::compressed_samples),
        .tensors = size.tensors};
    average.entries_.emplace(bytes, EntryWith(row, average.kept_samples_));
  }
  return average;
}

std::optional<uint64_t> ThresholdTable::BestCompressionThreshold() const {
  return BestThreshold(Rows());
}

}  // namespace slimps
