// SPDX-License-Identifier: Apache-2.0
// LocalStore: saves and loads the optimizer's state, in the file format of the distributed stores.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "worker/local/local_store.h"
#include "worker/saved/optimizer_states.h"

namespace slimps {
namespace {

constexpr char kSaving[] = "saving optimizer states";
constexpr char kLoading[] = "loading optimizer states";

// Returns the first moment for `number` 0, else the second.
AlignedBuffer& MomentOf(LocalUpdaterState& state, size_t number) {
  return number == 0 ? state.first_moment : state.second_moment;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const LocalRule>> LocalStore::OptimizerInForce(
    const char* what) const {
  if (IsInUpdater()) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": an updater must not call its store"));
  }
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(first_error_);
  if (rule_->spec.kind() == wire::OptimizerSpec::NONE) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": expected an optimizer, got ",
                     rule_->updater != nullptr ? "an updater, whose state is its own" : "none"));
  }
  return rule_;
}

absl::StatusOr<std::string> LocalStore::SaveOptimizerStates() {
  SLIMPS_ASSIGN_OR_RETURN(const std::shared_ptr<const LocalRule> rule, OptimizerInForce(kSaving));
  const auto save = [&]() -> absl::StatusOr<std::string> {
    OptimizerStates states{.kind = rule->spec.kind(),
                           .tensors = static_cast<uint32_t>(rule->optimizer.state_tensors()),
                           .keys = {}};
    for (const TensorPlan* plan : keys_.WithElements()) {
      KeyState& key = states.keys[plan->key.typed_name()];
      key.elements = plan->elements;
      key.tensors.assign(states.tensors, std::vector<float>(plan->elements));
      Tensor& tensor = TensorOf(*plan);
      MutexLock lock(&tensor.mutex);
      if (tensor.state_of != states.kind) continue;  // its state begins with zeros
      key.updates = static_cast<uint64_t>(tensor.state.steps);
      for (uint32_t i = 0; i < states.tensors; ++i) {
        std::ranges::copy(MomentOf(tensor.state, i).floats(), key.tensors[i].begin());
      }
    }
    return BuildOptimizerStates(states);
  };
  return OrOutOfMemory(save, kSaving);
}

absl::Status LocalStore::LoadOptimizerStates(std::string_view content) {
  SLIMPS_ASSIGN_OR_RETURN(const std::shared_ptr<const LocalRule> rule, OptimizerInForce(kLoading));
  const std::vector<const TensorPlan*> plans = keys_.WithElements();
  std::vector<LocalUpdaterState> made;
  // Makes all states before any tensor changes, so that an error leaves every tensor as it was.
  const auto make = [&]() -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const OptimizerStates states, ParseOptimizerStates(content));
    SLIMPS_RETURN_IF_ERROR(CheckKeys(states, plans));
    SLIMPS_RETURN_IF_ERROR(CheckOptimizer(states, rule->spec.kind(),
                                          static_cast<uint32_t>(rule->optimizer.state_tensors())));
    for (const TensorPlan* plan : plans) {
      const KeyState& key = states.keys.at(plan->key.typed_name());
      LocalUpdaterState& state = made.emplace_back();
      state.steps = static_cast<int64_t>(key.updates);
      for (uint32_t i = 0; i < states.tensors; ++i) {
        AlignedBuffer& moment = MomentOf(state, i);
        moment = AlignedBuffer::OfFloats(plan->elements);
        std::ranges::copy(key.tensors[i], moment.floats().begin());
      }
    }
    return absl::OkStatus();
  };
  SLIMPS_RETURN_IF_ERROR(OrOutOfMemory(make, kLoading));
  for (size_t i = 0; i < plans.size(); ++i) {
    Tensor& tensor = TensorOf(*plans[i]);
    MutexLock lock(&tensor.mutex);
    tensor.state = std::move(made[i]);
    tensor.state_of = rule->spec.kind();
  }
  return absl::OkStatus();
}

}  // namespace slimps
