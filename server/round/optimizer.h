// SPDX-License-Identifier: Apache-2.0
// What the server does with a round's gradient sum. It works element by element in fp32, so the
// result depends neither on how a tensor is cut nor on which thread computes which part.
//
//   SLIMPS_ASSIGN_OR_RETURN(auto optimizer, Optimizer::Create(spec));
//   const auto step = optimizer->PlanStep({.round = 7, .updates = 6, .contributors = 2});
//   optimizer->RuleOf(BestKernels()).store(step, {.before = ..., .sum = ..., .after = ...});
//
// With c = rescale_grad (/ contributors, if `average`) and g = clip(c * sum, +-clip_gradient), the
// rules are those of torch.optim, to the last bit (Adam's: of torch 1). x + y*z is rounded once,
// except in buf, where mu*buf is rounded first:
//   NONE   w = g                           TEST  w += g
//   SGD    g += wd*w;  buf = mu*buf + g;   w -= lr*buf          nesterov: w -= lr*(g + mu*buf)
//   ADAM   g += wd*w;  m = b1*m + (1-b1)*g;  v = b2*v + (1-b2)*g*g;
//          w -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps)
//   ADAMW  w *= 1 - lr*wd, then as ADAM without wd
//   ONEBIT_ADAM  as ADAMW for `freeze_after` updates; then v/(1-b2^t) is frozen, the mean that
//          comes is m, and w = (1 - lr*wd)*w - lr/(1-b1^t) * m / (sqrt(v) + eps). Where v is 0,
//          so is m (compress/kernels/frozen_variance.h)
// State (buf, m, v) below the smallest normal number becomes 0. The state of a gradient that stays
// away would shrink that far. Arithmetic with subnormal numbers takes two to three times as long
// here, and far longer on other machines.
#ifndef SLIMPS_SERVER_ROUND_OPTIMIZER_H_
#define SLIMPS_SERVER_ROUND_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "compress/kernels/kernels.h"
#include "compress/kernels/update_plan.h"
#include "proto/slimps.pb.h"

namespace slimps {

// Thread-safe: constant after construction. Pure.
class Optimizer final {
 public:
  struct Moment {
    uint64_t round = 1;    // decides the learning rate, unless `hyper` does
    uint64_t updates = 0;  // updates of the state so far (Adam's t - 1)
    uint32_t contributors = 1;
    double gradient_scale = 1;  // multiplies the mean gradient (clipped_rounds.h)
    // Replaces the spec's learning rate, schedule included, and its weight decay.
    // REQUIRES: ValidateHyper was OK.
    std::optional<wire::Hyper> hyper = std::nullopt;
  };
  using Step = UpdateStep;  // everything that is equal for all elements of one step

  // InvalidArgument: names the field, what was expected and what came.
  [[nodiscard]] static absl::StatusOr<std::shared_ptr<const Optimizer>> Create(
      const wire::OptimizerSpec& spec);

  const wire::OptimizerSpec& spec() const { return spec_; }

  // Returns how many fp32 tensors of state go with the weights: 0 to 2. They begin as zeros.
  size_t state_tensors() const;

  Step PlanStep(const Moment& moment) const;

  // Returns what the mean of the workers' payloads is multiplied by.
  double ScaleOfMean(uint32_t contributors) const;

  // Returns the rule of a step, from `kernels`. It leaves state that it does not need alone.
  const UpdateRule& RuleOf(const Kernels& kernels) const;

 private:
  explicit Optimizer(const wire::OptimizerSpec& spec);

  const wire::OptimizerSpec spec_;
  const UpdateOptions options_;  // spec_, as the kernels know it
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_OPTIMIZER_H_
