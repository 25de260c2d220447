// An optimizer's options, and the numbers of one of its steps for the kernels in update.h: for whoever steps weights,
// servers, local stores and the backup model alike, so that all of them make the same bits.
//
//   const UpdateOptions adam{.kind = UpdateKind::kAdam, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
//   UpdateRuleOf(adam, BestKernels().update).store(PlanUpdate(adam, /*learning_rate=*/0.01, /*step=*/1), block);
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
  double momentum = 0;  // of kSgd; 0: plain
  bool nesterov = false;
  double weight_decay = 0;
  double beta1 = 0, beta2 = 0, epsilon = 0;
  double scale = 1;  // multiplies the gradient first
  double clip = 0;   // by element, after that; 0: off
};

// Step number `step`, from 1, at this learning rate. Adam's numbers are those of Kingma and Ba 2015 in torch's order of
// operations; AdamW (Loshchilov and Hutter 2019) shrinks the weights by learning_rate * weight_decay first.
UpdateStep PlanUpdate(const UpdateOptions& options, double learning_rate, uint64_t step);

const UpdateRule& UpdateRuleOf(const UpdateOptions& options, const UpdateKernels& kernels);

// The step that made the weights which the next one starts from. step 0: there was none.
struct PastStep {
  double learning_rate = 0;
  double weight_decay = 0;
  uint64_t step = 0;
};

struct FollowOptions {
  double own_weight = 1;  // multiplies the gradient of whoever follows
  // How much of the step after this one, by momentum alone, is taken with it: the step is
  // 1 + look_ahead * momentum times as long. Of kSgd without nesterov.
  double look_ahead = 0;
};

// A step by FollowRuleOf: as the owner of `options` goes on from weights that it made by `past`.
// Momentum, moments and rate are the owner's. Plain sgd remembers nothing: its step is PlanUpdate's.
// Where the rate was under a thousandth of what it is now, or 0, the weights do not tell the
// momentum within their precision: it then counts as 0.
UpdateStep PlanFollow(const UpdateOptions& options, double learning_rate,
                      const FollowOptions& follow, uint64_t step, const PastStep& past);

// Its state: as many tensors as the rule's own; the first is the weights that the first step starts
// from, the second 0. REQUIRES: kSgd, kAdam or kAdamW.
const UpdateRule& FollowRuleOf(const UpdateOptions& options, const UpdateKernels& kernels);

// How many tensors of state, as long as the weights and zero at first, the rule needs: 0 to 2.
size_t UpdateStateTensors(const UpdateOptions& options);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_UPDATE_PLAN_H_
