#include "backup_model/local_updater.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
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

UpdateOptions OptionsOf(const LocalUpdaterOptions& options) {
  return {.kind = options.optimizer,
          .momentum = options.momentum,
          .nesterov = options.nesterov,
          .weight_decay = options.weight_decay,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .epsilon = options.epsilon,
          .scale = options.rescale_grad,
          .clip = options.clip_gradient};
}

}  // namespace

absl::Status CheckLocalHyper(const LocalHyper& hyper) {
  SLIMPS_RETURN_IF_ERROR(CheckNotNegative("learning_rate", hyper.learning_rate));
  return CheckNotNegative("weight_decay", hyper.weight_decay);
}

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

size_t LocalUpdater::state_tensors() const { return UpdateStateTensors(OptionsOf(options_)); }

void LocalUpdater::Step(std::span<const float> base, std::span<const float> gradient,
                        const LocalHyper& hyper, LocalUpdaterState& state,
                        std::span<float> updated) const {
  UpdateBlock block{
      .before = base.data(), .sum = gradient.data(), .after = updated.data(), .n = base.size()};
  UpdateOptions options = OptionsOf(options_);
  options.weight_decay = hyper.weight_decay;
  const size_t moments = UpdateStateTensors(options);
  if (moments > 0) block.state0 = Moment(state.first_moment, base.size());
  if (moments > 1) block.state1 = Moment(state.second_moment, base.size());
  const bool streams = updated.size_bytes() >= kStreamedBytes && updated.data() != base.data() &&
                       reinterpret_cast<uintptr_t>(updated.data()) % kBufferAlignment == 0;
  const UpdateRule& rule = UpdateRuleOf(options, BestKernels().update);
  const auto step = static_cast<uint64_t>(++state.steps);
  (streams ? rule.stream : rule.store)(PlanUpdate(options, hyper.learning_rate, step), block);
}

}  // namespace slimps
