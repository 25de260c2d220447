// SPDX-License-Identifier: Apache-2.0
// SchedulerState: what those who watch the job see of it.
#include <utility>

#include "scheduler/scheduler_state.h"

namespace slimps {
namespace {

NodeView ViewOf(const Member& member, SteadyTime now) {
  const wire::RosterEntry& entry = member.entry;
  const auto state = [&] {
    switch (member.state) {
      case MemberState::kLive:
        return NodeView::State::kThere;
      case MemberState::kLost:
        return member.away_epoch > 0 ? NodeView::State::kAway : NodeView::State::kGone;
      case MemberState::kLeft:
        return NodeView::State::kLeft;
    }
    return NodeView::State::kLeft;
  };
  return {.place = {entry.node().role(), entry.node().rank()},
          .host = entry.host(),
          .pid = entry.pid(),
          .restarts = entry.restarts(),
          .state = state(),
          .unheard = now - member.last_heard};
}

}  // namespace

std::vector<SchedulerState::Report> SchedulerState::TakeReports() {
  std::vector<Report> reports;
  for (auto& [place, report] : reports_) reports.push_back(std::move(report));
  reports_.clear();
  return reports;
}

JobView SchedulerState::View(SteadyTime now, uint64_t known_version) const {
  JobView view;
  view.id = options_.job_id;
  view.phase = phase_ == Phase::kDone && !result_.ok() ? Phase::kFailed : phase_;
  view.why = result_.ok() ? "" : result_.ToString();
  view.num_workers = options_.num_workers;
  view.num_servers = options_.num_servers;
  for (const auto& [place, member] : members_.all()) view.nodes.push_back(ViewOf(member, now));
  agreements_.AddTo(known_version, &view);
  view.refusals.assign(joining_.refusals().begin(), joining_.refusals().end());
  return view;
}

}  // namespace slimps
