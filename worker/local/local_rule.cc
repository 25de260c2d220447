// SPDX-License-Identifier: Apache-2.0
#include "worker/local/local_rule.h"

#include <utility>

#include "compress/kernels/update_plan.h"
#include "proto/base/status_macros.h"
#include "proto/optimizer_check.h"

namespace slimps {

LocalUpdaterOptions UpdaterOptionsOf(const wire::OptimizerSpec& spec) {
  return {.update = UpdateOptionsOf(spec), .learning_rate = spec.learning_rate()};
}

absl::StatusOr<std::shared_ptr<const LocalRule>> MakeLocalRule(const wire::OptimizerSpec& spec,
                                                               Updater updater) {
  SLIMPS_RETURN_IF_ERROR(ValidateOptimizer(spec));
  if (spec.kind() == wire::OptimizerSpec::ONEBIT_ADAM) {
    return absl::InvalidArgumentError(
        "optimizer onebit_adam: expected a dist_sync store; it compresses what workers exchange, "
        "and a local store exchanges nothing; use adamw");
  }
  SLIMPS_ASSIGN_OR_RETURN(LocalUpdater optimizer, LocalUpdater::Create(UpdaterOptionsOf(spec)));
  return std::make_shared<const LocalRule>(
      LocalRule{std::move(updater), spec, std::move(optimizer)});
}

}  // namespace slimps
