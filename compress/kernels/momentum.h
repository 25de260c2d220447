// SPDX-License-Identifier: Apache-2.0
// Kernels of momentum correction and related methods. kernels.h has the conventions. Here g is
// gradient * grad_scale, u is the momentum, and p is what one step of it gives:
//
//   kHeavyBall     u = mu * u + g     p = u
//   kNesterov      u = mu * u + g     p = mu * u + g     (with the new u)
//   kDgcNesterov   u = mu * (u + g)   p = u + g          (kNesterov's p except for rounding and
//                                                         masking)
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
  // Returns the sum of g * g.
  float (*norm2)(const float* gradient, float grad_scale, size_t n);

  // Does what RawKernels::find_unencodable does, for x = residual + p. Writes nothing.
  size_t (*find_unencodable)(const float* gradient, const float* residual, const float* momentum,
                             MomentumRule rule, float limit, size_t n);

  // Steps u and sets out[i] = p.
  void (*advance)(const float* gradient, float* momentum, MomentumRule rule, size_t n, float* out);

  // Sets u = 0 where sent[i] is not 0.
  void (*mask)(const float* sent, size_t n, float* momentum);

  // Steps u and sets residual = v = residual + p. Lists the candidates, |v| >= floor, as
  // SelectKernels::collect does. `magnitude_sum` and `magnitude_max` stay 0.
  Candidates (*correct)(const float* gradient, float* residual, float* momentum, MomentumRule rule,
                        float floor, size_t n, uint32_t* index, float* value);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_MOMENTUM_H_
