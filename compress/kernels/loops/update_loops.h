// SPDX-License-Identifier: Apache-2.0
// The kernels of update.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_UPDATE_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_UPDATE_LOOPS_H_

#include "compress/kernels/lanes/lanes.h"
#include "compress/kernels/update.h"

namespace slimps {
namespace {

// Returns x, or 0 for what is less than a normal number. Without this, state that decays without a
// gradient would end among subnormal numbers and stay there, since products round up again. Sums
// and roots of those take up to twice as long, on other processors far longer.
inline F32x16 FlushF(F32x16 x) { return KeepF(NotLeF(AbsF(x), SetF(FloatOf(0x007fffff))), x); }

// Each rule holds the constants of a step in lanes. Its Next(block, i, count, g) stores the new
// state and returns the new weights.
struct AssignRule {
  explicit AssignRule(const UpdateStep&) {}
  template <typename Count>
  F32x16 Next(const UpdateBlock&, size_t, Count, F32x16 g) const {
    return g;
  }
};

struct AddRule {
  explicit AddRule(const UpdateStep&) {}
  template <typename Count>
  F32x16 Next(const UpdateBlock& block, size_t i, Count count, F32x16 g) const {
    return AddF(LoadF(block.before + i, count), g);
  }
};

// Returns g + weight_decay * w.
struct DecayedGradient {
  F32x16 weight_decay;
  F32x16 Of(F32x16 g, F32x16 w) const { return AddProductF(g, weight_decay, w); }
};

struct SgdRule {
  F32x16 rate;
  DecayedGradient decayed;
  explicit SgdRule(const UpdateStep& s)
      : rate(SetF(s.learning_rate)), decayed{SetF(s.weight_decay)} {}
  template <typename Count>
  F32x16 Next(const UpdateBlock& block, size_t i, Count count, F32x16 g) const {
    const F32x16 w = LoadF(block.before + i, count);
    return SubProductF(w, rate, decayed.Of(g, w));
  }
};

template <bool kNesterov>
struct MomentumRule {
  F32x16 rate, momentum;
  DecayedGradient decayed;
  explicit MomentumRule(const UpdateStep& s)
      : rate(SetF(s.learning_rate)), momentum(SetF(s.momentum)), decayed{SetF(s.weight_decay)} {}
  template <typename Count>
  F32x16 Next(const UpdateBlock& block, size_t i, Count count, F32x16 g) const {
    const F32x16 w = LoadF(block.before + i, count);
    const F32x16 d = decayed.Of(g, w);
    const F32x16 buf = FlushF(AddF(MulF(momentum, LoadF(block.state0 + i, count)), d));
    StoreF(buf, block.state0 + i, count);
    return SubProductF(w, rate, kNesterov ? AddProductF(d, momentum, buf) : buf);
  }
};

struct AdamRule {
  F32x16 beta1, rest1, beta2, rest2, rate, root, epsilon, shrink;
  DecayedGradient decayed;
  explicit AdamRule(const UpdateStep& s)
      : beta1(SetF(s.beta1)),
        rest1(SetF(s.one_minus_beta1)),
        beta2(SetF(s.beta2)),
        rest2(SetF(s.one_minus_beta2)),
        rate(SetF(s.adam_step)),
        root(SetF(s.root_correction2)),
        epsilon(SetF(s.epsilon)),
        shrink(SetF(s.shrink)),
        decayed{SetF(s.weight_decay)} {}
  template <typename Count>
  F32x16 Next(const UpdateBlock& block, size_t i, Count count, F32x16 g) const {
    const F32x16 w = LoadF(block.before + i, count);
    const F32x16 d = decayed.Of(g, w);
    const F32x16 m = FlushF(AddProductF(MulF(beta1, LoadF(block.state0 + i, count)), rest1, d));
    const F32x16 v =
        FlushF(AddProductF(MulF(beta2, LoadF(block.state1 + i, count)), MulF(rest2, d), d));
    StoreF(m, block.state0 + i, count);
    StoreF(v, block.state1 + i, count);
    const F32x16 denominator = AddF(DivF(SqrtF(v), root), epsilon);
    return SubF(MulF(w, shrink), DivF(MulF(rate, m), denominator));
  }
};

// With s = state0 - w, a multiple of the momentum that made w (update_plan.cc):
//
//   after  = w - carried * s - rate * (g + weight_decay * w)
//   state0 = w + remembered * s
struct FollowMomentumRule {
  F32x16 rate, carried, remembered;
  DecayedGradient decayed;
  explicit FollowMomentumRule(const UpdateStep& s)
      : rate(SetF(s.learning_rate)),
        carried(SetF(s.carried)),
        remembered(SetF(s.remembered)),
        decayed{SetF(s.weight_decay)} {}
  template <typename Count>
  F32x16 Next(const UpdateBlock& block, size_t i, Count count, F32x16 g) const {
    const F32x16 w = LoadF(block.before + i, count);
    const F32x16 d = decayed.Of(g, w);
    const F32x16 moved = SubF(LoadF(block.state0 + i, count), w);
    StoreF(AddProductF(w, remembered, moved), block.state0 + i, count);
    return SubProductF(SubProductF(w, carried, moved), rate, d);
  }
};

// state0 is the w of the step before. Adam's step, solved for its first moment, gives the moment
// that made w. The second moment is that of these gradients (state1), since the owner's is not
// known:
//
//   m = (past_shrink * state0 - w) * past_unstep * (sqrt(v) / past_root_correction2 + epsilon)
struct FollowAdamRule {
  AdamRule adam;
  F32x16 past_shrink, past_unstep, past_root;
  explicit FollowAdamRule(const UpdateStep& s)
      : adam(s),
        past_shrink(SetF(s.past_shrink)),
        past_unstep(SetF(s.past_unstep)),
        past_root(SetF(s.past_root_correction2)) {}
  template <typename Count>
  F32x16 Next(const UpdateBlock& block, size_t i, Count count, F32x16 g) const {
    const F32x16 w = LoadF(block.before + i, count);
    const F32x16 moved = SubF(MulF(LoadF(block.state0 + i, count), past_shrink), w);
    const F32x16 root = SqrtF(LoadF(block.state1 + i, count));
    const F32x16 denominator = AddF(DivF(root, past_root), adam.epsilon);
    StoreF(MulF(MulF(moved, past_unstep), denominator), block.state0 + i, count);
    const F32x16 next = adam.Next(block, i, count, g);
    StoreF(w, block.state0 + i, count);
    return next;
  }
};

inline void StreamOrStoreF(F32x16 x, float* p, AllLanes) { StreamF(x, p); }
inline void StreamOrStoreF(F32x16 x, float* p, SomeLanes count) { StoreF(x, p, count); }

template <typename Rule, bool kStream>
void ApplyUpdate(const UpdateStep& step, const UpdateBlock& given) {
  const UpdateBlock block = given;  // a copy, so that stores do not force it to be read again
  const Rule rule(step);
  const F32x16 scale = SetF(step.scale), most = SetF(step.clip), least = SetF(-step.clip);
  ForLanes(block.n, [&](size_t i, auto count) {
    const F32x16 scaled = MulF(LoadF(block.sum + i, count), scale);
    // In this order of arguments NaN passes through. To hide it here would only move the failure.
    const F32x16 weights = rule.Next(block, i, count, MaxF(least, MinF(most, scaled)));
    if constexpr (kStream) {
      StreamOrStoreF(weights, block.after + i, count);
    } else {
      StoreF(weights, block.after + i, count);
    }
  });
  if constexpr (kStream) EndStream();
}

inline void Difference(const float* weights, size_t n, float* seen, float* before) {
  ForLanes(n, [&](size_t i, auto count) {
    const F32x16 old = LoadF(seen + i, count);
    StoreF(old, before + i, count);
    StoreF(SubF(LoadF(weights + i, count), old), seen + i, count);
  });
}

template <typename Rule>
constexpr UpdateRule kUpdate = {ApplyUpdate<Rule, false>, ApplyUpdate<Rule, true>};

constexpr UpdateKernels kUpdateKernels = {
    .assign = kUpdate<AssignRule>,
    .add = kUpdate<AddRule>,
    .sgd = kUpdate<SgdRule>,
    .momentum = kUpdate<MomentumRule<false>>,
    .nesterov = kUpdate<MomentumRule<true>>,
    .adam = kUpdate<AdamRule>,
    .follow_momentum = kUpdate<FollowMomentumRule>,
    .follow_adam = kUpdate<FollowAdamRule>,
    .difference = Difference,
};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_UPDATE_LOOPS_H_
