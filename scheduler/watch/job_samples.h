// SPDX-License-Identifier: Apache-2.0
// The metrics that the scheduler exports: its own, those about each node, and those that the nodes
// have reported. Pure.
#ifndef SLIMPS_SCHEDULER_WATCH_JOB_SAMPLES_H_
#define SLIMPS_SCHEDULER_WATCH_JOB_SAMPLES_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/watch/job_view.h"
#include "scheduler/watch/node_reports.h"
#include "watch/metrics_text.h"

namespace slimps {

struct SchedulerCounts {
  absl::Duration age;
  absl::Duration heartbeat_interval;
  uint64_t stalls = 0;
};

// `decision` may be null.
std::vector<NodeSamples> SamplesOf(const JobView& view, const ReportMap& reports,
                                   const wire::CodecMap* decision, const SchedulerCounts& counts);

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_WATCH_JOB_SAMPLES_H_
