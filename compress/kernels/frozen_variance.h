// SPDX-License-Identifier: Apache-2.0
// Masked elements: those whose frozen variance is 0, because no gradient of the warm-up reached
// them. They have no momentum, and steps do not move them. A codec that knows no zero sends noise
// for them, so a payload cannot say that one has got its first gradient. Workers therefore name
// the elements that they unmask, as runs: first, count, first, count, ...; rising and apart.
//
//   runs = FindUnmasked(gradient, variance);              // each worker, beside its push
//   all = UnionOfRuns(all, runs);                         // the server
//   SettleMomentum(all, {.scale = s, .beta1 = b}, m, v);  // the server, then each worker
//
// docs/decisions/onebit-adam.md has the reasons. All functions are pure.
#ifndef SLIMPS_COMPRESS_KERNELS_FROZEN_VARIANCE_H_
#define SLIMPS_COMPRESS_KERNELS_FROZEN_VARIANCE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace slimps {

// A push names at most so many runs. The elements of further ones wait for their next gradient.
inline constexpr size_t kMaxUnmaskedRuns = 512;

// True if the element is masked. Optimizers flush smaller numbers to 0.
constexpr bool IsMasked(float variance) { return variance < std::numeric_limits<float>::min(); }

// Returns true if `runs` are such runs of a tensor of so many elements.
[[nodiscard]] bool AreRuns(std::span<const uint32_t> runs, size_t elements);

// Returns the first runs of masked elements whose gradient is not 0.
std::vector<uint32_t> FindUnmasked(std::span<const float> gradient,
                                   std::span<const float> variance);

// Returns the runs of the elements that are in either. REQUIRES: both are runs.
std::vector<uint32_t> UnionOfRuns(std::span<const uint32_t> a, std::span<const uint32_t> b);

struct SettleOptions {
  float scale = 1;  // momenta * scale are in the units of the variance
  float beta1 = 0;
};

// Gives each masked element of `runs` the larger of two variances: the square of the gradient that
// its momentum shows, and the mean of the variances that are not 0. Then sets the momentum of all
// elements that are still masked to 0.
// REQUIRES: `runs` are runs; `momentum` and `variance` are as long as they say.
void SettleMomentum(std::span<const uint32_t> runs, const SettleOptions& options,
                    std::span<float> momentum, std::span<float> variance);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_FROZEN_VARIANCE_H_
