// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/node_reports.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "watch/metrics.h"

namespace slimps {
namespace {

constexpr double kMaxSeconds = 1e9;  // some thirty years

// True for a time that can be: not negative, not for ever.
bool MakesSense(double seconds) { return seconds >= 0 && seconds <= kMaxSeconds; }

void KeepSensible(double* number) {
  if (!MakesSense(*number)) *number = 0;
}

// Keeps the entries for which keep(entry) is true, at most `most` of them.
template <typename Entries, typename Keep>
void Filter(Entries* entries, int most, const Keep& keep) {
  int kept = 0;
  for (int i = 0; i < entries->size() && kept < most; ++i) {
    if (!keep((*entries)[i])) continue;
    if (kept != i) entries->SwapElements(kept, i);
    ++kept;
  }
  entries->DeleteSubrange(kept, entries->size() - kept);
}

// True for what the scheduler itself knows better than any node.
bool IsOfScheduler(uint32_t metric) {
  return metric >= static_cast<uint32_t>(Metric::kNodeUp) &&
         metric <= static_cast<uint32_t>(Metric::kJobAge);
}

void CheckSamples(const ReportLimits& limits, watch::NodeReport* report) {
  std::set<std::pair<uint32_t, std::vector<std::string>>> known;
  Filter(report->mutable_samples(), limits.max_samples, [&](watch::Sample& sample) {
    const MetricInfo* const info = FindMetric(sample.metric());
    if (info == nullptr || IsOfScheduler(sample.metric())) return false;
    if (!std::isfinite(sample.value())) return false;
    if (static_cast<size_t>(sample.labels_size()) != info->labels.size()) return false;
    for (std::string& label : *sample.mutable_labels()) {
      label = OneLine(label, limits.max_text_bytes);
    }
    return known
        .emplace(sample.metric(),
                 std::vector<std::string>(sample.labels().begin(), sample.labels().end()))
        .second;
  });
}

// Sorts the ranks and leaves out those from `ranks` on.
template <typename Ranks>
void CheckRanks(uint32_t ranks, Ranks* all) {
  std::set<uint32_t> good;
  for (const uint32_t rank : *all) {
    if (rank < ranks) good.insert(rank);
  }
  all->Assign(good.begin(), good.end());
}

void CheckRounds(const ReportLimits& limits, watch::NodeReport* report) {
  Filter(report->mutable_open_rounds(), limits.max_open_rounds, [&](watch::OpenRounds& open) {
    if (!MakesSense(open.seconds())) return false;
    Filter(open.mutable_tensors(), limits.max_named, [](const std::string&) { return true; });
    for (std::string& name : *open.mutable_tensors()) name = OneLine(name, limits.max_text_bytes);
    CheckRanks(limits.num_workers, open.mutable_missing());
    return true;
  });
}

void CheckDetails(const ReportLimits& limits, watch::NodeReport* report) {
  Filter(report->mutable_tensors(), limits.max_tensors, [&](watch::TensorFigures& tensor) {
    tensor.set_name(OneLine(tensor.name(), limits.max_text_bytes));
    tensor.set_codec(OneLine(tensor.codec(), limits.max_text_bytes));
    CheckRanks(limits.num_servers, tensor.mutable_servers());
    return true;
  });
  Filter(report->mutable_timeline(), limits.max_spans, [&](watch::Span& span) {
    if (!MakesSense(span.begin_s()) || !MakesSense(span.end_s() - span.begin_s())) return false;
    span.set_stage(OneLine(span.stage(), limits.max_text_bytes));
    span.set_tensor(OneLine(span.tensor(), limits.max_text_bytes));
    return true;
  });
}

}  // namespace

std::string OneLine(std::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    size_t end = max_bytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end);
  }
  const bool is_plain =
      std::ranges::none_of(text, [](unsigned char byte) { return byte < 0x20 || byte == 0x7F; });
  return is_plain ? std::string(text) : absl::Utf8SafeCHexEscape(std::string(text));
}

std::optional<watch::NodeReport> ParseNodeReport(std::string_view bytes,
                                                 const ReportLimits& limits) {
  watch::NodeReport report;
  if (!report.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return std::nullopt;
  if (!MakesSense(report.seconds())) return std::nullopt;
  CheckSamples(limits, &report);
  CheckRounds(limits, &report);
  CheckDetails(limits, &report);
  if (report.has_activity()) {
    watch::Activity* const activity = report.mutable_activity();
    activity->set_call(OneLine(activity->call(), limits.max_text_bytes));
    activity->set_where(OneLine(activity->where(), limits.max_text_bytes));
    double seconds = activity->seconds();
    KeepSensible(&seconds);
    activity->set_seconds(seconds);
  }
  return report;
}

}  // namespace slimps
