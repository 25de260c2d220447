// SPDX-License-Identifier: Apache-2.0
// Kernels that step weights by a round's sum of gradients: what a server's optimizer does
// (server/round/optimizer.h has the formulas). They work element by element. They round where
// torch.optim rounds on processors with AVX2, so that the weights are torch's to the last bit.
// kernels.h has the conventions, but n may be any number here.
#ifndef SLIMPS_COMPRESS_KERNELS_UPDATE_H_
#define SLIMPS_COMPRESS_KERNELS_UPDATE_H_

#include <cstddef>

namespace slimps {

// Everything that is equal for all elements of one step.
struct UpdateStep {
  float scale = 1, clip = 0;  // the gradient is sum * scale, limited to +-clip; NaN stays
  float learning_rate = 0, weight_decay = 0, momentum = 0;
  float beta1 = 0, one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0;
  float adam_step = 0, root_correction2 = 1, epsilon = 0, shrink = 1;
  // For the follow rules: what they know of the step that made `before`.
  float carried = 0, remembered = 0;
  float past_shrink = 1, past_unstep = 0, past_root_correction2 = 1;
};

// `after` may be `before`. State that a rule does not need may be null.
struct UpdateBlock {
  const float* before = nullptr;
  const float* sum = nullptr;
  float* after = nullptr;
  // Momentum, or Adam's m. For the follow rules: weights from before the step that made `before`.
  float* state0 = nullptr;
  float* state1 = nullptr;  // Adam's v
  size_t n = 0;
};

struct UpdateRule {
  void (*store)(const UpdateStep& step, const UpdateBlock& block);

  // Writes the weights past the caches: less traffic where they would not be found there again
  // anyway. REQUIRES: `after` is 64-byte aligned and not `before`.
  void (*stream)(const UpdateStep& step, const UpdateBlock& block);
};

struct UpdateKernels {
  UpdateRule assign;    // after = g
  UpdateRule add;       // after = before + g
  UpdateRule sgd;       // needs no state
  UpdateRule momentum;  // needs state0
  UpdateRule nesterov;  // needs state0
  UpdateRule adam;      // needs state0 and state1; AdamW by `shrink`
  // A step as the owner of the weights would take it. The owner made `before` by a step of the same
  // rule, from its own gradient. Its momentum, or first moment, is derived from the way the weights
  // went since state0. state1 is made of the gradients given here.
  UpdateRule follow_momentum;  // needs state0; for nesterov too
  UpdateRule follow_adam;      // needs state0 and state1

  // Sets before[i] = seen[i], then seen[i] = weights[i] - seen[i]: the change can be encoded in the
  // place of the weights that it changes.
  void (*difference)(const float* weights, size_t n, float* seen, float* before);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_UPDATE_H_
