// SPDX-License-Identifier: Apache-2.0
#include "worker/local/local_rule.h"

#include <utility>

#include "proto/base/status_macros.h"
#include "proto/optimizer_check.h"

namespace slimps {
namespace {

LocalOptimizer KindOf(wire::OptimizerSpec::Kind kind) {
  switch (kind) {
    case wire::OptimizerSpec::TEST:
      return LocalOptimizer::kAdd;
    case wire::OptimizerSpec::SGD:
      return LocalOptimizer::kSgd;
    case wire::OptimizerSpec::ADAM:
      return LocalOptimizer::kAdam;
    case wire::OptimizerSpec::ADAMW:
      return LocalOptimizer::kAdamW;
    default:
      return LocalOptimizer::kAssign;
  }
}

}  // namespace

LocalUpdaterOptions UpdaterOptionsOf(const wire::OptimizerSpec& spec) {
  LocalUpdaterOptions options{.optimizer = KindOf(spec.kind()),
                              .learning_rate = spec.learning_rate(),
                              .weight_decay = spec.weight_decay(),
                              .rescale_grad = spec.rescale_grad() == 0 ? 1 : spec.rescale_grad(),
                              .clip_gradient = spec.clip_gradient()};
  if (spec.kind() == wire::OptimizerSpec::SGD) {
    options.momentum = spec.momentum();
    options.nesterov = spec.nesterov();
  } else if (spec.kind() == wire::OptimizerSpec::ADAM ||
             spec.kind() == wire::OptimizerSpec::ADAMW) {
    options.beta1 = spec.beta1();
    options.beta2 = spec.beta2();
    options.epsilon = spec.epsilon();
  }
  return options;
}

absl::StatusOr<std::shared_ptr<const LocalRule>> MakeLocalRule(const wire::OptimizerSpec& spec,
                                                               Updater updater) {
  SLIMPS_RETURN_IF_ERROR(ValidateOptimizer(spec));
  SLIMPS_ASSIGN_OR_RETURN(LocalUpdater optimizer, LocalUpdater::Create(UpdaterOptionsOf(spec)));
  return std::make_shared<const LocalRule>(
      LocalRule{std::move(updater), spec, std::move(optimizer)});
}

}  // namespace slimps
