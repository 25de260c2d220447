// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/figures.h"

#include <algorithm>

#include "absl/strings/numbers.h"

namespace slimps {
namespace {

constexpr absl::Duration kPointEvery = absl::Milliseconds(990);  // callers come more often

std::optional<double> Ratio(double part, double whole) {
  return whole > 0 ? std::optional(part / whole) : std::nullopt;
}

}  // namespace

Figures FiguresOf(const RatesMap& nodes, uint32_t num_workers, absl::Duration window,
                  SteadyTime now) {
  Figures all;
  double travelled = 0, overlapped = 0, compressed = 0, sent = 0, lost = 0;
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
    all.rounds_per_s = std::max(all.rounds_per_s, node.RoundsPerSecond(window, now));
    all.push_bytes_per_s += rate(Metric::kPayloadBytes, {"push"});
    all.pull_bytes_per_s += rate(Metric::kPayloadBytes, {"pull"});
    all.raw_push_bytes_per_s += rate(Metric::kRawBytes, {"push"});
    all.raw_pull_bytes_per_s += rate(Metric::kRawBytes, {"pull"});
    all.uncompressed_pull_bytes_per_s += rate(Metric::kPayloadBytes, {"pull", "none"});
    for (auto& [stage, seconds] : all.stage_s) seconds += rate(Metric::kStageSeconds, {stage});
    travelled += rate(Metric::kTravelSeconds, {});
    overlapped += rate(Metric::kOverlapSeconds, {});
    compressed += rate(Metric::kCompressedNorm, {});
    sent += rate(Metric::kSentNorm, {});
    lost += rate(Metric::kLostNorm, {});
  }
  all.overlap = Ratio(overlapped, travelled);
  all.compression_gain = Ratio(sent, compressed);
  all.compression_error = Ratio(lost, compressed);
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
