// SPDX-License-Identifier: Apache-2.0
#include "server/round/optimizer.h"

#include "proto/base/status_macros.h"
#include "proto/learning_rate.h"
#include "proto/optimizer_check.h"

namespace slimps {

Optimizer::Optimizer(const wire::OptimizerSpec& spec)
    : spec_(spec), options_(UpdateOptionsOf(spec)) {}

absl::StatusOr<std::shared_ptr<const Optimizer>> Optimizer::Create(
    const wire::OptimizerSpec& spec) {
  SLIMPS_RETURN_IF_ERROR(ValidateOptimizer(spec));
  return std::shared_ptr<const Optimizer>(new Optimizer(spec));
}

size_t Optimizer::state_tensors() const { return UpdateStateTensors(options_); }

Optimizer::Step Optimizer::PlanStep(const Moment& moment) const {
  UpdateOptions options = options_;
  if (spec_.average() && moment.contributors > 0) options.scale /= moment.contributors;
  options.scale *= moment.gradient_scale;
  if (moment.hyper.has_value()) {
    options.weight_decay = moment.hyper->weight_decay();
    if (moment.hyper->has_momentum() && state_tensors() > 0) {
      SetMomentum(moment.hyper->momentum(), &options);
    }
    return PlanUpdate(options, moment.hyper->learning_rate(), moment.updates + 1);
  }
  return PlanUpdate(options, LearningRateAt(spec_.learning_rate(), spec_.schedule(), moment.round),
                    moment.updates + 1);
}

double Optimizer::ScaleOfMean(uint32_t contributors) const {
  return spec_.average() ? options_.scale : options_.scale * contributors;
}

const UpdateRule& Optimizer::RuleOf(const Kernels& kernels) const {
  return UpdateRuleOf(options_, kernels.update);
}

}  // namespace slimps
