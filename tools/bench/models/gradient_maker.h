// SPDX-License-Identifier: Apache-2.0
// Makes gradients that have given statistics. A gradient is
//
//   sum_k s_k u_k v_k^T + s D_r N D_c
//
// The u_k are orthonormal, and so are the v_k. So the s_k are singular values; they have the
// recorded energies. N is normally distributed, and s is what is left of the energy. D_r and D_c
// are diagonal, log-normally distributed, and zero where a row or column is zero. They spread u_k
// and v_k, too. All workers have the same v_k, D_r and D_c. Their u_k, N and zero rows are equal as
// far as the recorded cosine says; a cosine below 0 counts as 0.
//
// The rms is met exactly, energies and spreads nearly (gradient_maker_test.cc).
//
//   const GradientMaker maker(/*worker=*/rank);
//   maker.Make(tensor.gradient, rows, cols, /*tensor=*/7, values);
//
// Deterministic: equal arguments give equal gradients. Thread-safe: constant after construction.
#ifndef SLIMPS_TOOLS_BENCH_MODELS_GRADIENT_MAKER_H_
#define SLIMPS_TOOLS_BENCH_MODELS_GRADIENT_MAKER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tools/bench/models/gradient_statistics.h"

namespace slimps {

class GradientMaker final {
 public:
  explicit GradientMaker(uint64_t worker);

  // Writes the worker's gradient of a tensor. `tensor` tells tensors of equal statistics apart.
  // REQUIRES: values.size() == rows * cols.
  void Make(const GradientStatistics& statistics, size_t rows, size_t cols, uint64_t tensor,
            std::span<float> values) const;

 private:
  uint64_t worker_;
  std::vector<float> normal_;  // drawn once: noise is taken from here, from a drawn place per row
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_MODELS_GRADIENT_MAKER_H_
