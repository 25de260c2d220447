// SPDX-License-Identifier: Apache-2.0
#include "compress/kernels/update_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace slimps {

double MomentumOf(const UpdateOptions& options) {
  return options.kind == UpdateKind::kSgd ? options.momentum : options.beta1;
}

void SetMomentum(double momentum, UpdateOptions* options) {
  (options->kind == UpdateKind::kSgd ? options->momentum : options->beta1) = momentum;
}

UpdateStep PlanUpdate(const UpdateOptions& options, double learning_rate, uint64_t step) {
  UpdateStep plan;
  plan.scale = static_cast<float>(options.scale);
  plan.clip =
      options.clip == 0 ? std::numeric_limits<float>::infinity() : static_cast<float>(options.clip);
  plan.learning_rate = static_cast<float>(learning_rate);
  plan.weight_decay = static_cast<float>(options.weight_decay);
  plan.momentum = static_cast<float>(options.momentum);
  const bool adamw = options.kind == UpdateKind::kAdamW;
  if (options.kind != UpdateKind::kAdam && !adamw) return plan;
  plan.beta1 = static_cast<float>(options.beta1);
  plan.one_minus_beta1 = static_cast<float>(1.0 - options.beta1);
  plan.beta2 = static_cast<float>(options.beta2);
  plan.one_minus_beta2 = static_cast<float>(1.0 - options.beta2);
  const double t = static_cast<double>(step);
  plan.adam_step = static_cast<float>(learning_rate / (1.0 - std::pow(options.beta1, t)));
  plan.root_correction2 = static_cast<float>(std::sqrt(1.0 - std::pow(options.beta2, t)));
  plan.epsilon = static_cast<float>(options.epsilon);
  if (adamw) {
    plan.shrink = static_cast<float>(1.0 - learning_rate * options.weight_decay);
    plan.weight_decay = 0;
  }
  return plan;
}

UpdateStep WithFrozenVariance(UpdateStep step) {
  step.clip = std::numeric_limits<float>::infinity();
  step.weight_decay = 0;
  step.beta1 = 0;
  step.one_minus_beta1 = 1;
  step.beta2 = 1;
  step.one_minus_beta2 = 0;
  step.root_correction2 = 1;
  step.epsilon = std::max(step.epsilon, std::numeric_limits<float>::min());
  return step;
}

UpdateStep PlanFollow(const UpdateOptions& options, double learning_rate,
                      const FollowOptions& follow, uint64_t step, const PastStep& past) {
  // With a smaller past rate the weights moved too little to show the momentum.
  constexpr double kTellingRate = 1e-3;
  UpdateStep plan = PlanUpdate(options, learning_rate, step);
  const bool tells =
      past.step > 0 && past.learning_rate > 0 && past.learning_rate >= kTellingRate * learning_rate;
  if (options.kind == UpdateKind::kSgd) {
    // Heavy ball: w' = w - lr v, so state0 - w' = w - w' = lr v.
    //
    // Nesterov: w' = w - lr ((1 + mu) v' - mu v), since g = v' - mu v. With state0 = w + lr mu v
    // the difference state0 - w' is lr (1 + mu) v', and w' + lr' mu v' is the next state0.
    const double mu = options.momentum;
    const double of_gradient = options.nesterov ? 1 + mu : 1;
    const double of_past_gradient = options.nesterov ? 1 + past.momentum : 1;
    const double length = options.nesterov ? 1 : 1 + follow.look_ahead * mu;
    const double ratio = tells ? learning_rate / (past.learning_rate * of_past_gradient) : 0;
    plan.carried = static_cast<float>(length * ratio * (options.nesterov ? mu * mu : mu));
    plan.remembered = static_cast<float>(options.nesterov ? ratio * mu : 0);
    plan.learning_rate =
        static_cast<float>(length * learning_rate * follow.own_weight * of_gradient);
    return plan;
  }
  plan.one_minus_beta1 = static_cast<float>((1.0 - options.beta1) * follow.own_weight);
  if (!tells) return plan;  // past_unstep is 0, so the moment counts as 0
  const UpdateOptions then{.kind = options.kind,
                           .weight_decay = past.weight_decay,
                           .beta1 = past.momentum,
                           .beta2 = options.beta2};
  const UpdateStep made = PlanUpdate(then, past.learning_rate, past.step);
  // A smaller step has an inverse that may not be finite.
  if (!(made.adam_step > std::numeric_limits<float>::min())) return plan;
  plan.past_shrink = made.shrink;
  plan.past_unstep = 1 / made.adam_step;
  plan.past_root_correction2 = made.root_correction2;
  return plan;
}

const UpdateRule& FollowRuleOf(const UpdateOptions& options, const UpdateKernels& kernels) {
  if (options.kind != UpdateKind::kSgd) return kernels.follow_adam;
  return options.momentum == 0 ? kernels.sgd : kernels.follow_momentum;
}

const UpdateRule& UpdateRuleOf(const UpdateOptions& options, const UpdateKernels& kernels) {
  switch (options.kind) {
    case UpdateKind::kAdd:
      return kernels.add;
    case UpdateKind::kSgd:
      if (options.momentum == 0) return kernels.sgd;
      return options.nesterov ? kernels.nesterov : kernels.momentum;
    case UpdateKind::kAdam:
    case UpdateKind::kAdamW:
      return kernels.adam;
    default:
      return kernels.assign;
  }
}

size_t UpdateStateTensors(const UpdateOptions& options) {
  switch (options.kind) {
    case UpdateKind::kSgd:
      return options.momentum == 0 ? 0 : 1;
    case UpdateKind::kAdam:
    case UpdateKind::kAdamW:
      return 2;
    default:
      return 0;
  }
}

}  // namespace slimps
