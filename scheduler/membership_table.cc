// SPDX-License-Identifier: Apache-2.0
#include "scheduler/membership_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/net/membership/node_name.h"

namespace slimps {
std::string Member::ToString() const {
  return absl::StrCat(NodeName(entry.node()), " (host ", entry.host(), ", pid ", entry.pid(), ")");
}

uint32_t MembershipTable::CountOfRole(wire::Role role) const {
  return role == wire::SERVER ? options_.num_servers : options_.num_workers;
}

Member* MembershipTable::FindIncarnation(const Incarnation& incarnation) {
  return const_cast<Member*>(HolderOf(incarnation));
}

const Member* MembershipTable::HolderOf(const Incarnation& incarnation) const {
  if (!incarnation.is_set()) return nullptr;  // as that of a worker that is away
  for (const auto& [place, member] : members_) {
    if (IncarnationOf(member.entry) == incarnation) return &member;
  }
  return nullptr;
}

const Member* MembershipTable::AwayBeforeSavedBy(const Member& server) const {
  if (server.entry.node().role() != wire::SERVER) return nullptr;
  for (const auto& [place, member] : members_) {
    if (member.entry.away() && server.saved_epoch < member.away_epoch) return &member;
  }
  return nullptr;
}

const Member* MembershipTable::NotReplayedBy(const Member& worker) const {
  const bool keeps_pushes = worker.entry.node().role() == wire::WORKER &&
                            worker.state != MemberState::kLeft && !worker.entry.away();
  if (!keeps_pushes) return nullptr;
  const uint64_t replayed = std::max(worker.saved_epoch, worker.seated_epoch);
  for (const auto& [place, server] : members_) {
    const bool is_new = place.first == wire::SERVER && server.entry.restarts() > 0;
    if (is_new && server.seated_epoch > replayed) return &server;
  }
  return nullptr;
}

bool MembershipTable::MustWait(const Member& gone, SteadyTime since) const {
  if (!complete_ || gone.entry.node().role() != wire::WORKER) return false;
  if (NotReplayedBy(gone) != nullptr) return false;  // in vain: its place cannot be taken
  return std::ranges::any_of(members_, [&](const auto& one) {
    const Member& other = one.second;
    if (one.first.first == wire::WORKER) return NotReplayedBy(other) != nullptr;
    return other.IsGone() || other.answered < since;
  });
}

void MembershipTable::Lose(const wire::NodeRef& node, SteadyTime now) {
  const auto found = members_.find({node.role(), node.rank()});
  if (found == members_.end() || found->second.state != MemberState::kLive) return;
  found->second.state = MemberState::kLost;
  found->second.lost_at = now;
}

const Member* MembershipTable::GivenUp(SteadyTime now) const {
  for (const auto& [place, member] : members_) {
    if (member.state == MemberState::kLost && !MayStayAway(member) &&
        now - member.lost_at > options_.restart_timeout) {
      return &member;
    }
  }
  return nullptr;
}

const Member* MembershipTable::StaysAway(SteadyTime now) const {
  for (const auto& [place, member] : members_) {
    if (member.state == MemberState::kLost && MayStayAway(member) && !member.entry.away() &&
        now - member.lost_at > options_.worker_timeout) {
      return &member;
    }
  }
  return nullptr;
}

void MembershipTable::SetAway(const wire::NodeRef& node) {
  Member& member = members_.at({node.role(), node.rank()});
  member.state = MemberState::kLost;
  member.entry.set_away(true);
  SetIncarnation({}, &member.entry);
  member.away_epoch = ++epoch_;
}

absl::StatusOr<const Member*> MembershipTable::Heard(const wire::Header& header, PeerId peer,
                                                     SteadyTime now) {
  Member* member =
      header.job_id() == options_.job_id ? FindIncarnation(IncarnationOf(header)) : nullptr;
  if (member == nullptr) return absl::NotFoundError("not registered with this scheduler");
  SLIMPS_RETURN_IF_ERROR(Hear(peer, now, member));
  // Only the answer to a probe has no sequence number (MembershipState::AnswerProbe).
  if (header.has_heartbeat() && header.heartbeat().sequence() == 0) member->answered = now;
  return member;
}

absl::Status MembershipTable::Hear(PeerId peer, SteadyTime now, Member* member) {
  if (member->peer != peer) {
    if (!member->claim.has_value()) {
      member->claim = {.peer = peer, .since = now};
      // Asks at the old connection once. If the node lives there, it is heard, which voids the
      // claim.
      if (!member->connection_gone) probes_.push_back(member->peer);
    }
    if (!member->connection_gone) {
      return absl::UnavailableError(
          absl::StrCat(member->ToString(), " is being asked at its other connection"));
    }
    TakeOver(member);
  }
  member->claim.reset();
  member->last_heard = now;
  if (member->state == MemberState::kLost) member->state = MemberState::kLive;  // it was only slow
  return absl::OkStatus();
}

void MembershipTable::TakeOver(Member* member) {
  member->peer = member->claim->peer;
  member->last_heard = member->claim->since;
  member->connection_gone = false;
  member->claim.reset();
}

void MembershipTable::ConnectionGone(PeerId peer) {
  for (auto& [place, member] : members_) {
    if (member.peer != peer) continue;
    member.connection_gone = true;
    if (member.claim.has_value()) TakeOver(&member);
  }
}

void MembershipTable::LoseConnections(SteadyTime now) {
  for (auto& [place, member] : members_) {
    member.peer = PeerId{};
    member.connection_gone = true;
    member.last_heard = now;
  }
}

bool MembershipTable::IsConnected(PeerId peer) const {
  return std::ranges::any_of(members_, [peer](const auto& one) { return one.second.peer == peer; });
}

void MembershipTable::SettleClaims(SteadyTime now) {
  for (auto& [place, member] : members_) {
    if (member.claim.has_value() && now - member.claim->since >= options_.probe_timeout) {
      TakeOver(&member);
    }
  }
}

void MembershipTable::Leave(const wire::NodeRef& node) {
  if (!complete_) {
    Remove(node);
    return;
  }
  const auto found = members_.find({node.role(), node.rank()});
  if (found == members_.end() || found->second.state == MemberState::kLeft) return;
  found->second.state = MemberState::kLeft;
  found->second.entry.set_ended(true);
  ++epoch_;
}

bool MembershipTable::NoteDone(const wire::NodeRef& node, const wire::Heartbeat& heartbeat) {
  Member& member = members_.at({node.role(), node.rank()});
  // Nobody has seen a later roster.
  const uint64_t epoch = std::min(heartbeat.saved_epoch(), epoch_);
  const bool saved_more = epoch > member.saved_epoch;
  if (saved_more) member.saved_epoch = epoch;
  const bool begins = heartbeat.has_pushed() && !std::exchange(member.has_pushed, true);
  if (begins) {
    all_have_pushed_ = complete_ && std::ranges::all_of(members_, [](const auto& one) {
                         return one.first.first != wire::WORKER || one.second.has_pushed;
                       });
  }
  return saved_more || begins;
}

void MembershipTable::Remove(const wire::NodeRef& node) {
  if (members_.erase({node.role(), node.rank()}) > 0) ++epoch_;
}

std::vector<Member> MembershipTable::Overdue(SteadyTime now) const {
  std::vector<Member> overdue;
  for (const auto& [place, member] : members_) {
    if (member.state == MemberState::kLive &&
        now - member.last_heard > options_.heartbeat_timeout) {
      overdue.push_back(member);
    }
  }
  return overdue;
}

bool MembershipTable::AllLeft(wire::Role role) const {
  if (!complete_ || !AnyLeft(role)) return false;
  for (const auto& [place, member] : members_) {
    if (place.first != role || member.state == MemberState::kLeft || member.entry.away()) continue;
    return false;
  }
  return true;
}

bool MembershipTable::AnyLeft(wire::Role role) const {
  return std::ranges::any_of(members_, [role](const auto& one) {
    return one.first.first == role && one.second.state == MemberState::kLeft;
  });
}

uint32_t MembershipTable::CountPresent(wire::Role role) const {
  return static_cast<uint32_t>(std::ranges::count_if(members_, [role](const auto& one) {
    return one.first.first == role && one.second.state != MemberState::kLeft &&
           !one.second.entry.away();
  }));
}

const Member* MembershipTable::Find(const Place& place) const {
  const auto found = members_.find(place);
  return found == members_.end() ? nullptr : &found->second;
}

std::vector<Member> MembershipTable::LiveMembers() const {
  std::vector<Member> live;
  for (const auto& [place, member] : members_) {
    if (member.state == MemberState::kLive) live.push_back(member);
  }
  return live;
}

wire::Roster MembershipTable::Roster() const {
  wire::Roster roster;
  roster.set_epoch(epoch_);
  roster.set_num_workers(options_.num_workers);
  roster.set_num_servers(options_.num_servers);
  for (const auto& [place, member] : members_) *roster.add_nodes() = member.entry;
  return roster;
}

wire::Roster MembershipTable::RosterFor(const Member& reader) const {
  const wire::Role role = reader.entry.node().role();
  wire::Roster roster = Roster();
  for (wire::RosterEntry& entry : *roster.mutable_nodes()) {
    if (!complete_) {
      wire::RosterEntry name;
      *name.mutable_node() = entry.node();
      entry = std::move(name);
    } else if (role != wire::SERVER || entry.node().role() != wire::WORKER) {
      SetIncarnation({}, &entry);
    }
  }
  return roster;
}

}  // namespace slimps
