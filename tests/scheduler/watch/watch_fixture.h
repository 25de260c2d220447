// SPDX-License-Identifier: Apache-2.0
// A job of two workers and two servers as tests of scheduler/watch see it.
#ifndef SLIMPS_TESTS_SCHEDULER_WATCH_WATCH_FIXTURE_H_
#define SLIMPS_TESTS_SCHEDULER_WATCH_WATCH_FIXTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/watch/job_view.h"
#include "watch/metrics.h"
#include "watch/node_report.pb.h"

namespace slimps {

inline constexpr NodePlace kWorker0 = {wire::WORKER, 0};
inline constexpr NodePlace kWorker1 = {wire::WORKER, 1};
inline constexpr NodePlace kServer0 = {wire::SERVER, 0};
inline constexpr NodePlace kServer1 = {wire::SERVER, 1};

inline JobView RunningJob() {
  JobView view;
  view.id = "job";
  view.phase = JobView::Phase::kRunning;
  view.num_workers = 2;
  view.num_servers = 2;
  uint64_t pid = 10;
  for (const NodePlace& place : {kServer0, kServer1, kWorker0, kWorker1}) {
    view.nodes.push_back({.place = place, .host = "alpha", .pid = pid++});
  }
  return view;
}

inline NodeView* NodeOf(const NodePlace& place, JobView* view) {
  for (NodeView& node : view->nodes) {
    if (node.place == place) return &node;
  }
  return nullptr;
}

inline watch::OpenRounds Round(uint64_t round, double seconds,
                               const std::vector<std::string>& tensors,
                               const std::vector<uint32_t>& missing) {
  watch::OpenRounds open;
  open.set_round(round);
  open.set_seconds(seconds);
  open.mutable_tensors()->Assign(tensors.begin(), tensors.end());
  open.mutable_missing()->Assign(missing.begin(), missing.end());
  open.set_partitions(tensors.size());
  return open;
}

inline watch::NodeReport Call(const std::string& call, double seconds, const std::string& where,
                              uint64_t round = 0) {
  watch::NodeReport report;
  report.mutable_activity()->set_call(call);
  report.mutable_activity()->set_seconds(seconds);
  report.mutable_activity()->set_where(where);
  report.mutable_activity()->set_round(round);
  return report;
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_SCHEDULER_WATCH_WATCH_FIXTURE_H_
