// SPDX-License-Identifier: Apache-2.0
#include "scheduler/newcomers.h"

#include <algorithm>
#include <utility>

#include "proto/incarnation.h"

namespace slimps {

bool Newcomers::Hold(PeerId from, const wire::Header& header, SteadyTime now,
                     const MembershipTable& members, std::vector<PeerId>* probes) {
  const Incarnation incarnation = IncarnationOf(header);
  if (members.Knows(incarnation) || !members.CheckRegistration(header).ok()) return false;
  const std::vector<const Member*> former = members.FormerSelves(header.register_());
  if (former.empty()) return false;
  auto held = std::ranges::find_if(
      newcomers_, [&](const Newcomer& one) { return IncarnationOf(one.header) == incarnation; });
  if (held == newcomers_.end()) {
    if (newcomers_.size() >= most_) return false;
    held = newcomers_.insert(held, {.from = from, .header = header, .since = now});
  }
  held->from = from;
  held->heard = now;
  for (const Member* member : former) {
    const bool lives = member->state == MemberState::kLive;
    if (lives && member->peer != PeerId{} && member->answered < held->since) {
      probes->push_back(member->peer);
    }
  }
  if (!members.complete() || header.register_().role() != wire::WORKER) return true;
  for (const Member& member : members.LiveMembers()) {
    const bool is_server = member.entry.node().role() == wire::SERVER;
    if (is_server && member.peer != PeerId{} && member.answered < held->since) {
      probes->push_back(member.peer);
    }
  }
  return true;
}

bool Newcomers::WaitFor(const Member& gone, const MembershipTable& members) const {
  return std::ranges::any_of(newcomers_, [&](const Newcomer& one) {
    const std::vector<const Member*> former = members.FormerSelves(one.header.register_());
    return std::ranges::find(former, &gone) != former.end();
  });
}

std::optional<Newcomers::Settled> Newcomers::TakeSettled(const MembershipTable& members,
                                                         SteadyTime heard_until) {
  std::erase_if(newcomers_, [&](const Newcomer& one) {
    return heard_until - one.heard > members.options().heartbeat_timeout;
  });
  for (size_t i = 0; i < newcomers_.size(); ++i) {
    const Newcomer& held = newcomers_[i];
    // The members were asked, and have the probe timeout to answer. What else is heard of one may
    // be older than its death, and counts only if that time brings no better news.
    const bool time_is_over = heard_until - held.since >= members.options().probe_timeout;
    const Member* gone = nullptr;
    bool waits = false;
    for (const Member* member : members.FormerSelves(held.header.register_())) {
      const SteadyTime lived_at = time_is_over ? member->last_heard : member->answered;
      if (!member->IsGone() && lived_at >= held.since) continue;
      if (!member->IsGone() && !time_is_over) {
        waits = true;
      } else if (gone == nullptr) {
        gone = member;
      }
    }
    if (gone != nullptr && members.MustWait(*gone, held.since)) waits = true;
    if (!waits) return Take(i, gone);
  }
  return std::nullopt;
}

void Newcomers::WaitAnew(wire::Role role, SteadyTime now) {
  for (Newcomer& one : newcomers_) {
    // Later than the registration, which says nothing of the time in which that one waited.
    if (one.header.register_().role() == role) one.since = now + absl::Nanoseconds(1);
  }
}

std::optional<Newcomers::Settled> Newcomers::TakeAny() {
  if (newcomers_.empty()) return std::nullopt;
  return Take(0, /*gone=*/nullptr);
}

Newcomers::Settled Newcomers::Take(size_t index, const Member* gone) {
  const auto newcomer = newcomers_.begin() + static_cast<ptrdiff_t>(index);
  Settled settled{.from = newcomer->from, .header = std::move(newcomer->header), .gone = gone};
  newcomers_.erase(newcomer);
  return settled;
}

}  // namespace slimps
