#include "compress/kernels/update_plan.h"

#include <cmath>
#include <limits>

namespace slimps {

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
