// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/job_samples.h"

#include <algorithm>

#include "proto/net/membership/node_name.h"
#include "scheduler/watch/waits.h"
#include "watch/metrics.h"

namespace slimps {
namespace {

NodeSamples OfPlace(const NodePlace& place, const JobView& view, const ReportMap& reports,
                    const SchedulerCounts& counts) {
  NodeSamples samples{.role = RoleName(place.first), .rank = place.second, .report = {}};
  const auto node = std::ranges::find(view.nodes, place, &NodeView::place);
  const bool is_there = node != view.nodes.end() && node->state == NodeView::State::kThere;
  const bool is_up = is_there && node->unheard < kLateIntervals * counts.heartbeat_interval;
  if (is_there) {
    const auto taken = reports.find(place);
    if (taken != reports.end()) *samples.report.mutable_samples() = taken->second.report.samples();
    AddSample(Metric::kHeartbeatAge, {}, absl::ToDoubleSeconds(node->unheard), &samples.report);
  }
  AddSample(Metric::kNodeUp, {}, is_up ? 1 : 0, &samples.report);
  AddSample(Metric::kRestarts, {}, node == view.nodes.end() ? 0 : node->restarts, &samples.report);
  return samples;
}

}  // namespace

std::vector<NodeSamples> SamplesOf(const JobView& view, const ReportMap& reports,
                                   const wire::CodecMap* decision, const SchedulerCounts& counts) {
  std::vector<NodeSamples> all = {{.role = "scheduler", .rank = 0, .report = {}}};
  watch::NodeReport* const own = &all.front().report;
  AddSample(Metric::kJobAge, {}, absl::ToDoubleSeconds(counts.age), own);
  AddSample(Metric::kStalls, {}, static_cast<double>(counts.stalls), own);
  if (decision != nullptr && decision->has_threshold()) {
    AddSample(Metric::kThresholdBytes, {"push"}, static_cast<double>(decision->threshold_bytes()),
              own);
  }
  if (decision != nullptr && decision->has_pull_threshold()) {
    AddSample(Metric::kThresholdBytes, {"pull"},
              static_cast<double>(decision->pull_threshold_bytes()), own);
  }
  for (uint32_t rank = 0; rank < view.num_servers; ++rank) {
    all.push_back(OfPlace({wire::SERVER, rank}, view, reports, counts));
  }
  for (uint32_t rank = 0; rank < view.num_workers; ++rank) {
    all.push_back(OfPlace({wire::WORKER, rank}, view, reports, counts));
  }
  return all;
}

}  // namespace slimps
