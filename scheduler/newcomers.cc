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
  for (const Member* member : former) {
    const bool lives = member->state == MemberState::kLive;
    if (lives && member->peer != PeerId{} && member->last_heard < held->since) {
      probes->push_back(member->peer);
    }
  }
  return true;
}

std::optional<Newcomers::Settled> Newcomers::TakeSettled(const MembershipTable& members,
                                                         SteadyTime heard_until) {
  for (size_t i = 0; i < newcomers_.size(); ++i) {
    const Newcomer& held = newcomers_[i];
    // A member heard after the newcomer came lives. The others were asked, and have the probe
    // timeout to answer.
    const bool is_silent = heard_until - held.since >= members.options().probe_timeout;
    const Member* gone = nullptr;
    bool waits = false;
    for (const Member* member : members.FormerSelves(held.header.register_())) {
      const bool is_lost = member->state == MemberState::kLost;
      if (!is_lost && member->last_heard >= held.since) continue;
      if (!member->IsGone() && !is_silent) {
        waits = true;
      } else if (gone == nullptr) {
        gone = member;
      }
    }
    if (!waits) return Take(i, gone);
  }
  return std::nullopt;
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
