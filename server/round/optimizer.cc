// SPDX-License-Identifier: Apache-2.0
#include "server/round/optimizer.h"

#include "proto/base/status_macros.h"
#include "proto/learning_rate.h"
#include "proto/optimizer_check.h"

namespace slimps {
namespace {

UpdateKind KindOf(wire::OptimizerSpec::Kind kind) {
  switch (kind) {
    case wire::OptimizerSpec::TEST:
      return UpdateKind::kAdd;
    case wire::OptimizerSpec::SGD:
      return UpdateKind::kSgd;
    case wire::OptimizerSpec::ADAM:
      return UpdateKind::kAdam;
    case wire::OptimizerSpec::ADAMW:
      return UpdateKind::kAdamW;
    default:  // the store keeps the sum
      return UpdateKind::kAssign;
  }
}

UpdateOptions OptionsOf(const wire::OptimizerSpec& spec) {
  return {.kind = KindOf(spec.kind()),
          .momentum = spec.momentum(),
          .nesterov = spec.nesterov(),
          .weight_decay = spec.weight_decay(),
          .beta1 = spec.beta1(),
          .beta2 = spec.beta2(),
          .epsilon = spec.epsilon(),
          .scale = spec.rescale_grad() == 0 ? 1 : spec.rescale_grad(),
          .clip = spec.clip_gradient()};
}

}  // namespace

Optimizer::Optimizer(const wire::OptimizerSpec& spec) : spec_(spec), options_(OptionsOf(spec)) {}

absl::StatusOr<std::shared_ptr<const Optimizer>> Optimizer::Create(
    const wire::OptimizerSpec& spec) {
  SLIMPS_RETURN_IF_ERROR(ValidateOptimizer(spec));
  return std::shared_ptr<const Optimizer>(new Optimizer(spec));
}

size_t Optimizer::state_tensors() const { return UpdateStateTensors(options_); }

Optimizer::Step Optimizer::PlanStep(const Moment& moment) const {
  UpdateOptions options = options_;
  if (spec_.average() && moment.contributors > 0) options.scale /= moment.contributors;
  if (moment.hyper.has_value()) {
    options.weight_decay = moment.hyper->weight_decay();
    return PlanUpdate(options, moment.hyper->learning_rate(), moment.updates + 1);
  }
  return PlanUpdate(options, LearningRateAt(spec_.learning_rate(), spec_.schedule(), moment.round),
                    moment.updates + 1);
}

const UpdateRule& Optimizer::RuleOf(const Kernels& kernels) const {
  return UpdateRuleOf(options_, kernels.update);
}

}  // namespace slimps
