// SPDX-License-Identifier: Apache-2.0
// Membership: barriers, and sums over the nodes that come to one.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/net/membership/membership.h"

namespace slimps {
namespace {

// How long the scheduler may take to say how a barrier ended that this node gave up.
constexpr absl::Duration kAnswerPatience = absl::Seconds(5);

}  // namespace

absl::Status Membership::Barrier(const std::string& name, wire::Role group,
                                 absl::Duration timeout) {
  return BarrierSum({.name = name, .group = group, .purpose = {}, .values = {}}, timeout).status();
}

std::optional<absl::StatusOr<std::vector<double>>> Membership::AwaitBarrier(
    const MembershipState::BarrierId& id, SteadyTime deadline) {
  MutexLock lock(&mutex_);
  while (!state_.BarrierResult(id).has_value() && options_.clock->Now() < deadline) {
    changed_.WaitFor(&mutex_, deadline - options_.clock->Now());
  }
  return state_.BarrierResult(id);
}

absl::StatusOr<std::vector<double>> Membership::BarrierSum(const BarrierVisit& visit,
                                                           absl::Duration timeout) {
  for (size_t i = 0; i < visit.values.size(); ++i) {
    if (!std::isfinite(visit.values[i])) {
      return absl::InvalidArgumentError(absl::StrCat("sum \"", visit.name, "\": value ", i, " is ",
                                                     visit.values[i], "; expected finite values"));
    }
  }
  const SteadyTime deadline = options_.clock->Now() + timeout;
  MembershipState::BarrierId id;
  MembershipState::Actions actions;
  {
    MutexLock lock(&mutex_);
    if (state_.phase() != MembershipState::Phase::kMember) {
      return absl::FailedPreconditionError(
          absl::StrCat("barrier \"", visit.name, "\": this node is not in the job"));
    }
    actions = state_.StartBarrier(visit, options_.clock->Now(), &id);
  }
  Carry(std::move(actions));

  std::optional<absl::StatusOr<std::vector<double>>> result = AwaitBarrier(id, deadline);
  if (!result.has_value()) {
    {
      MutexLock lock(&mutex_);
      actions = state_.GiveUpBarrier(id, timeout, options_.clock->Now());
    }
    Carry(std::move(actions));
    // The last node may have come meanwhile. The scheduler's answer holds for all nodes.
    result = AwaitBarrier(id, options_.clock->Now() + kAnswerPatience);
  }
  MutexLock lock(&mutex_);
  state_.ForgetBarrier(id);
  if (result.has_value()) return *std::move(result);
  return absl::DeadlineExceededError(absl::StrCat("barrier \"", visit.name, "\" number ", id.ticket,
                                                  ": not all nodes came within ",
                                                  absl::FormatDuration(timeout), ", and scheduler ",
                                                  options_.scheduler_address, " does not say who"));
}

}  // namespace slimps
