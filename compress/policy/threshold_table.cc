#include "compress/policy/threshold_table.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace slimps {
namespace {

// The first rounds fill caches, open connections and allocate pools.
constexpr uint64_t kUncountedRounds = 2;

absl::Duration Clamp(absl::Duration time) {
  return std::clamp(time, absl::ZeroDuration(), ThresholdTable::kMaxTime);
}

// Whole nanoseconds, so that text and wire carry the table without loss.
absl::Duration Mean(absl::Duration sum, uint64_t samples) {
  if (samples == 0) return absl::ZeroDuration();
  return absl::Nanoseconds(absl::ToInt64Nanoseconds(sum) / static_cast<int64_t>(samples));
}

}  // namespace

StepKind ProfilingStep(uint64_t round, uint64_t pre_steps) {
  if (round > pre_steps) return StepKind::kDecided;
  return round % 2 == 0 ? StepKind::kCompressed : StepKind::kRaw;
}

bool ProfilingCounts(uint64_t round) { return round > kUncountedRounds; }

double ThresholdRow::gain() const {
  if (t_q() == absl::ZeroDuration()) {
    return t_c > absl::ZeroDuration() ? std::numeric_limits<double>::infinity() : 1.0;
  }
  return absl::FDivDuration(t_c, t_q());
}

void ThresholdTable::AddRaw(uint64_t bytes, absl::Duration t_c) {
  Sums& sums = sums_[bytes];
  if (sums.raw_samples == kMaxSamples) return;
  sums.t_c += Clamp(t_c);
  ++sums.raw_samples;
}

void ThresholdTable::AddCompressed(uint64_t bytes, absl::Duration t_cq, absl::Duration t_pq) {
  Sums& sums = sums_[bytes];
  if (sums.compressed_samples == kMaxSamples) return;
  sums.t_cq += Clamp(t_cq);
  sums.t_pq += Clamp(t_pq);
  ++sums.compressed_samples;
}

std::vector<ThresholdRow> ThresholdTable::Rows() const {
  std::vector<ThresholdRow> rows;
  rows.reserve(sums_.size());
  for (const auto& [bytes, sums] : sums_) {
    rows.push_back({.bytes = bytes,
                    .t_c = Mean(sums.t_c, sums.raw_samples),
                    .t_cq = Mean(sums.t_cq, sums.compressed_samples),
                    .t_pq = Mean(sums.t_pq, sums.compressed_samples),
                    .raw_samples = sums.raw_samples,
                    .compressed_samples = sums.compressed_samples});
  }
  return rows;
}

ThresholdTable ThresholdTable::Average(std::span<const ThresholdTable> workers) {
  ThresholdTable mean(workers.empty() ? std::string() : workers.front().codec());
  struct Totals {
    ThresholdRow row;
    uint64_t workers = 0;
  };
  std::map<uint64_t, Totals> totals;
  for (const ThresholdTable& worker : workers) {
    for (const ThresholdRow& row : worker.Rows()) {
      if (!row.complete()) continue;
      Totals& total = totals[row.bytes];
      ++total.workers;
      total.row.t_c += row.t_c;
      total.row.t_cq += row.t_cq;
      total.row.t_pq += row.t_pq;
      total.row.raw_samples += row.raw_samples;
      total.row.compressed_samples += row.compressed_samples;
    }
  }
  for (const auto& [bytes, total] : totals) {
    const uint64_t raw = std::min(total.row.raw_samples, kMaxSamples);
    const uint64_t compressed = std::min(total.row.compressed_samples, kMaxSamples);
    mean.sums_[bytes] = {.t_c = Mean(total.row.t_c, total.workers) * raw,
                         .t_cq = Mean(total.row.t_cq, total.workers) * compressed,
                         .t_pq = Mean(total.row.t_pq, total.workers) * compressed,
                         .raw_samples = raw,
                         .compressed_samples = compressed};
  }
  return mean;
}

std::optional<uint64_t> ThresholdTable::BestCompressionThreshold() const {
  for (const ThresholdRow& row : Rows()) {
    if (row.gains()) return row.bytes;
  }
  return std::nullopt;
}

}  // namespace slimps
