// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/node_state.h"

#include "scheduler/watch/waits.h"

namespace slimps {

std::string_view StateOf(const NodeView& node, const TakenReport* report,
                         const std::set<NodePlace>& blamed, absl::Duration heartbeat_interval,
                         SteadyTime now) {
  switch (node.state) {
    case NodeView::State::kGone:
      return "gone";
    case NodeView::State::kAway:
      return "away";
    case NodeView::State::kLeft:
      return "left";
    case NodeView::State::kThere:
      break;
  }
  if (node.unheard >= kLateIntervals * heartbeat_interval || blamed.contains(node.place)) {
    return "slow";
  }
  if (report == nullptr || !report->report.activity().in_progress()) return "ok";
  const absl::Duration lasted =
      absl::Seconds(report->report.activity().seconds()) + (now - report->at);
  return lasted > absl::Seconds(1) + heartbeat_interval ? "waiting" : "ok";
}

}  // namespace slimps
