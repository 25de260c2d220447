// SPDX-License-Identifier: Apache-2.0
#include "worker/store/saving/residual_transfer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "worker/saved/residuals.h"

namespace slimps {

std::vector<const TensorPlan*> ResidualTransfer::KeysWithStates() const {
  std::vector<const TensorPlan*> keys = keys_->InNameOrder();
  for (const TensorPlan* key : tensors_->phases()->MemoryKeys()) keys.push_back(key);
  std::ranges::sort(keys, {}, [](const TensorPlan* one) { return one->key.typed_name(); });
  return keys;
}

absl::StatusOr<std::string> ResidualTransfer::Save() {
  SLIMPS_RETURN_IF_ERROR(tensors_->Wait());
  std::string content;
  wire::SavedPolicy policy;
  CompressionPlan* const plan = codecs_->plan();
  if (plan->adapts()) {
    SLIMPS_ASSIGN_OR_RETURN(policy, plan->SavePolicy(keys_->MaxPushedRounds(), options_.timeout));
  }
  SLIMPS_RETURN_IF_ERROR(tensors_->UseStates([&](StateStore& states, LevelProbe& probe) {
    const auto build = [&]() -> absl::Status {
      if (plan->adapts()) probe.Save(&policy);
      std::string progress;
      if (!policy.SerializeToString(&progress)) {
        return absl::ResourceExhaustedError(
            absl::StrCat("saving residuals: what policy ", policy.policy(), " has measured takes ",
                         policy.ByteSizeLong(), " bytes, expected under 2 GiB"));
      }
      content = BuildResiduals(KeysWithStates(), options_.grad_scale, states, progress);
      return absl::OkStatus();
    };
    return OrOutOfMemory(build, "saving residuals");
  }));
  return content;
}

absl::StatusOr<ResidualTransfer::Loaded> ResidualTransfer::Parse(std::string_view content) const {
  SLIMPS_RETURN_IF_ERROR(tensors_->Wait());
  Loaded loaded;
  std::string progress;
  const auto parse = [&] {
    return ParseResiduals(content, KeysWithStates(), options_.grad_scale, loaded.states.get(),
                          &progress);
  };
  SLIMPS_RETURN_IF_ERROR(OrOutOfMemory(parse, "loading residuals"));
  if (!loaded.policy.ParseFromString(progress)) {
    return absl::InvalidArgumentError("residuals: the policy: expected a wire::SavedPolicy");
  }
  if (const uint64_t pushed = keys_->MaxPushedRounds();
      pushed > 0 && loaded.policy.decisions_size() > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "residuals with what policy ", loaded.policy.policy(), " has decided: expected to be ",
        "loaded before the first push, got ", pushed, " rounds pushed"));
  }
  return loaded;
}

absl::Status ResidualTransfer::Use(Loaded loaded, uint64_t rounds_pushed) {
  // Its rounds were written down as those of a job whose first push is of round 1.
  wire::SavedPolicy& policy = loaded.policy;
  policy.set_rounds(policy.rounds() - std::min(policy.rounds(), rounds_pushed));
  for (wire::CodecMap& map : *policy.mutable_decisions()) {
    map.set_from_round(map.from_round() + rounds_pushed);
  }
  return tensors_->UseStates([&](StateStore& states, LevelProbe& probe) -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(codecs_->ResumePolicy(policy, &probe));
    states.ReplaceBy(std::move(*loaded.states));
    return absl::OkStatus();
  });
}

}  // namespace slimps
