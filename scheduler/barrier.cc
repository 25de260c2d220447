// SPDX-License-Identifier: Apache-2.0
#include "scheduler/barrier.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/net/membership/node_name.h"
#include "proto/status_proto.h"

namespace slimps {
namespace {

bool InGroup(wire::Role group, wire::Role role) {
  return group == wire::ROLE_UNSPECIFIED || group == role;
}

std::string Name(const BarrierTable::Node& node) { return NodeName(node.first, node.second); }

// Returns what a call is, without what its caller gave it: that may have changed since.
std::string_view CallOf(std::string_view purpose) { return purpose.substr(0, purpose.find(": ")); }

std::string Which(const std::string& name, uint64_t ticket) {
  return absl::StrCat("barrier \"", name, "\" number ", ticket, ": ");
}

}  // namespace

size_t BarrierTable::BytesToRemember(const wire::Barrier& barrier) {
  if (barrier.values().empty() && barrier.purpose().empty()) return 0;
  return sizeof(Remembered) + barrier.purpose().size() +
         static_cast<size_t>(barrier.values_size()) * sizeof(double);
}

void BarrierTable::NoteAllHavePushed() {
  if (!std::exchange(all_have_pushed_, true)) remembers_ = std::min(remembers_, kBytesOfTraining);
}

absl::Status BarrierTable::CheckVisit(const Node& node, const wire::Barrier& barrier) const {
  const wire::Role group = barrier.group();
  if (group == wire::SCHEDULER || !InGroup(group, node.first)) {
    return absl::InvalidArgumentError(absl::StrCat("barrier \"", barrier.name(), "\" is for group ",
                                                   RoleName(group), ", which ", Name(node),
                                                   " is not of"));
  }
  const auto check = [&](const char* what, const std::string& text, size_t most) {
    if (text.size() <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("the ", what, " of a barrier of ", Name(node),
                                                   " has ", text.size(), " bytes, at most ", most,
                                                   " are allowed"));
  };
  SLIMPS_RETURN_IF_ERROR(check("name", barrier.name(), options_.max_name_bytes));
  return check("purpose", barrier.purpose(), options_.max_purpose_bytes);
}

absl::StatusOr<std::vector<BarrierTable::Release>> BarrierTable::Arrive(
    const Node& node, const wire::Barrier& barrier) {
  SLIMPS_RETURN_IF_ERROR(CheckVisit(node, barrier));
  const Id id = {barrier.name(), barrier.ticket()};
  if (!open_.contains(id)) {
    const auto newest = newest_.find(barrier.name());
    if (newest != newest_.end() && barrier.ticket() <= newest->second.release.message.ticket()) {
      return AnswerLate(node, barrier, newest->second);
    }
    if (open_.size() >= options_.max_open ||
        (newest == newest_.end() && newest_.size() >= options_.max_names)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("barrier \"", barrier.name(), "\": ", newest_.size(), " names and ",
                       open_.size(), " open barriers are as many as are allowed"));
    }
  }
  Visits& visits = open_[id];
  visits.try_emplace(node,
                     Visit{barrier.group(), barrier.purpose(),
                           std::vector<double>(barrier.values().begin(), barrier.values().end()),
                           BytesToRemember(barrier)});
  const absl::Status agreed = CheckAgreement(id, visits, node);
  if (!agreed.ok()) return std::vector<Release>{End(id, agreed, std::nullopt)};
  if (IsComplete(visits)) return std::vector<Release>{End(id, absl::OkStatus(), std::nullopt)};
  if (barrier.gave_up_after_ms() == 0) return std::vector<Release>{};
  return std::vector<Release>{GiveUp(id, {node, absl::Milliseconds(barrier.gave_up_after_ms())})};
}

absl::StatusOr<std::vector<BarrierTable::Release>> BarrierTable::AnswerLate(
    const Node& node, const wire::Barrier& barrier, const Over& over) const {
  const wire::BarrierRelease& newest = over.release.message;
  const std::string which = Which(barrier.name(), barrier.ticket());
  const auto remembered = remembered_.find({barrier.name(), barrier.ticket()});
  if (barrier.ticket() < newest.ticket() && remembered != remembered_.end()) {
    if (CallOf(barrier.purpose()) == CallOf(remembered->second.purpose)) {
      return std::vector<Release>{{remembered->second.release, {node}}};
    }
    return absl::InvalidArgumentError(absl::StrCat(which, Name(node), " comes for ",
                                                   barrier.purpose(), ", which was for ",
                                                   remembered->second.purpose));
  }
  if (barrier.ticket() < newest.ticket() && BytesToRemember(barrier) == 0 && !over.any_failed) {
    Release opened{.message = newest, .to = {node}};
    opened.message.set_ticket(barrier.ticket());
    opened.message.set_newest(newest.ticket());
    opened.message.clear_sums();
    return std::vector<Release>{std::move(opened)};
  }
  if (barrier.ticket() < newest.ticket()) {
    return absl::FailedPreconditionError(
        absl::StrCat(which, Name(node), " comes too late, number ", newest.ticket(), " is over",
                     newest.status().code() == 0 ? "" : " too: ", newest.status().message(),
                     over.any_failed ? "" : ", and the sums of this one are not kept any more"));
  }
  if (over.given_up.has_value() && !std::ranges::binary_search(over.release.to, node)) {
    return absl::FailedPreconditionError(
        absl::StrCat(which, Name(node), " comes too late: ", Name(over.given_up->by),
                     " waited for ", absl::FormatDuration(over.given_up->after), " and gave up"));
  }
  return std::vector<Release>{{newest, {node}}};
}

std::vector<BarrierTable::Release> BarrierTable::Leave(const Node& node) {
  left_.insert(node);
  std::vector<Id> complete;
  for (const auto& [id, visits] : open_) {
    if (IsComplete(visits)) complete.push_back(id);
  }
  std::vector<Release> releases;
  for (const Id& id : complete) releases.push_back(End(id, absl::OkStatus(), std::nullopt));
  return releases;
}

std::vector<wire::BarrierTicket> BarrierTable::Tickets() const {
  std::vector<wire::BarrierTicket> tickets;
  for (const auto& [name, over] : newest_) {
    wire::BarrierTicket& ticket = tickets.emplace_back();
    ticket.set_name(name);
    ticket.set_ticket(over.release.message.ticket());
  }
  return tickets;
}

uint64_t BarrierTable::NewestOver(const std::string& name) const {
  const auto newest = newest_.find(name);
  return newest == newest_.end() ? 0 : newest->second.release.message.ticket();
}

std::vector<OpenBarrier> BarrierTable::Open() const {
  std::vector<OpenBarrier> all;
  for (const auto& [id, visits] : open_) {
    const Visit& visit = visits.begin()->second;
    all.push_back({id.first, id.second, visit.purpose, !visit.values.empty(), Missing(visits)});
  }
  return all;
}

bool BarrierTable::IsComplete(const Visits& visits) const {
  const wire::Role group = visits.begin()->second.group;
  size_t there = visits.size();
  for (const Node& node : left_) {
    if (InGroup(group, node.first) && !visits.contains(node)) ++there;
  }
  return there == (InGroup(group, wire::SERVER) ? options_.num_servers : 0) +
                      (InGroup(group, wire::WORKER) ? options_.num_workers : 0);
}

std::vector<BarrierTable::Node> BarrierTable::Missing(const Visits& visits) const {
  const wire::Role group = visits.begin()->second.group;
  std::vector<Node> missing;
  const auto add = [&](wire::Role role, uint32_t count) {
    if (!InGroup(group, role)) return;
    for (uint32_t rank = 0; rank < count; ++rank) {
      const Node node{role, rank};
      if (!visits.contains(node) && !left_.contains(node)) missing.push_back(node);
    }
  };
  add(wire::SERVER, options_.num_servers);
  add(wire::WORKER, options_.num_workers);
  return missing;
}

absl::Status BarrierTable::CheckAgreement(const Id& id, const Visits& visits,
                                          const Node& newcomer) {
  if (visits.size() < 2) return absl::OkStatus();
  const auto first = visits.begin();
  const auto other = first->first == newcomer ? std::next(first) : visits.find(newcomer);
  const Visit& wanted = first->second;
  const Visit& got = other->second;
  if (got.group == wanted.group && got.purpose == wanted.purpose &&
      got.values.size() == wanted.values.size()) {
    return absl::OkStatus();
  }
  const auto describe = [](const Visit& visit) {
    return absl::StrCat(visit.purpose.empty() ? "" : "for ", visit.purpose,
                        visit.purpose.empty() ? "" : ", ", "group ", RoleName(visit.group),
                        ", with ", visit.values.size(), " values");
  };
  return absl::InvalidArgumentError(absl::StrCat(Which(id.first, id.second), Name(other->first),
                                                 " comes ", describe(got), "; expected as ",
                                                 Name(first->first), " comes: ", describe(wanted)));
}

BarrierTable::Release BarrierTable::End(const Id& id, const absl::Status& decided,
                                        std::optional<GivenUp> given_up) {
  const Visits visits = std::move(open_.extract(id).mapped());
  Release release;
  absl::Status status = decided;
  std::vector<double> sums(visits.begin()->second.values.size(), 0.0);
  // Visits are in rank order, so the sums always have the same bits.
  for (const auto& [node, visit] : visits) {
    release.to.push_back(node);
    for (size_t i = 0; status.ok() && i < sums.size(); ++i) sums[i] += visit.values[i];
  }
  for (size_t i = 0; status.ok() && i < sums.size(); ++i) {
    if (std::isfinite(sums[i])) continue;
    status = absl::OutOfRangeError(
        absl::StrCat("barrier \"", id.first, "\": the sum of value ", i, " is ", sums[i]));
  }
  release.message.set_name(id.first);
  release.message.set_ticket(id.second);
  *release.message.mutable_status() = ToStatusProto(status);
  if (status.ok()) release.message.mutable_sums()->Add(sums.begin(), sums.end());
  // A lost visit may keep an older ticket open for longer than a newer one.
  const uint64_t newest = std::max(NewestOver(id.first), id.second);
  release.message.set_newest(newest);
  Over& over = newest_[id.first];
  over.any_failed |= !status.ok();
  if (newest == id.second) {
    over.release = release;
    over.given_up = given_up;
  }
  const Visit& visit = visits.begin()->second;
  if (status.ok() && visit.bytes_to_remember > 0 && visit.bytes_to_remember <= remembers_) {
    remembers_ -= visit.bytes_to_remember;
    remembered_[id] = {visit.purpose, release.message};
  }
  return release;
}

BarrierTable::Release BarrierTable::GiveUp(const Id& id, const GivenUp& given_up) {
  const absl::Status status = absl::DeadlineExceededError(
      absl::StrCat(Which(id.first, id.second), Name(given_up.by), " waited ",
                   absl::FormatDuration(given_up.after), " for ", NodeNames(Missing(open_.at(id))),
                   " and gave up"));
  return End(id, status, given_up);
}

}  // namespace slimps
