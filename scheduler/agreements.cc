// SPDX-License-Identifier: Apache-2.0
#include "scheduler/agreements.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/net/membership/node_name.h"
#include "proto/status_proto.h"

namespace slimps {

Agreements::Agreements(uint32_t num_workers, uint32_t num_servers)
    : placement_({.num_workers = num_workers, .num_servers = num_servers}),
      barriers_({.num_workers = num_workers, .num_servers = num_servers}),
      decision_(num_workers),
      compressions_(num_workers) {}

bool Agreements::Handle(const Member& member, const wire::Header& header,
                        const MembershipTable& members, Outbox* out) {
  if (header.has_barrier()) return HandleBarrier(member, header, members, out);
  if (header.has_declare_keys()) return HandleDeclare(member, header, members, out);
  return HandleReport(member, header, members, out);
}

bool Agreements::HandleBarrier(const Member& member, const wire::Header& header,
                               const MembershipTable& members, Outbox* out) {
  const wire::NodeRef& node = member.entry.node();
  if (members.all_have_pushed()) barriers_.NoteAllHavePushed();
  absl::StatusOr<std::vector<BarrierTable::Release>> releases =
      members.complete()
          ? barriers_.Arrive({node.role(), node.rank()}, header.barrier())
          : absl::FailedPreconditionError("a barrier was called before all nodes had joined");
  if (releases.ok()) {
    SendReleases(*std::move(releases), members, out);
    return true;
  }
  wire::Header refused;
  refused.set_request_id(header.request_id());
  refused.mutable_barrier_release()->set_name(header.barrier().name());
  refused.mutable_barrier_release()->set_ticket(header.barrier().ticket());
  refused.mutable_barrier_release()->set_newest(barriers_.NewestOver(header.barrier().name()));
  *refused.mutable_barrier_release()->mutable_status() = ToStatusProto(releases.status());
  out->push_back({member.peer, std::move(refused)});
  return false;
}

bool Agreements::HandleDeclare(const Member& member, const wire::Header& header,
                               const MembershipTable& members, Outbox* out) {
  const wire::NodeRef& node = member.entry.node();
  absl::StatusOr<std::vector<PlacementTable::Answer>> answers =
      node.role() == wire::WORKER
          ? placement_.Declare(node.rank(), header.request_id(), header.declare_keys())
          : absl::InvalidArgumentError(
                absl::StrCat("only workers declare keys, got ", NodeName(node)));
  if (answers.ok()) {
    compressions_.Note(node.rank(), header.declare_keys().compression());
    SendPlacements(*std::move(answers), members, out);
    return true;
  }
  out->push_back({member.peer, ErrorReply(answers.status(), header.request_id())});
  return false;
}

void Agreements::SendPlacements(std::vector<PlacementTable::Answer> answers,
                                const MembershipTable& members, Outbox* out) const {
  for (PlacementTable::Answer& answer : answers) {
    const Member* member = members.Find({wire::WORKER, answer.worker});
    if (member == nullptr || member->state == MemberState::kLeft) continue;
    wire::Header reply;
    reply.set_request_id(answer.request);
    wire::Placement* placement = reply.mutable_placement();
    if (answer.placement.ok()) {
      *placement = *std::move(answer.placement);
      placement->set_differing_compression(compressions_.differences());
    } else {
      *placement->mutable_status() = ToStatusProto(answer.placement.status());
    }
    out->push_back({member->peer, std::move(reply)});
  }
}

bool Agreements::HandleReport(const Member& member, const wire::Header& header,
                              const MembershipTable& members, Outbox* out) {
  const wire::NodeRef& node = member.entry.node();
  const uint64_t version = DecidedVersion();
  const absl::Status status = node.role() == wire::WORKER
                                  ? decision_.Add(node.rank(), header.threshold_report())
                                  : absl::InvalidArgumentError(absl::StrCat(
                                        "only workers report thresholds, got ", NodeName(node)));
  if (!status.ok()) {
    out->push_back({member.peer, ErrorReply(status, header.request_id())});
    return false;
  }
  if (header.request_id() != 0) out->push_back({member.peer, AckReply(header.request_id())});
  if (DecidedVersion() != version) {
    BroadcastDecision(members, out);
    return true;
  }
  // Version g + 1 answers generation g.
  if (DecidedVersion() <= header.threshold_report().generation()) return true;
  wire::Header again;  // it reported again, so it missed the broadcast
  *again.mutable_codec_map() = *decision_.decision();
  out->push_back({member.peer, std::move(again)});
  return false;
}

uint64_t Agreements::DecidedVersion() const {
  return decision_.decision().has_value() ? decision_.decision()->version() : 0;
}

void Agreements::BroadcastDecision(const MembershipTable& members, Outbox* out) const {
  wire::Header header;
  *header.mutable_codec_map() = *decision_.decision();
  for (const Member& member : members.LiveMembers()) {
    if (member.entry.node().role() == wire::WORKER) out->push_back({member.peer, header});
  }
}

void Agreements::Leave(const wire::NodeRef& node, const MembershipTable& members, Outbox* out) {
  SendPlacements(placement_.Leave(node.rank()), members, out);
  SetAway(node, members, out);
}

void Agreements::SetAway(const wire::NodeRef& node, const MembershipTable& members, Outbox* out) {
  SendReleases(barriers_.Leave({node.role(), node.rank()}), members, out);
  const uint64_t version = DecidedVersion();
  decision_.Leave(node.rank());
  if (DecidedVersion() != version) BroadcastDecision(members, out);
}

void Agreements::Return(const wire::NodeRef& node) {
  if (node.role() != wire::WORKER) return;
  barriers_.Return({node.role(), node.rank()});
  decision_.Return(node.rank());
}

void Agreements::AddTo(uint64_t known_version, JobView* view) const {
  view->barriers = barriers_.Open();
  view->undeclared = placement_.FindUndeclared();
  for (const uint32_t rank : decision_.Unreported()) {
    view->unreported.emplace_back(wire::WORKER, rank);
  }
  if (DecidedVersion() > known_version) view->decision = decision_.decision();
}

void Agreements::SendReleases(std::vector<BarrierTable::Release> releases,
                              const MembershipTable& members, Outbox* out) {
  for (const BarrierTable::Release& release : releases) {
    for (const Member& member : members.LiveMembers()) {
      const BarrierTable::Node place = {member.entry.node().role(), member.entry.node().rank()};
      if (!std::ranges::binary_search(release.to, place)) continue;
      wire::Header header;
      *header.mutable_barrier_release() = release.message;
      out->push_back({member.peer, std::move(header)});
    }
  }
}

}  // namespace slimps
