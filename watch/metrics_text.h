// SPDX-License-Identifier: Apache-2.0
// Writes metrics of nodes in Prometheus' text format.
//
//   MetricsText({{.role = "worker", .rank = 0, .report = report}});
//   // # HELP slimps_round Newest round ...
//   // # TYPE slimps_round gauge
//   // slimps_round{role="worker",rank="0"} 7
#ifndef SLIMPS_WATCH_METRICS_TEXT_H_
#define SLIMPS_WATCH_METRICS_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "watch/node_report.pb.h"

namespace slimps {

inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// What is exported for one node.
struct NodeSamples {
  std::string role;
  uint32_t rank = 0;
  watch::NodeReport report;  // its samples; none twice
};

// Leaves out samples that no metric has or whose labels are not its metric's. Thread-safe.
std::string MetricsText(const std::vector<NodeSamples>& nodes);

}  // namespace slimps

#endif  // SLIMPS_WATCH_METRICS_TEXT_H_
