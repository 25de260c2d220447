// Kernels that step weights by a round's sum of gradients: what a server's optimizer does (server/optimizer.h has the
// formulas). Element by element, rounded where torch.optim rounds on processors with AVX2, so that the weights are torch's
// to the last bit. Conventions: kernels.h, but for any n.
#ifndef SLIMPS_COMPRESS_KERNELS_UPDATE_H_
#define SLIMPS_COMPRESS_KERNELS_UPDATE_H_

#include <cstddef>

namespace slimps {

// Everything that is equal for all elements of one step.
struct UpdateStep {
  float scale = 1, clip = 0;  // the gradient is sum * scale, within +-clip; NaN stays
  float learning_rate = 0, weight_decay = 0, momentum = 0;
  float beta1 = 0, one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0;
  float adam_step = 0, root_correction2 = 1, epsilon = 0, shrink = 1;
  // Of the rules that follow another's steps: what they know of the step that made `before`.
  float carried = 0, remembered = 0;
  float past_shrink = 1, past_unstep = 0, past_root_correction2 = 1;
};

// `after` may be `before`. State that a rule does not need may be null.
struct UpdateBlock {
  const float* before = nullptr;
  const float* sum = nullptr;
  float* after = nullptr;
  float* state0 = nullptr;  // momentum, or Adam's m; of the rules that follow: weights from before
  float* state1 = nullptr;  // Adam's v
  size_t n = 0;
};

struct UpdateRule {
  void (*store)(const UpdateStep& step, const UpdateBlock& block);
  // Weights go past the caches: less traffic where they would not be found there again anyway. REQUIRES: `after` is
  // 64-byte aligned and not `before`.
  void (*stream)(const UpdateStep& step, const UpdateBlock& block);
};

struct UpdateKernels {
  UpdateRule assign;    // after = g
  UpdateRule add;       // after = before + g
  UpdateRule sgd;       // without state
  UpdateRule momentum;  // state0
  UpdateRule nesterov;  // state0
  UpdateRule adam;      // state0, state1; AdamW by `shrink`
  // A step as another would take it who made `before` by a step of the same rule, from its own
  // gradient. That one's momentum, or first moment, is read off the way that the weights went
  // (state0). state1: of these gradients.
  UpdateRule follow_momentum;  // state0; nesterov too
  UpdateRule follow_adam;      // state0, state1

  // before[i] = seen[i], seen[i] = weights[i] - seen[i]: a change to be encoded in place of what it changes.
  void (*difference)(const float* weights, size_t n, float* seen, float* before);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_UPDATE_H_
