#include "server/optimizer.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/learning_rate.h"

namespace slimps {
namespace {

// Numbers are used as fp32, so they must be finite there.
absl::Status CheckRange(const char* field, double value, double low, double high) {
  if (value >= low && value <= high && std::isfinite(static_cast<float>(value))) {
    return absl::OkStatus();
  }
  const std::string above = std::isinf(high) ? "" : absl::StrCat(" and at most ", high);
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": expected at least ", low, above, ", got ", value));
}

absl::Status CheckBeta(const char* field, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": expected at least 0 and below 1, got ", value));
}

absl::Status ValidateSpec(const wire::OptimizerSpec& spec) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (!wire::OptimizerSpec::Kind_IsValid(spec.kind())) {
    return absl::InvalidArgumentError(
        absl::StrCat("kind: unknown optimizer ", static_cast<int>(spec.kind())));
  }
  SLIMPS_RETURN_IF_ERROR(CheckRange("learning_rate", spec.learning_rate(), 0, kInf));
  SLIMPS_RETURN_IF_ERROR(CheckRange("momentum", spec.momentum(), 0, 1));
  SLIMPS_RETURN_IF_ERROR(CheckRange("weight_decay", spec.weight_decay(), 0, kInf));
  SLIMPS_RETURN_IF_ERROR(CheckRange("clip_gradient", spec.clip_gradient(), 0, kInf));
  SLIMPS_RETURN_IF_ERROR(CheckRange("rescale_grad", spec.rescale_grad(), -kInf, kInf));
  SLIMPS_RETURN_IF_ERROR(ValidateSchedule(spec.schedule()));
  if (spec.nesterov() && !(spec.momentum() > 0)) {
    return absl::InvalidArgumentError("nesterov: needs a momentum above 0");
  }
  if (spec.kind() == wire::OptimizerSpec::ADAM || spec.kind() == wire::OptimizerSpec::ADAMW) {
    SLIMPS_RETURN_IF_ERROR(CheckBeta("beta1", spec.beta1()));
    SLIMPS_RETURN_IF_ERROR(CheckBeta("beta2", spec.beta2()));
    // 0 would divide 0 by 0 wherever a gradient has always been 0.
    if (!(static_cast<float>(spec.epsilon()) > 0) || !std::isfinite(spec.epsilon())) {
      return absl::InvalidArgumentError(
          absl::StrCat("epsilon: expected a number above 0, got ", spec.epsilon()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Optimizer>> Optimizer::Create(
    const wire::OptimizerSpec& spec) {
  SLIMPS_RETURN_IF_ERROR(ValidateSpec(spec));
  return std::shared_ptr<const Optimizer>(new Optimizer(spec));
}

size_t Optimizer::state_tensors() const {
  switch (spec_.kind()) {
    case wire::OptimizerSpec::SGD:
      return spec_.momentum() > 0 ? 1 : 0;
    case wire::OptimizerSpec::ADAM:
    case wire::OptimizerSpec::ADAMW:
      return 2;
    default:
      return 0;
  }
}

Optimizer::Step Optimizer::PlanStep(const Moment& moment) const {
  Step step;
  double scale = spec_.rescale_grad() == 0 ? 1.0 : spec_.rescale_grad();
  if (spec_.average() && moment.contributors > 0) scale /= moment.contributors;
  step.scale = static_cast<float>(scale);
  step.clip = spec_.clip_gradient() == 0 ? std::numeric_limits<float>::infinity()
                                         : static_cast<float>(spec_.clip_gradient());
  const double rate = LearningRateAt(spec_.learning_rate(), spec_.schedule(), moment.round);
  step.learning_rate = static_cast<float>(rate);
  step.weight_decay = static_cast<float>(spec_.weight_decay());
  step.momentum = static_cast<float>(spec_.momentum());
  step.beta1 = static_cast<float>(spec_.beta1());
  step.one_minus_beta1 = static_cast<float>(1.0 - spec_.beta1());
  step.beta2 = static_cast<float>(spec_.beta2());
  step.one_minus_beta2 = static_cast<float>(1.0 - spec_.beta2());
  const double t = static_cast<double>(moment.updates) + 1.0;
  step.adam_step = static_cast<float>(rate / (1.0 - std::pow(spec_.beta1(), t)));
  step.root_correction2 = static_cast<float>(std::sqrt(1.0 - std::pow(spec_.beta2(), t)));
  step.epsilon = static_cast<float>(spec_.epsilon());
  if (spec_.kind() == wire::OptimizerSpec::ADAMW) {
    step.shrink = static_cast<float>(1.0 - rate * spec_.weight_decay());
    step.weight_decay = 0;
  }
  return step;
}

void Optimizer::ApplyBlock(const Step& step, std::span<const float> before,
                           std::span<const float> sum, std::span<float> after,
                           std::span<float> state0, std::span<float> state1) const {
  RuleOf(BestKernels())
      .store(step, {.before = before.data(),
                    .sum = sum.data(),
                    .after = after.data(),
                    .state0 = state0.data(),
                    .state1 = state1.data(),
                    .n = sum.size()});
}

const UpdateRule& Optimizer::RuleOf(const Kernels& kernels) const {
  const UpdateKernels& rules = kernels.update;
  switch (spec_.kind()) {
    case wire::OptimizerSpec::TEST:
      return rules.add;
    case wire::OptimizerSpec::SGD:
      if (state_tensors() == 0) return rules.sgd;
      return spec_.nesterov() ? rules.nesterov : rules.momentum;
    case wire::OptimizerSpec::ADAM:
    case wire::OptimizerSpec::ADAMW:
      return rules.adam;
    default:  // NONE: the store keeps the sum
      return rules.assign;
  }
}

}  // namespace slimps
