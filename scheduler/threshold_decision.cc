#include "scheduler/threshold_decision.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Far beyond any training, and far from overflow.
constexpr uint64_t kMaxRound = uint64_t{1} << 48;

absl::StatusOr<std::vector<ThresholdRow>> RowsOf(const wire::ThresholdReport& report) {
  std::vector<ThresholdRow> rows;
  for (const wire::ThresholdRow& row : report.rows()) {
    for (const double ms : {row.t_c_ms(), row.t_cq_ms(), row.t_pq_ms()}) {
      if (!std::isfinite(ms) || ms < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("size ", row.bytes(), ": time of ", ms, " ms, expected a number from 0"));
      }
    }
    rows.push_back({.bytes = row.bytes(),
                    .t_c = absl::Milliseconds(row.t_c_ms()),
                    .t_cq = absl::Milliseconds(row.t_cq_ms()),
                    .t_pq = absl::Milliseconds(row.t_pq_ms()),
                    .raw_samples = row.raw_samples(),
                    .compressed_samples = row.compressed_samples()});
  }
  return rows;
}

}  // namespace

absl::Status ThresholdDecision::Add(uint32_t worker, const wire::ThresholdReport& report) {
  if (decision_.has_value() || reports_.contains(worker)) return absl::OkStatus();
  if (report.ready_round() > kMaxRound) {
    return absl::InvalidArgumentError(absl::StrCat(
        "threshold report: ready round ", report.ready_round(), ", expected at most ", kMaxRound));
  }
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<ThresholdRow> rows, RowsOf(report));
  SLIMPS_ASSIGN_OR_RETURN(ThresholdTable table, ThresholdTable::FromRows(report.codec(), rows));
  if (!reports_.empty() && reports_.begin()->second.table.codec() != report.codec()) {
    const auto& [first_worker, first] = *reports_.begin();
    return absl::InvalidArgumentError(
        absl::StrCat("threshold report: worker ", worker, " profiled codec \"", report.codec(),
                     "\", expected as worker ", first_worker, ": \"", first.table.codec(), "\""));
  }
  reports_.emplace(worker, Report{std::move(table), report.ready_round()});
  DecideIfComplete();
  return absl::OkStatus();
}

void ThresholdDecision::Leave(uint32_t worker) {
  left_.insert(worker);
  DecideIfComplete();
}

void ThresholdDecision::DecideIfComplete() {
  if (decision_.has_value() || reports_.empty()) return;
  for (uint32_t worker = 0; worker < num_workers_; ++worker) {
    if (!reports_.contains(worker) && !left_.contains(worker)) return;
  }
  std::vector<ThresholdTable> tables;
  uint64_t ready_round = 0;
  for (const auto& [worker, report] : reports_) {
    tables.push_back(report.table);
    ready_round = std::max(ready_round, report.ready_round);
  }
  const ThresholdTable average = ThresholdTable::Average(tables);
  wire::CodecMap& map = decision_.emplace();
  map.set_version(1);
  map.set_from_round(ready_round + 1);
  const std::optional<uint64_t> best = average.BestCompressionThreshold();
  map.set_has_threshold(best.has_value());
  map.set_threshold_bytes(best.value_or(0));
  map.set_codec_below("none");
  map.set_codec(average.codec());
  for (const ThresholdRow& row : average.Rows()) {
    wire::ThresholdRow* out = map.add_table();
    out->set_bytes(row.bytes);
    out->set_t_c_ms(absl::ToDoubleMilliseconds(row.t_c));
    out->set_t_cq_ms(absl::ToDoubleMilliseconds(row.t_cq));
    out->set_t_pq_ms(absl::ToDoubleMilliseconds(row.t_pq));
    out->set_raw_samples(row.raw_samples);
    out->set_compressed_samples(row.compressed_samples);
  }
}

}  // namespace slimps
