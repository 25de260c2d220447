// SPDX-License-Identifier: Apache-2.0
// An optimizer's options, and the numbers of one of its steps for the kernels in update.h. Servers,
// local stores and the backup model all step weights through it, so that all make the same bits.
//
//   const UpdateOptions adam{
//       .kind = UpdateKind::kAdam, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
//   UpdateRuleOf(adam, BestKernels().update)
//       .store(PlanUpdate(adam, /*learning_rate=*/0.01, /*step=*/1), block);
//
// Options are not checked here. All functions are pure.
#ifndef SLIMPS_COMPRESS_KERNELS_UPDATE_PLAN_H_
#define SLIMPS_COMPRESS_KERNELS_UPDATE_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "compress/kernels/update.h"

namespace slimps {

enum class UpdateKind { kAssign, kAdd, kSgd, kAdam, kAdamW };

struct UpdateOptions {
  UpdateKind kind = UpdateKind::kSgd;
  double momentum = 0;      // for kSgd; 0: no momentum
  bool nesterov = false;    // for kSgd; needs a momentum
  double weight_decay = 0;  // kAdamW: decoupled; else added to the gradient
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // for kAdam and kAdamW
  double scale = 1;                                   // multiplies the gradient before all else
  double clip = 0;  // limits each element of the scaled gradient; 0: off
};

// Returns the options of the optimizer that `spec`, a wire::OptimizerSpec, describes. It takes only
// the numbers that its kind uses. It is a template because this file knows no messages.
template <typename Spec>
UpdateOptions UpdateOptionsOf(const Spec& spec) {
  UpdateOptions options{.kind = UpdateKind::kAssign,  // the store keeps the sum
                        .weight_decay = spec.weight_decay(),
                        .scale = spec.rescale_grad() == 0 ? 1 : spec.rescale_grad(),
                        .clip = spec.clip_gradient()};
  const bool adamw = spec.kind() == Spec::ADAMW || spec.kind() == Spec::ONEBIT_ADAM;
  if (spec.kind() == Spec::TEST) {
    options.kind = UpdateKind::kAdd;
  } else if (spec.kind() == Spec::SGD) {
    options.kind = UpdateKind::kSgd;
    options.momentum = spec.momentum();
    options.nesterov = spec.nesterov();
  } else if (spec.kind() == Spec::ADAM || adamw) {
    options.kind = adamw ? UpdateKind::kAdamW : UpdateKind::kAdam;
    options.beta1 = spec.beta1();
    options.beta2 = spec.beta2();
    options.epsilon = spec.epsilon();
  }
  return options;
}

// The momentum that may change from step to step: kSgd's, or beta1 of kAdam and kAdamW.
double MomentumOf(const UpdateOptions& options);

// Replaces that momentum. REQUIRES: UpdateStateTensors(*options) > 0, since a momentum needs one.
void SetMomentum(double momentum, UpdateOptions* options);

// Returns the numbers of step `step` (from 1) at this learning rate. Adam's are those of Kingma and
// Ba 2015, in torch's order of operations. AdamW (Loshchilov and Hutter 2019) first shrinks the
// weights by learning_rate * weight_decay.
UpdateStep PlanUpdate(const UpdateOptions& options, double learning_rate, uint64_t step);

// Returns `step`, a step of kAdam or kAdamW, for a round whose sum is the first moment itself and
// whose variance is frozen. By the same rule, state0 becomes the scaled sum, state1 stays, and
// w = shrink * w - adam_step * state0 / (sqrt(state1) + epsilon). An epsilon of 0 becomes the
// smallest normal number, so that masked elements (frozen_variance.h) do not divide 0 by 0.
// Source: Tang et al., "1-bit Adam", ICML 2021, algorithm 1, line 12.
UpdateStep WithFrozenVariance(UpdateStep step);

// Returns the kernels of the options' rule.
const UpdateRule& UpdateRuleOf(const UpdateOptions& options, const UpdateKernels& kernels);

// The step that made the weights from which the next one starts. step 0: there was none.
struct PastStep {
  double learning_rate = 0;
  double weight_decay = 0;
  double momentum = 0;  // MomentumOf its options
  uint64_t step = 0;
};

struct FollowOptions {
  // Multiplies the follower's gradient, weight decay included. With Adam only in the first moment.
  double own_weight = 1;
  // How much of the step after this one, by momentum alone, is taken with it: the step is 1 +
  // look_ahead * momentum times as long. Only for kSgd without nesterov.
  double look_ahead = 0;
};

// Returns the numbers of a step by FollowRuleOf. It goes on as the owner of `options` would, from
// weights that the owner made by `past`. Momentum, moments and rate are the owner's. Plain sgd
// remembers nothing, so its step differs from PlanUpdate's only by own_weight. If the past rate was
// 0, or under a thousandth of the present one, the weights do not show the momentum within their
// precision: it then counts as 0.
UpdateStep PlanFollow(const UpdateOptions& options, double learning_rate,
                      const FollowOptions& follow, uint64_t step, const PastStep& past);

// Returns the kernels of the rule that follows `options`. It has as many tensors of state as the
// rule itself. The first holds the weights from which the first step starts, the second is 0 at
// first. REQUIRES: kSgd, kAdam or kAdamW.
const UpdateRule& FollowRuleOf(const UpdateOptions& options, const UpdateKernels& kernels);

// Returns how many tensors of state the rule needs, 0 to 2. Each is as long as the weights and 0 at
// first.
size_t UpdateStateTensors(const UpdateOptions& options);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_UPDATE_PLAN_H_
