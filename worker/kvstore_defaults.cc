// SPDX-License-Identifier: Apache-2.0
// What stores do that do not say otherwise.
#include <string>
#include <utility>
#include <vector>

#include "worker/kvstore.h"
#include "worker/tensor/value_check.h"

namespace slimps {

absl::Status KVStore::PushSum(const Key& key, std::span<const std::span<const float>> gradients,
                              int priority) {
  if (const absl::Status valid = CheckDevices(key, gradients); !valid.ok()) return valid;
  if (gradients.size() == 1) return Push(key, gradients[0], priority);
  std::vector<float> sum(gradients[0].size());
  SumDevices(gradients, sum);
  return Push(key, sum, priority);
}

void KVStore::PullOnto(const Key& key, std::span<float> weights, int priority,
                       std::function<void(absl::Status)> done) {
  PullAsync(key, weights, priority, std::move(done));
}

absl::Status KVStore::PushRowSparse(const Key& /*key*/, std::span<const int64_t> /*rows*/,
                                    std::span<const float> /*values*/, int /*priority*/) {
  return absl::UnimplementedError(type() + " stores take no row-sparse pushes");
}

absl::Status KVStore::PullRows(const Key& /*key*/, std::span<const int64_t> /*row_ids*/,
                               std::vector<int64_t>* /*rows*/, std::vector<float>* /*values*/,
                               int /*priority*/) {
  return absl::UnimplementedError(type() + " stores pull no rows");
}

absl::Status KVStore::SetHyper(const Key& /*key*/, std::optional<Hyper> /*hyper*/) {
  return absl::UnimplementedError(type() + " stores take no hyperparameters by key");
}

absl::Status KVStore::SetClipped(const Key& /*key*/, bool /*clipped*/) {
  return absl::InvalidArgumentError("clip_norm in a " + type() +
                                    " store: expected dist_sync, whose workers have rounds in "
                                    "common that have a mean gradient");
}

void KVStore::ClipRound(std::span<const Key> keys, double /*max_norm*/, ClippedNorm* /*out*/,
                        std::function<void(absl::Status)> done) {
  done(keys.empty() ? absl::OkStatus() : SetClipped(keys[0], true));
}

absl::Status KVStore::SetUpdater(Updater /*updater*/) {
  return absl::UnimplementedError("an updater needs a local store, not " + type() +
                                  ": the weights are with the servers, which run optimizers; set "
                                  "one of those (set_optimizer)");
}

absl::StatusOr<std::string> KVStore::SaveOptimizerStates() {
  return absl::UnimplementedError(type() + " stores keep no optimizer states");
}

absl::Status KVStore::LoadOptimizerStates(std::string_view /*content*/) {
  return absl::UnimplementedError(type() + " stores keep no optimizer states");
}

absl::Status KVStore::PullOptimizerStates(std::span<const Key> /*keys*/,
                                          std::span<LentOptimizerState> /*states*/) {
  return absl::UnimplementedError(type() + " stores give optimizer states as a whole alone");
}

absl::Status KVStore::PutOptimizerStates(std::span<const Key> /*keys*/,
                                         std::span<const LentOptimizerState> /*states*/,
                                         absl::Status /*mine*/) {
  return absl::UnimplementedError(type() + " stores take optimizer states as a whole alone");
}

absl::StatusOr<std::string> KVStore::SaveResiduals() {
  return absl::UnimplementedError(type() + " stores save no residuals");
}

absl::Status KVStore::LoadResiduals(std::string_view /*content*/) {
  return absl::UnimplementedError(type() + " stores load no residuals");
}

absl::Status KVStore::Save(const std::string& /*folder*/,
                           absl::StatusOr<std::string_view> /*own_state*/) {
  return absl::UnimplementedError(type() + " stores save no checkpoints");
}

absl::StatusOr<LoadedCheckpoint> KVStore::Load(const std::string& /*folder*/) {
  return absl::UnimplementedError(type() + " stores load no checkpoints");
}

absl::Status KVStore::SetPolicy(std::string_view policy) {
  if (policy == KVStoreOptions().policy) return absl::OkStatus();
  return absl::UnimplementedError("policy " + std::string(policy) + ": expected threshold in a " +
                                  type() +
                                  " store; nothing travels there that a policy could adapt");
}

}  // namespace slimps
