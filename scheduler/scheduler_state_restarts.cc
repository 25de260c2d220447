// SPDX-License-Identifier: Apache-2.0
// SchedulerState: nodes that are gone and started again, and the scheduler's own restart.
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/simulation/mutant.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/net/membership/node_name.h"
#include "scheduler/scheduler_state.h"

namespace slimps {

void SchedulerState::Lose(const Member& member, const std::string& reason, SteadyTime now,
                          Outbox* out) {
  const wire::NodeRef node = member.entry.node();  // a copy: `member` may be the table's own
  if (!members_.MayReturn(member)) {
    const bool is_worker =
        node.role() == wire::WORKER && options_.worker_timeout == absl::ZeroDuration();
    return Fail(node,
                absl::StrCat(reason, is_worker ? "; jobs with --worker_timeout or launch --restart "
                                                 "outlive a worker"
                                               : ""),
                now, out);
  }
  joining_.Awaited(
      reason, members_.MayStayAway(member) ? options_.worker_timeout : options_.restart_timeout);
  members_.Lose(node, now);
}

Outbox SchedulerState::WorkerEnded(uint32_t rank, uint64_t pid, SteadyTime now) {
  Outbox out;
  const Member* const member = members_.Find({wire::WORKER, rank});
  if (member != nullptr && (member->state == MemberState::kLeft || member->away_epoch > 0 ||
                            member->entry.pid() != pid)) {
    return out;
  }
  wire::NodeRef node;
  node.set_role(wire::WORKER);
  node.set_rank(rank);
  Fail(node,
       member == nullptr
           ? absl::StrCat(NodeName(node),
                          " has ended before all nodes had joined: does its program make a store "
                          "(in Python slimps.kv.create, DistributedOptimizer or CommHookState)?")
           : absl::StrCat(member->ToString(),
                          " has ended without closing its store: by os._exit, exec, or in a child "
                          "process that had the store"),
       now, &out);
  return out;
}

void SchedulerState::LeaveBehind(SteadyTime now, SteadyTime heard_until, Outbox* out) {
  while (const Member* const gone = members_.StaysAway(heard_until)) {
    if (FailIfPushesAreLost(*gone, now, out)) return;
    const wire::NodeRef node = gone->entry.node();
    const std::string who = gone->ToString();
    const bool is_last = members_.CountPresent(wire::WORKER) == 1;
    if (is_last && !members_.AnyLeft(wire::WORKER)) {
      return Fail(node, absl::StrCat(who, " is gone, and no worker is left"), now, out);
    }
    joining_.LeftBehind(*gone, options_.worker_timeout);
    Note(*gone, wire::Header(), JournalEntry::Kind::kAway);
    members_.SetAway(node);
    told_at_epoch_ = members_.epoch();
    agreements_.SetAway(node, members_, out);
    for (const Member& reader : members_.LiveMembers()) SendRoster(reader, out);
  }
  EndIfAllLeft(now, out);
}

void SchedulerState::Replace(const Newcomers::Settled& settled, SteadyTime now, Outbox* out) {
  joining_.Replaced(*settled.gone);
  if (FailIfPushesAreLost(*settled.gone, now, out)) return;
  wire::Header header = settled.header;
  header.mutable_register_()->set_wanted_rank(
      static_cast<int32_t>(settled.gone->entry.node().rank()));
  const absl::StatusOr<const Member*> member = members_.Replace(header, settled.from, now);
  if (!member.ok()) {
    out->push_back(RefuseStranger(settled.from, member.status(), header.request_id()));
    return;
  }
  told_at_epoch_ = members_.epoch();
  agreements_.Return((*member)->entry.node());
  joining_.Joined(**member, MissingNodes(members_.Roster()));
  Note(**member, header, JournalEntry::Kind::kTakesPlace);
  Welcome(settled.from, header.request_id(), **member, out);
  for (const Member& reader : members_.LiveMembers()) SendRoster(reader, out);
}

// Silence is no evidence that memory is lost. So this is asked where a new process takes the place
// of `gone`, or the place is given up, and not when `gone` falls silent.
bool SchedulerState::FailIfPushesAreLost(const Member& gone, SteadyTime now, Outbox* out) {
  std::string why;
  if (const Member* const worker = members_.AwayBeforeSavedBy(gone); worker != nullptr) {
    why = absl::StrCat(gone.ToString(), " and ", worker->ToString(),
                       " are gone together, and with them pushes that no snapshot has");
  } else if (const Member* const server = members_.NotReplayedBy(gone); server != nullptr) {
    why = absl::StrCat(gone.ToString(), " is gone, and had not sent ", server->ToString(),
                       ", which was started again, all the pushes that its snapshot lacks");
  }
  if (why.empty()) return false;
  const wire::NodeRef node = gone.entry.node();  // a copy: `gone` may be the table's own
  Fail(node, why, now, out);
  return true;
}

void SchedulerState::Note(const Member& member, const wire::Header& header,
                          JournalEntry::Kind kind) {
  if (!options_.has_journal) return;
  const bool takes_place = kind == JournalEntry::Kind::kTakesPlace;
  if (takes_place && simulation::Is(Mutant::kForgottenJournalEntry)) return;
  JournalEntry& entry = entries_.emplace_back(JournalEntry{header, kind});
  *entry.header.mutable_sender() = member.entry.node();
  if (!header.has_register_()) return;
  entry.header.mutable_register_()->set_wanted_rank(
      static_cast<int32_t>(member.entry.node().rank()));
}

absl::Status SchedulerState::Restore(const std::vector<JournalEntry>& entries, SteadyTime now) {
  Outbox unsent;  // whoever waits for an answer asks again
  for (const JournalEntry& entry : entries) {
    const wire::Header& header = entry.header;
    const wire::NodeRef& node = header.sender();
    if (header.has_register_()) {
      const bool takes_place = entry.kind == JournalEntry::Kind::kTakesPlace;
      // While the job formed, the process that had this place was gone.
      if (!takes_place && !members_.complete()) members_.Remove(node);
      const auto member = takes_place ? members_.Replace(header, PeerId{}, now)
                                      : members_.Register(header, PeerId{}, now);
      SLIMPS_RETURN_IF_ERROR(Prefixed(member.status(), "a node in the journal"));
      if (takes_place) {
        told_at_epoch_ = members_.epoch();
        agreements_.Return(node);
      }
      continue;
    }
    const Member* member = members_.Find({node.role(), node.rank()});
    if (member == nullptr) {
      return absl::DataLossError(
          absl::StrCat("the journal has a message of ", NodeName(node), ", which never joined"));
    }
    if (entry.kind == JournalEntry::Kind::kAway) {
      members_.SetAway(node);
      told_at_epoch_ = members_.epoch();
      agreements_.SetAway(node, members_, &unsent);
    } else if (header.has_goodbye()) {
      members_.Leave(node);
      if (members_.complete()) agreements_.Leave(node, members_, &unsent);
    } else if (header.has_heartbeat()) {
      members_.NoteDone(node, header.heartbeat());
    } else {
      agreements_.Handle(*member, header, members_, &unsent);
    }
  }
  members_.LoseConnections(now);
  if (members_.complete()) phase_ = Phase::kRunning;
  if (members_.AllLeft(wire::WORKER)) {
    phase_ = Phase::kEnding;
    deadline_ = now + options_.shutdown_grace;
    repeat_at_ = now;
  }
  joining_.Take();
  return absl::OkStatus();
}

}  // namespace slimps
