// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/figures.h"

#include <algorithm>

#include "absl/strings/numbers.h"

namespace slimps {
namespace {

constexpr absl::Duration kPointEvery = absl::Milliseconds(990);  // callers come every second

class Mean final {
 public:
  void Add(std::optional<double> value) {
    if (!value.has_value()) return;
    sum_ += *value;
    ++count_;
  }
  std::optional<double> Value() const {
    return count_ == 0 ? std::nullopt : std::optional(sum_ / count_);
  }

 private:
  double sum_ = 0;
  int count_ = 0;
};

}  // namespace

Figures FiguresOf(const RatesMap& nodes, uint32_t num_workers, absl::Duration window,
                  SteadyTime now) {
  Figures all;
  Mean overlap, gain, error;
  for (const auto& [place, node] : nodes) {
    const auto rate = [&, &from = node](Metric metric, const std::vector<std::string>& labels) {
      return from.PerSecond(metric, labels, window, now);
    };
    const auto& [role, rank] = place;
    if (role == wire::SERVER) {
      all.server_bytes_per_s[rank] =
          rate(Metric::kReceivedBytes, {}) + rate(Metric::kSentBytes, {});
      all.server_busy[rank] = rate(Metric::kStageSeconds, {});
      for (const auto& [label, part] :
           node.PerSecondByLabel(Metric::kWaitedForWorker, window, now)) {
        uint32_t worker = 0;
        if (!absl::SimpleAtoi(label, &worker) || worker >= num_workers) continue;
        all.waited_for[worker] = std::max(all.waited_for[worker], part);
      }
      continue;
    }
    all.rounds_per_s = std::max(all.rounds_per_s, rate(Metric::kRound, {}));
    all.push_bytes_per_s += rate(Metric::kPayloadBytes, {"push"});
    all.pull_bytes_per_s += rate(Metric::kPayloadBytes, {"pull"});
    all.raw_push_bytes_per_s += rate(Metric::kRawBytes, {"push"});
    all.raw_pull_bytes_per_s += rate(Metric::kRawBytes, {"pull"});
    all.uncompressed_pull_bytes_per_s += rate(Metric::kPayloadBytes, {"pull", "none"});
    for (auto& [stage, seconds] : all.stage_s) seconds += rate(Metric::kStageSeconds, {stage});
    overlap.Add(node.Newest(Metric::kOverlapRatio));
    gain.Add(node.Newest(Metric::kCompressionGain));
    error.Add(node.Newest(Metric::kCompressionError));
  }
  all.overlap = overlap.Value();
  all.compression_gain = gain.Value();
  all.compression_error = error.Value();
  return all;
}

void History::Add(absl::Duration age, const Figures& figures) {
  const double t = absl::ToDoubleSeconds(age);
  if (!points_.empty() && t - points_.back().t < absl::ToDoubleSeconds(kPointEvery)) return;
  points_.push_back({t, figures.push_bytes_per_s, figures.pull_bytes_per_s, figures.rounds_per_s,
                     figures.overlap});
  if (points_.size() > kMaxPoints) points_.pop_front();
}

}  // namespace slimps
