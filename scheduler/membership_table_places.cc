// SPDX-License-Identifier: Apache-2.0
// MembershipTable: who may register, and which place it gets.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/net/membership/node_name.h"
#include "scheduler/membership_table.h"

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

std::vector<const Member*> MembershipTable::FormerSelves(const wire::Register& registration) const {
  std::vector<const Member*> former;
  for (const auto& [place, member] : members_) {
    if (member.state == MemberState::kLeft || place.first != registration.role()) continue;
    if (complete_ && !MayReturn(member)) continue;
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
  const Member former = members_[place];
  Member& member = Seat(place, header, peer, now);
  member.entry.set_restarts(former.entry.restarts() + 1);
  member.has_pushed = former.has_pushed;
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

}  // namespace slimps
