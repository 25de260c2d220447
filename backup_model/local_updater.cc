#include "backup_model/local_updater.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
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

// Zeros of the tensor's length on the first step.
std::span<float> Moment(AlignedBuffer& moment, size_t elements) {
  if (moment.floats().size() != elements) {
    moment = AlignedBuffer::OfFloats(elements);
    std::ranges::fill(moment.floats(), 0.0f);
  }
  return moment.floats();
}

// gradient[k] as every optimizer first sees it.
struct Gradient {
  std::span<const float> values;
  float rescale;
  float clip;  // 0: off

  float operator[](size_t k) const {
    const float g = values[k] * rescale;
    // NaN stays NaN: both comparisons are false.
    return clip > 0 ? (g > clip ? clip : (g < -clip ? -clip : g)) : g;
  }
};

void StepSgd(const LocalUpdaterOptions& options, std::span<const float> base,
             const Gradient& gradient, float lr, std::span<float> updated) {
  const float weight_decay = static_cast<float>(options.weight_decay);
  for (size_t k = 0; k < base.size(); ++k) {
    const float g = weight_decay != 0 ? gradient[k] + weight_decay * base[k] : gradient[k];
    updated[k] = base[k] - lr * g;
  }
}

// m = momentum * m + g, on the first step m = g; the step is m, with Nesterov g + momentum * m.
void StepMomentum(const LocalUpdaterOptions& options, std::span<const float> base,
                  const Gradient& gradient, float lr, LocalUpdaterState& state,
                  std::span<float> updated) {
  const std::span<float> moment = Moment(state.first_moment, base.size());
  const float weight_decay = static_cast<float>(options.weight_decay);
  const float momentum = static_cast<float>(options.momentum);
  for (size_t k = 0; k < base.size(); ++k) {
    const float g = weight_decay != 0 ? gradient[k] + weight_decay * base[k] : gradient[k];
    const float m = state.steps == 0 ? g : momentum * moment[k] + g;
    moment[k] = m;
    updated[k] = base[k] - lr * (options.nesterov ? g + momentum * m : m);
  }
}

// m = b1*m + (1-b1)*g; v = b2*v + (1-b2)*g*g; w -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps).
// Source: Kingma and Ba 2015, in torch's order of operations; AdamW (Loshchilov and Hutter 2019)
// shrinks w by lr*weight_decay first.
void StepAdam(const LocalUpdaterOptions& options, std::span<const float> base,
              const Gradient& gradient, double lr, LocalUpdaterState& state,
              std::span<float> updated) {
  const std::span<float> first = Moment(state.first_moment, base.size());
  const std::span<float> second = Moment(state.second_moment, base.size());
  const double t = static_cast<double>(state.steps + 1);
  const float step_size = static_cast<float>(lr / (1 - std::pow(options.beta1, t)));
  const float root_of_correction = static_cast<float>(std::sqrt(1 - std::pow(options.beta2, t)));
  const float beta1 = static_cast<float>(options.beta1);
  const float beta2 = static_cast<float>(options.beta2);
  const float one_minus_beta1 = static_cast<float>(1 - options.beta1);
  const float one_minus_beta2 = static_cast<float>(1 - options.beta2);
  const float epsilon = static_cast<float>(options.epsilon);
  const bool decoupled = options.optimizer == LocalOptimizer::kAdamW;
  const float coupled_decay = decoupled ? 0.0f : static_cast<float>(options.weight_decay);
  const float shrink = decoupled ? static_cast<float>(1 - lr * options.weight_decay) : 1.0f;
  for (size_t k = 0; k < base.size(); ++k) {
    const float g = coupled_decay != 0 ? gradient[k] + coupled_decay * base[k] : gradient[k];
    first[k] = beta1 * first[k] + one_minus_beta1 * g;
    second[k] = beta2 * second[k] + one_minus_beta2 * g * g;
    const float denominator = std::sqrt(second[k]) / root_of_correction + epsilon;
    updated[k] = base[k] * shrink - step_size * (first[k] / denominator);
  }
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
  const Gradient scaled{gradient, static_cast<float>(options_.rescale_grad),
                        static_cast<float>(options_.clip_gradient)};
  if (options_.optimizer != LocalOptimizer::kSgd) {
    StepAdam(options_, base, scaled, learning_rate, state, updated);
  } else if (options_.momentum != 0) {
    StepMomentum(options_, base, scaled, static_cast<float>(learning_rate), state, updated);
  } else {
    StepSgd(options_, base, scaled, static_cast<float>(learning_rate), updated);
  }
  ++state.steps;
}

}  // namespace slimps
