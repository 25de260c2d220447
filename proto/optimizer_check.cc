// SPDX-License-Identifier: Apache-2.0
#include "proto/optimizer_check.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/learning_rate.h"

namespace slimps {
namespace {

// The optimizers compute in fp32, so a number must be finite there.
absl::Status CheckRange(const char* field, double value, double low, double high) {
  if (value >= low && value <= high && std::isfinite(static_cast<float>(value))) {
    return absl::OkStatus();
  }
  const std::string above = std::isinf(high) ? (value >= low ? ", finite in fp32" : "")
                                             : absl::StrCat(" and at most ", high);
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": expected at least ", low, above, ", got ", value));
}

absl::Status CheckBeta(const char* field, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": expected at least 0 and below 1, got ", value));
}

}  // namespace

absl::Status ValidateOptimizer(const wire::OptimizerSpec& spec) {
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
  const bool onebit_adam = spec.kind() == wire::OptimizerSpec::ONEBIT_ADAM;
  if (onebit_adam && spec.clip_gradient() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("clip_gradient: onebit_adam expects 0, because servers see momenta, got ",
                     spec.clip_gradient()));
  }
  if (!onebit_adam && spec.freeze_after() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("freeze_after: expected 0 for optimizers other than onebit_adam, got ",
                     spec.freeze_after()));
  }
  if (spec.kind() == wire::OptimizerSpec::ADAM || spec.kind() == wire::OptimizerSpec::ADAMW ||
      onebit_adam) {
    SLIMPS_RETURN_IF_ERROR(CheckBeta("beta1", spec.beta1()));
    SLIMPS_RETURN_IF_ERROR(CheckBeta("beta2", spec.beta2()));
    // With an epsilon of 0 a step would divide 0 by 0 where a gradient has always been 0.
    if (!(static_cast<float>(spec.epsilon()) > 0) || !std::isfinite(spec.epsilon())) {
      return absl::InvalidArgumentError(
          absl::StrCat("epsilon: expected a number above 0, got ", spec.epsilon()));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateHyper(const wire::Hyper& hyper) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  SLIMPS_RETURN_IF_ERROR(CheckRange("learning_rate", hyper.learning_rate(), 0, kInf));
  SLIMPS_RETURN_IF_ERROR(CheckRange("weight_decay", hyper.weight_decay(), 0, kInf));
  return hyper.has_momentum() ? CheckBeta("momentum", hyper.momentum()) : absl::OkStatus();
}

}  // namespace slimps
