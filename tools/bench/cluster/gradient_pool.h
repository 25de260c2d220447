// SPDX-License-Identifier: Apache-2.0
// Gradients without a model: normally distributed numbers. An element gets another number in every
// round. All tensors share one memory.
//
//   const GradientPool pool(largest_tensor, /*seed=*/rank);
//   store->Push(key, pool.Of(tensor, round, elements), priority);
//
// Thread-safe: constant after construction.
#ifndef SLIMPS_TOOLS_BENCH_CLUSTER_GRADIENT_POOL_H_
#define SLIMPS_TOOLS_BENCH_CLUSTER_GRADIENT_POOL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

#include "proto/base/buffer.h"

namespace slimps {

class GradientPool final {
 public:
  GradientPool(size_t max_elements, uint64_t seed)
      : values_(AlignedBuffer::OfFloats(max_elements + kShifts * kStep)) {
    const std::span<float> all = values_.floats();
    const size_t drawn = std::min(all.size(), kDrawn);
    std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
    std::normal_distribution<float> normal(0.0f, 1e-2f);
    for (size_t i = 0; i < drawn; ++i) all[i] = normal(random);
    for (size_t i = drawn; i < all.size(); ++i) all[i] = all[i - drawn];
  }

  std::span<const float> Of(size_t tensor, uint64_t round, size_t elements) const {
    return values_.floats().subspan((tensor * 7 + round * 5) % kShifts * kStep, elements);
  }

 private:
  static constexpr size_t kShifts = 64;
  static constexpr size_t kStep = 16;  // a cache line: gradients are aligned as a framework's are
  static constexpr size_t kDrawn = (1 << 20) + 1;

  AlignedBuffer values_;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CLUSTER_GRADIENT_POOL_H_
