// SPDX-License-Identifier: Apache-2.0
// Says in one word how each node of a job does. Pure.
#ifndef SLIMPS_SCHEDULER_WATCH_NODE_STATE_H_
#define SLIMPS_SCHEDULER_WATCH_NODE_STATE_H_

#include <set>
#include <string_view>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "scheduler/watch/job_view.h"
#include "scheduler/watch/node_reports.h"

namespace slimps {

// Returns one of:
//   ok
//   slow     it was not heard in time, or a stall names it
//   waiting  its call has lasted for over a second
//   gone     its place waits for a new process
//   away     the job goes on without it
//   left     it has said goodbye
// `report` may be null.
std::string_view StateOf(const NodeView& node, const TakenReport* report,
                         const std::set<NodePlace>& blamed, absl::Duration heartbeat_interval,
                         SteadyTime now);

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_WATCH_NODE_STATE_H_
