// SPDX-License-Identifier: Apache-2.0
// The optimizer's state of a local store's tensors as the content of a file, in the format of the
// distributed stores (worker/saved/optimizer_states.h). Thread-safe.
#ifndef SLIMPS_WORKER_LOCAL_LOCAL_STATES_H_
#define SLIMPS_WORKER_LOCAL_LOCAL_STATES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "worker/local/local_rule.h"
#include "worker/local/local_tensor.h"

namespace slimps {

// Returns the content of the file: what the rule's optimizer keeps of these tensors. Throws
// std::bad_alloc.
std::string BuildLocalStates(const LocalRule& rule, const std::vector<LocalTensor*>& tensors);

// Replaces what the rule's optimizer keeps of these tensors. An error, or std::bad_alloc, leaves
// every tensor as it was.
// Errors: those of ParseOptimizerStates, CheckKeys and CheckOptimizer.
[[nodiscard]] absl::Status LoadLocalStates(std::string_view content, const LocalRule& rule,
                                           const std::vector<LocalTensor*>& tensors);

}  // namespace slimps

#endif  // SLIMPS_WORKER_LOCAL_LOCAL_STATES_H_
