// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/node_rates.h"

#include <algorithm>

namespace slimps {

void NodeRates::Add(const watch::NodeReport& report, SteadyTime now) {
  if (!points_.empty() && report.seconds() < points_.back().report.seconds()) points_.clear();
  Point& point = points_.emplace_back();
  point.at = now;
  *point.report.mutable_samples() = report.samples();
  point.report.set_seconds(report.seconds());
  while (points_.size() > kMaxPoints || now - points_.front().at > kKept) points_.pop_front();
}

std::optional<size_t> NodeRates::Since(absl::Duration window, SteadyTime now) const {
  if (points_.size() < 2 || now - points_.back().at > kStale) return std::nullopt;
  const Point& last = points_.back();
  size_t first = points_.size() - 2;
  while (first > 0 && last.at - points_[first - 1].at <= window) --first;
  return first;
}

double NodeRates::ChangeSince(size_t point, Metric metric,
                              const std::vector<std::string>& labels) const {
  const watch::NodeReport& first = points_[point].report;
  const watch::NodeReport& last = points_.back().report;
  const double seconds = last.seconds() - first.seconds();
  if (seconds <= 0) return 0;
  return std::max(0.0, (SumOf(last, metric, labels) - SumOf(first, metric, labels)) / seconds);
}

double NodeRates::PerSecond(Metric metric, const std::vector<std::string>& labels,
                            absl::Duration window, SteadyTime now) const {
  const std::optional<size_t> since = Since(window, now);
  return since.has_value() ? ChangeSince(*since, metric, labels) : 0;
}

double NodeRates::RoundsPerSecond(absl::Duration window, SteadyTime now) const {
  std::optional<size_t> since = Since(window, now);
  if (!since.has_value()) return 0;
  while (*since + 1 < points_.size() && SumOf(points_[*since].report, Metric::kRound) == 0) {
    ++*since;
  }
  return ChangeSince(*since, Metric::kRound, {});
}

std::map<std::string, double> NodeRates::PerSecondByLabel(Metric metric, absl::Duration window,
                                                          SteadyTime now) const {
  std::map<std::string, double> rates;
  if (!Since(window, now).has_value()) return rates;
  for (const watch::Sample& sample : points_.back().report.samples()) {
    if (sample.metric() != static_cast<uint32_t>(metric) || sample.labels().empty()) continue;
    const auto [rate, is_new] = rates.try_emplace(sample.labels(0));
    if (is_new) rate->second = PerSecond(metric, {sample.labels(0)}, window, now);
  }
  return rates;
}

std::optional<double> NodeRates::Newest(Metric metric) const {
  if (points_.empty()) return std::nullopt;
  for (const watch::Sample& sample : points_.back().report.samples()) {
    if (sample.metric() == static_cast<uint32_t>(metric)) return sample.value();
  }
  return std::nullopt;
}

}  // namespace slimps
