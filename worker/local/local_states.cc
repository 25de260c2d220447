// SPDX-License-Identifier: Apache-2.0
#include "worker/local/local_states.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "backup_model/local_updater.h"
#include "proto/base/buffer.h"
#include "proto/base/status_macros.h"
#include "worker/saved/optimizer_states.h"
#include "worker/tensor/key_table.h"

namespace slimps {
namespace {

LocalUpdaterState StateOf(const KeyState& key) {
  LocalUpdaterState state;
  state.steps = static_cast<int64_t>(key.updates);
  AlignedBuffer* const moments[] = {&state.first_moment, &state.second_moment};
  for (size_t i = 0; i < key.tensors.size(); ++i) {
    *moments[i] = AlignedBuffer::OfFloats(key.elements);
    std::ranges::copy(key.tensors[i], moments[i]->floats().begin());
  }
  return state;
}

}  // namespace

std::string BuildLocalStates(const LocalRule& rule, const std::vector<LocalTensor*>& tensors) {
  OptimizerStates states{.kind = rule.spec.kind(),
                         .tensors = static_cast<uint32_t>(rule.optimizer.state_tensors()),
                         .keys = {}};
  for (const LocalTensor* tensor : tensors) {
    const TensorPlan& plan = tensor->plan();
    KeyState& key = states.keys[plan.key.typed_name()];
    key.elements = plan.elements;
    key.tensors.assign(states.tensors, std::vector<float>(plan.elements));
    tensor->SaveState(states.kind, &key);  // else its state begins with zeros
  }
  return BuildOptimizerStates(states);
}

absl::Status LoadLocalStates(std::string_view content, const LocalRule& rule,
                             const std::vector<LocalTensor*>& tensors) {
  std::vector<const TensorPlan*> plans;
  for (const LocalTensor* tensor : tensors) plans.push_back(&tensor->plan());
  SLIMPS_ASSIGN_OR_RETURN(const OptimizerStates states, ParseOptimizerStates(content));
  SLIMPS_RETURN_IF_ERROR(CheckKeys(states, plans));
  SLIMPS_RETURN_IF_ERROR(CheckOptimizer(states, rule.spec.kind(),
                                        static_cast<uint32_t>(rule.optimizer.state_tensors())));
  // Makes all states before any tensor changes, so that an error leaves every tensor as it was.
  std::vector<LocalUpdaterState> made;
  for (const TensorPlan* plan : plans) {
    made.push_back(StateOf(states.keys.at(plan->key.typed_name())));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i]->SetState(rule.spec.kind(), std::move(made[i]));
  }
  return absl::OkStatus();
}

}  // namespace slimps
