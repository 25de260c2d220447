// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/kvstore.h"
#include "worker/tensor/value_check.h"

namespace slimps {

absl::Status KVStore::PushSum(const Key& key, std::span<const std::span<const float>> gradients,
                              int priority) {
  const absl::Status valid = CheckDevices(key, gradients);
  if (!valid.ok()) return valid;
  if (gradients.size() == 1) return Push(key, gradients[0], priority);
  std::vector<float> sum(gradients[0].size());
  SumDevices(gradients, sum);
  return Push(key, sum, priority);
}

absl::Status KVStore::SetUpdater(Updater) {
  return absl::UnimplementedError(absl::StrCat("an updater needs a local store, not ", type(),
                                               ": the weights are with the servers, which run "
                                               "optimizers; set one of those (set_optimizer)"));
}

}  // namespace slimps
