#include "scheduler/barrier.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "proto/net/membership/node_name.h"
#include "proto/status_proto.h"

namespace slimps {
namespace {

bool InGroup(wire::Role group, wire::Role role) {
  return group == wire::ROLE_UNSPECIFIED || group == role;
}

}  // namespace

absl::StatusOr<std::vector<BarrierTable::Release>> BarrierTable::Arrive(
    const Node& node, const wire::Barrier& barrier) {
  const wire::Role group = barrier.group();
  if (group == wire::SCHEDULER || !InGroup(group, node.first)) {
    return absl::InvalidArgumentError(
        absl::StrCat("barrier \"", barrier.name(), "\" is for group ", RoleName(group), ", which ",
                     NodeName(node.first, node.second), " is not of"));
  }
  const auto newest = newest_.find(barrier.name());
  if (newest != newest_.end() && barrier.ticket() == newest->second.ticket()) {
    return std::vector<Release>{{newest->second, {node}}};
  }
  if (newest != newest_.end() && barrier.ticket() < newest->second.ticket()) {
    return absl::FailedPreconditionError(
        absl::StrCat("barrier \"", barrier.name(), "\": ", NodeName(node.first, node.second),
                     " comes with number ", barrier.ticket(), ", the newest released is ",
                     newest->second.ticket()));
  }
  const Id id = {barrier.name(), barrier.ticket()};
  if (!open_.contains(id) && (open_.size() >= options_.max_open ||
                              (newest == newest_.end() && newest_.size() >= options_.max_names))) {
    return absl::ResourceExhaustedError(
        absl::StrCat("barrier \"", barrier.name(), "\": ", newest_.size(), " names and ",
                     open_.size(), " open barriers are as many as are allowed"));
  }
  open_[id].try_emplace(
      node, Visit{group, std::vector<double>(barrier.values().begin(), barrier.values().end())});
  return OpenIfComplete(id);
}

std::vector<BarrierTable::Release> BarrierTable::Leave(const Node& node) {
  left_.insert(node);
  std::vector<Id> ids;
  for (const auto& [id, visits] : open_) ids.push_back(id);
  std::vector<Release> releases;
  for (const Id& id : ids) {
    for (Release& release : OpenIfComplete(id)) releases.push_back(std::move(release));
  }
  return releases;
}

bool BarrierTable::IsComplete(const Visits& visits) const {
  const wire::Role group = visits.begin()->second.group;
  const auto came = [&](wire::Role role, uint32_t count) {
    if (!InGroup(group, role)) return true;
    for (uint32_t rank = 0; rank < count; ++rank) {
      if (!visits.contains({role, rank}) && !left_.contains({role, rank})) return false;
    }
    return true;
  };
  return came(wire::SERVER, options_.num_servers) && came(wire::WORKER, options_.num_workers);
}

BarrierTable::Release BarrierTable::Open(const Id& id, const Visits& visits) {
  Release release;
  release.message.set_name(id.first);
  release.message.set_ticket(id.second);
  const auto& [first_node, first] = *visits.begin();
  absl::Status status;
  std::vector<double> sums(first.values.size(), 0.0);
  for (const auto& [node, visit] : visits) {
    release.to.push_back(node);
    if (visit.group != first.group || visit.values.size() != first.values.size()) {
      status = absl::InvalidArgumentError(absl::StrCat(
          "barrier \"", id.first, "\": ", NodeName(node.first, node.second), " comes for group ",
          RoleName(visit.group), " with ", visit.values.size(), " values, expected as ",
          NodeName(first_node.first, first_node.second), " does: group ", RoleName(first.group),
          " with ", first.values.size(), " values"));
      continue;
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += visit.values[i];
  }
  for (size_t i = 0; status.ok() && i < sums.size(); ++i) {
    if (std::isfinite(sums[i])) continue;
    status = absl::OutOfRangeError(
        absl::StrCat("barrier \"", id.first, "\": the sum of value ", i, " is ", sums[i]));
  }
  *release.message.mutable_status() = ToStatusProto(status);
  if (status.ok()) release.message.mutable_sums()->Add(sums.begin(), sums.end());
  return release;
}

std::vector<BarrierTable::Release> BarrierTable::OpenIfComplete(const Id& id) {
  const auto found = open_.find(id);
  if (found == open_.end()) return {};
  // Nodes that disagree on the group would wait for different sets: nobody can make that complete.
  bool disagree = false;
  for (const auto& [node, visit] : found->second) {
    disagree |= visit.group != found->second.begin()->second.group;
  }
  if (!disagree && !IsComplete(found->second)) return {};
  Release release = Open(id, found->second);
  newest_[id.first] = release.message;
  open_.erase(found);
  return {std::move(release)};
}

}  // namespace slimps
