#include "backup_model/local_updater.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "compress/kernels/kernels.h"
#include "compress/kernels/update.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

absl::Status OutOfRange(const char* option, double value, const char* expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("local updater: ", option, " is ", value, ", expected ", expected));
}

// These say !(in range), so that NaN is refused too.
absl::Status CheckNotNegative(const char* option, double value) {
  if (!(value >= 0 && std::isfinite(value))) return OutOfRange(option, value, "0 or more");
  return absl::OkStatus();
}

absl::Status CheckDecay(const char* option, double value) {
  if (!(value >= 0 && value < 1)) return OutOfRange(option, value, "at least 0 and below 1");
  return absl::OkStatus();
}

// Weights of tensors over this size have left the caches before the next forward pass reads them.
constexpr size_t kStreamedBytes = size_t{4} << 20;

// Zeros of the tensor's length on the first step.
float* Moment(AlignedBuffer& moment, size_t elements) {
  if (moment.floats().size() != elements) {
    moment = AlignedBuffer::OfFloats(elements);
    std::ranges::fill(moment.floats(), 0.0f);
  }
  return moment.floats().data();
}

// The numbers of step `t`, from 1. Adam's are those of Kingma and Ba 2015 in torch's order of operations; AdamW
// (Loshchilov and Hutter 2019) shrinks w by lr * weight_decay first.
UpdateStep PlanStep(const LocalUpdaterOptions& options, double rate, int64_t t) {
  UpdateStep step;
  step.scale = static_cast<float>(options.rescale_grad);
  step.clip = options.clip_gradient == 0 ? std::numeric_limits<float>::infinity()
                                         : static_cast<float>(options.clip_gradient);
  step.learning_rate = static_cast<float>(rate);
  step.weight_decay = static_cast<float>(options.weight_decay);
  step.momentum = static_cast<float>(options.momentum);
  if (options.optimizer == LocalOptimizer::kSgd) return step;
  step.beta1 = static_cast<float>(options.beta1);
  step.one_minus_beta1 = static_cast<float>(1 - options.beta1);
  step.beta2 = static_cast<float>(options.beta2);
  step.one_minus_beta2 = static_cast<float>(1 - options.beta2);
  const double steps = static_cast<double>(t);
  step.adam_step = static_cast<float>(rate / (1 - std::pow(options.beta1, steps)));
  step.root_correction2 = static_cast<float>(std::sqrt(1 - std::pow(options.beta2, steps)));
  step.epsilon = static_cast<float>(options.epsilon);
  if (options.optimizer == LocalOptimizer::kAdamW) {
    step.shrink = static_cast<float>(1 - rate * options.weight_decay);
    step.weight_decay = 0;
  }
  return step;
}

const UpdateRule& RuleOf(const LocalUpdaterOptions& options) {
  const UpdateKernels& rules = BestKernels().update;
  if (options.optimizer != LocalOptimizer::kSgd) return rules.adam;
  if (options.momentum == 0) return rules.sgd;
  return options.nesterov ? rules.nesterov : rules.momentum;
}

}  // namespace

absl::StatusOr<LocalUpdater> LocalUpdater::Create(const LocalUpdaterOptions& options) {
  SLIMPS_RETURN_IF_ERROR(CheckNotNegative("learning_rate", options.learning_rate));
  SLIMPS_RETURN_IF_ERROR(CheckNotNegative("loc_lr", options.loc_lr.value_or(0)));
  SLIMPS_RETURN_IF_ERROR(CheckNotNegative("weight_decay", options.weight_decay));
  SLIMPS_RETURN_IF_ERROR(CheckNotNegative("clip_gradient", options.clip_gradient));
  SLIMPS_RETURN_IF_ERROR(CheckNotNegative("momentum", options.momentum));
  SLIMPS_RETURN_IF_ERROR(CheckNotNegative("epsilon", options.epsilon));
  SLIMPS_RETURN_IF_ERROR(CheckDecay("beta1", options.beta1));
  SLIMPS_RETURN_IF_ERROR(CheckDecay("beta2", options.beta2));
  if (!std::isfinite(options.rescale_grad)) {
    return OutOfRange("rescale_grad", options.rescale_grad, "a finite number");
  }
  if (options.momentum != 0 && options.optimizer != LocalOptimizer::kSgd) {
    return OutOfRange("momentum", options.momentum, "0 for any optimizer but SGD");
  }
  if (options.nesterov && options.momentum == 0) {
    return OutOfRange("momentum", options.momentum, "more than 0 with nesterov");
  }
  return LocalUpdater(options);
}

void LocalUpdater::Step(std::span<const float> base, std::span<const float> gradient,
                        double learning_rate, LocalUpdaterState& state,
                        std::span<float> updated) const {
  UpdateBlock block{
      .before = base.data(), .sum = gradient.data(), .after = updated.data(), .n = base.size()};
  const bool adam = options_.optimizer != LocalOptimizer::kSgd;
  if (adam || options_.momentum != 0) block.state0 = Moment(state.first_moment, base.size());
  if (adam) block.state1 = Moment(state.second_moment, base.size());
  const bool streams = updated.size_bytes() >= kStreamedBytes && updated.data() != base.data() &&
                       reinterpret_cast<uintptr_t>(updated.data()) % kBufferAlignment == 0;
  const UpdateRule& rule = RuleOf(options_);
  (streams ? rule.stream : rule.store)(PlanStep(options_, learning_rate, ++state.steps), block);
}

}  // namespace slimps
