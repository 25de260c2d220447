// Kernels of momentum correction and its kin. Conventions: kernels.h. Here g is gradient * grad_scale, u the momentum
// and p what a step of it hands on:
//
//   kHeavyBall     u = mu * u + g     p = u
//   kNesterov      u = mu * u + g     p = mu * u + g     (the new u)
//   kDgcNesterov   u = mu * (u + g)   p = u + g          (the same p as kNesterov's, but for rounding and masking)
#ifndef SLIMPS_COMPRESS_KERNELS_MOMENTUM_H_
#define SLIMPS_COMPRESS_KERNELS_MOMENTUM_H_

#include <cstddef>
#include <cstdint>

#include "compress/kernels/select.h"

namespace slimps {

enum class MomentumStep : uint8_t { kHeavyBall, kNesterov, kDgcNesterov };

struct MomentumRule {
  MomentumStep step = MomentumStep::kHeavyBall;
  float mu = 0;
  float grad_scale = 1;
};

struct MomentumKernels {
  // Sum of g * g.
  float (*norm2)(const float* gradient, float grad_scale, size_t n);
  // As RawKernels::find_unencodable for x = residual + p. Nothing is written.
  size_t (*find_unencodable)(const float* gradient, const float* residual, const float* momentum,
                             MomentumRule rule, float limit, size_t n);
  // A step of u; out[i] = p.
  void (*advance)(const float* gradient, float* momentum, MomentumRule rule, size_t n, float* out);
  // u = 0 where sent[i] is not.
  void (*mask)(const float* sent, size_t n, float* momentum);

  // A step of u; v = residual + p goes to the residual; lists candidates, |v| >= floor, as SelectKernels::collect does.
  // `magnitude_sum` and `magnitude_max` stay 0.
  Candidates (*correct)(const float* gradient, float* residual, float* momentum, MomentumRule rule,
                        float floor, size_t n, uint32_t* index, float* value);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_MOMENTUM_H_
