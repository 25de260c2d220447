// SPDX-License-Identifier: Apache-2.0
#include "scheduler/membership_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/net/membership/node_name.h"

namespace slimps {
namespace {

// Bounds on what a registration brings, because everyone's roster carries it.
constexpr int kMaxEndpoints = 16;
constexpr size_t kMaxNameBytes = 255;  // of the host and of each endpoint

absl::Status CheckNames(const wire::Register& registration) {
  if (registration.endpoints_size() > kMaxEndpoints) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a node names at most ", kMaxEndpoints, " endpoints, got ", registration.endpoints_size()));
  }
  size_t longest = registration.host().size();
  for (const std::string& endpoint : registration.endpoints()) {
    longest = std::max(longest, endpoint.size());
  }
  if (longest <= kMaxNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a node's host and endpoints have at most ",
                                                 kMaxNameBytes, " bytes each, got ", longest));
}

}  // namespace

std::string Member::ToString() const {
  return absl::StrCat(NodeName(entry.node()), " (host ", entry.host(), ", pid ", entry.pid(), ")");
}

uint32_t MembershipTable::CountOfRole(wire::Role role) const {
  return role == wire::SERVER ? options_.num_servers : options_.num_workers;
}

Member* MembershipTable::FindIncarnation(const Incarnation& incarnation) {
  return const_cast<Member*>(HolderOf(incarnation));
}

absl::Status MembershipTable::CheckRegistration(const wire::Header& header) const {
  const wire::Register& registration = header.register_();
  if (header.job_id() != options_.job_id) {
    // The error does not name the right job: that would let a stranger in.
    return absl::FailedPreconditionError(
        "this scheduler runs another job: name the same --job_id, or start a second one");
  }
  if (!IncarnationOf(header).is_set()) {
    return absl::InvalidArgumentError("a node must name its incarnation, got none");
  }
  if (registration.role() != wire::SERVER && registration.role() != wire::WORKER) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a server or a worker, got ", RoleName(registration.role())));
  }
  if (registration.num_workers() != options_.num_workers ||
      registration.num_servers() != options_.num_servers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "wrong counts: the scheduler's job has ", CountOf(options_.num_workers, wire::WORKER),
        " and ", CountOf(options_.num_servers, wire::SERVER), ", the ",
        RoleName(registration.role()), " was told ",
        CountOf(registration.num_workers(), wire::WORKER), " and ",
        CountOf(registration.num_servers(), wire::SERVER)));
  }
  if (registration.role() == wire::SERVER && registration.endpoints().empty()) {
    return absl::InvalidArgumentError("a server must name at least one endpoint, got none");
  }
  return CheckNames(registration);
}

const Member* MembershipTable::HolderOf(const Incarnation& incarnation) const {
  if (!incarnation.is_set()) return nullptr;  // as that of a worker that is away
  for (const auto& [place, member] : members_) {
    if (IncarnationOf(member.entry) == incarnation) return &member;
  }
  return nullptr;
}

std::vector<const Member*> MembershipTable::FormerSelves(const wire::Register& registration) const {
  std::vector<const Member*> former;
  for (const auto& [place, member] : members_) {
    if (member.state == MemberState::kLeft || place.first != registration.role()) continue;
    if (complete_ && !MayReturn(member.entry.node())) continue;
    const bool is_wanted = registration.wanted_rank() >= 0;
    if (is_wanted ? place.second == static_cast<uint32_t>(registration.wanted_rank())
                  : member.entry.host() == registration.host()) {
      former.push_back(&member);
    }
  }
  return former;
}

absl::StatusOr<uint32_t> MembershipTable::ChooseRank(const wire::Register& registration) const {
  const wire::Role role = registration.role();
  const uint32_t count = CountOfRole(role);
  if (registration.wanted_rank() >= 0) {
    const uint32_t wanted = static_cast<uint32_t>(registration.wanted_rank());
    if (wanted >= count) {
      return absl::InvalidArgumentError(absl::StrCat("wanted rank ", wanted, ", but the job has ",
                                                     CountOf(count, role), " (ranks from 0)"));
    }
    const auto taken = members_.find({role, wanted});
    if (taken == members_.end()) return wanted;
    return absl::AlreadyExistsError(
        absl::StrCat("rank ", wanted, " is taken by ", taken->second.ToString()));
  }
  for (uint32_t rank = 0; rank < count; ++rank) {
    if (!members_.contains({role, rank})) return rank;
  }
  return absl::ResourceExhaustedError(absl::StrCat("the job has ", CountOf(count, role), ", and ",
                                                   count == 1 ? "it is" : "all are",
                                                   " there already"));
}

absl::StatusOr<const Member*> MembershipTable::Register(const wire::Header& header, PeerId peer,
                                                        SteadyTime now) {
  SLIMPS_RETURN_IF_ERROR(CheckRegistration(header));
  const wire::Register& registration = header.register_();
  Member* known = FindIncarnation(IncarnationOf(header));
  if (known != nullptr) {
    if (known->entry.node().role() != registration.role()) {
      return absl::InvalidArgumentError(
          absl::StrCat("this process is registered as ", known->ToString()));
    }
    SLIMPS_RETURN_IF_ERROR(Hear(peer, now, known));
    return known;
  }
  if (registration.restored() && !complete_) {
    return absl::FailedPreconditionError(
        "goes on from a snapshot of this job, which has not begun: give another --job_id, or "
        "remove what an earlier job left in --snapshot_dir");
  }
  SLIMPS_ASSIGN_OR_RETURN(const uint32_t rank, ChooseRank(registration));
  Member& member = Seat({registration.role(), rank}, header, peer, now);
  if (members_.size() == size_t{options_.num_workers} + options_.num_servers) complete_ = true;
  return &member;
}

absl::StatusOr<const Member*> MembershipTable::Replace(const wire::Header& header, PeerId peer,
                                                       SteadyTime now) {
  SLIMPS_RETURN_IF_ERROR(CheckRegistration(header));
  const wire::Register& registration = header.register_();
  const Place place = {registration.role(), static_cast<uint32_t>(registration.wanted_rank())};
  const uint32_t restarts = members_[place].entry.restarts();
  const bool has_pushed = members_[place].has_pushed;
  Member& member = Seat(place, header, peer, now);
  member.entry.set_restarts(restarts + 1);
  member.has_pushed = has_pushed;
  return &member;
}

Member& MembershipTable::Seat(const Place& place, const wire::Header& header, PeerId peer,
                              SteadyTime now) {
  const wire::Register& registration = header.register_();
  Member& member = members_[place];
  member = {.peer = peer, .last_heard = now, .answered = now};
  member.entry.mutable_node()->set_role(place.first);
  member.entry.mutable_node()->set_rank(place.second);
  *member.entry.mutable_endpoints() = registration.endpoints();
  member.entry.set_host(registration.host());
  member.entry.set_pid(registration.pid());
  const auto key = options_.public_keys.find(place);
  if (key != options_.public_keys.end()) member.entry.set_public_key(key->second);
  SetIncarnation(IncarnationOf(header), &member.entry);
  member.seated_epoch = ++epoch_;
  return member;
}

const Member* MembershipTable::GoneTogether(const wire::NodeRef& node) const {
  const Member* const self = Find({node.role(), node.rank()});
  for (const auto& [place, member] : members_) {
    if (place.first == node.role() || !member.IsGone()) continue;
    const auto has_saved = [](const Member& server, const Member& worker) {
      return worker.entry.away() && server.saved_epoch >= worker.away_epoch;
    };
    if (self == nullptr || (!has_saved(*self, member) && !has_saved(member, *self))) return &member;
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
    if (member.state == MemberState::kLost && !MayStayAway(member.entry.node()) &&
        now - member.lost_at > options_.restart_timeout) {
      return &member;
    }
  }
  return nullptr;
}

const Member* MembershipTable::StaysAway(SteadyTime now) const {
  for (const auto& [place, member] : members_) {
    if (member.state == MemberState::kLost && MayStayAway(member.entry.node()) &&
        !member.entry.away() && now - member.lost_at > options_.worker_timeout) {
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
  ++epoch_;
}

bool MembershipTable::MayStayAway(const wire::NodeRef& node) const {
  const Member* const member = Find({node.role(), node.rank()});
  return node.role() == wire::WORKER && options_.worker_timeout > absl::ZeroDuration() &&
         member != nullptr && member->has_pushed;
}

bool MembershipTable::NoteDone(const wire::NodeRef& node, const wire::Heartbeat& heartbeat) {
  Member& member = members_.at({node.role(), node.rank()});
  // Nobody has seen a later roster.
  const uint64_t epoch = std::min(heartbeat.saved_epoch(), epoch_);
  const bool saved_more = epoch > member.saved_epoch;
  if (saved_more) member.saved_epoch = epoch;
  const bool begins = heartbeat.has_pushed() && !std::exchange(member.has_pushed, true);
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
