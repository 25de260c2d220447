// SPDX-License-Identifier: Apache-2.0
// The kernels of momentum.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_MOMENTUM_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_MOMENTUM_LOOPS_H_

#include "compress/kernels/loops/input_loops.h"
#include "compress/kernels/momentum.h"

namespace slimps {
namespace {

struct StepLanes {
  F32x16 u, p;
};

template <MomentumStep kStep, typename Count>
inline StepLanes Step(const float* gradient, const float* momentum, F32x16 grad_scale, F32x16 mu,
                      size_t i, Count count) {
  const F32x16 g = MulF(LoadF(gradient + i, count), grad_scale);
  const F32x16 before = LoadF(momentum + i, count);
  if constexpr (kStep == MomentumStep::kDgcNesterov) {
    const F32x16 u = MulF(mu, AddF(before, g));
    return {u, AddF(u, g)};
  }
  const F32x16 u = AddF(MulF(mu, before), g);
  if constexpr (kStep == MomentumStep::kNesterov) return {u, AddF(MulF(mu, u), g)};
  return {u, u};
}

// Calls body.operator()<step>() for the rule's step.
template <typename Body>
inline auto ForStep(MomentumStep step, const Body& body) {
  switch (step) {
    case MomentumStep::kNesterov:
      return body.template operator()<MomentumStep::kNesterov>();
    case MomentumStep::kDgcNesterov:
      return body.template operator()<MomentumStep::kDgcNesterov>();
    default:
      return body.template operator()<MomentumStep::kHeavyBall>();
  }
}

inline float MomentumNorm2(const float* gradient, float grad_scale, size_t n) {
  const F32x16 scale = SetF(grad_scale);
  F32x16 sum = SetF(0);
  ForLanes(n, [&](size_t i, auto count) {
    AddSquare(sum, InputLanes<false>(gradient, nullptr, scale, i, count));
  });
  return FoldSum(sum);
}

template <MomentumStep kStep>
size_t FindUnencodableStep(const float* gradient, const float* residual, const float* momentum,
                           MomentumRule rule, float limit, size_t n) {
  const F32x16 scale = SetF(rule.grad_scale), mu = SetF(rule.mu), bound = SetF(limit);
  size_t found = n;
  // There is no early exit: what is looked for is rare, and later groups change nothing.
  ForLanes(n, [&](size_t i, auto count) {
    F32x16 x = Step<kStep>(gradient, momentum, scale, mu, i, count).p;
    if (residual != nullptr) x = AddF(LoadF(residual + i, count), x);
    const uint32_t bad = Bits(NotLeF(AbsF(x), bound)) & count.bits();
    if (bad != 0 && found == n) found = i + static_cast<size_t>(__builtin_ctz(bad));
  });
  return found;
}

inline size_t FindUnencodableMomentum(const float* gradient, const float* residual,
                                      const float* momentum, MomentumRule rule, float limit,
                                      size_t n) {
  return ForStep(rule.step, [&]<MomentumStep kStep>() {
    return FindUnencodableStep<kStep>(gradient, residual, momentum, rule, limit, n);
  });
}

inline void AdvanceMomentum(const float* gradient, float* momentum, MomentumRule rule, size_t n,
                            float* out) {
  const F32x16 scale = SetF(rule.grad_scale), mu = SetF(rule.mu);
  ForStep(rule.step, [&]<MomentumStep kStep>() {
    ForLanes(n, [&](size_t i, auto count) {
      const StepLanes step = Step<kStep>(gradient, momentum, scale, mu, i, count);
      StoreF(step.u, momentum + i, count);
      StoreF(step.p, out + i, count);
    });
  });
}

inline void MaskMomentum(const float* sent, size_t n, float* momentum) {
  const F32x16 zero = SetF(0);
  ForLanes(n, [&](size_t i, auto count) {
    const F32x16 decoded = AbsF(LoadF(sent + i, count));
    const Mask16 was_sent = GtF(decoded, zero);
    // Few elements are sent. Cache lines of the momentum without one stay untouched.
    if (Bits(was_sent) == 0) return;
    StoreF(SelectF(was_sent, zero, LoadF(momentum + i, count)), momentum + i, count);
  });
}

template <MomentumStep kStep>
Candidates CorrectBlock(const float* gradient, float* residual, float* momentum, MomentumRule rule,
                        float floor, size_t n, uint32_t* index, float* value) {
  const F32x16 scale = SetF(rule.grad_scale), mu = SetF(rule.mu), bound = SetF(floor);
  F32x16 rest2 = SetF(0);
  size_t found = 0;
  ForLanes(n, [&](size_t i, auto count) {
    const StepLanes step = Step<kStep>(gradient, momentum, scale, mu, i, count);
    const F32x16 v = AddF(LoadF(residual + i, count), step.p);
    StoreF(step.u, momentum + i, count);
    StoreF(v, residual + i, count);
    const Mask16 candidate = GeF(AbsF(v), bound);
    if (Bits(candidate) == 0) {
      AddSquare(rest2, v);
      return;
    }
    AddSquare(rest2, SelectF(candidate, SetF(0), v));
    CompressI(candidate, AddI(Iota(), SetI(static_cast<uint32_t>(i))), index + found);
    found += CompressF(candidate, v, value + found);
  });
  return {.count = static_cast<uint32_t>(found), .rest2 = FoldSum(rest2)};
}

inline Candidates CorrectMomentum(const float* gradient, float* residual, float* momentum,
                                  MomentumRule rule, float floor, size_t n, uint32_t* index,
                                  float* value) {
  return ForStep(rule.step, [&]<MomentumStep kStep>() {
    return CorrectBlock<kStep>(gradient, residual, momentum, rule, floor, n, index, value);
  });
}

constexpr MomentumKernels kMomentumKernels = {
    .norm2 = MomentumNorm2,
    .find_unencodable = FindUnencodableMomentum,
    .advance = AdvanceMomentum,
    .mask = MaskMomentum,
    .correct = CorrectMomentum,
};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_MOMENTUM_LOOPS_H_
