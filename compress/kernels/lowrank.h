// SPDX-License-Identifier: Apache-2.0
// Kernels of low-rank factors. kernels.h has the conventions.
//
// A matrix X has `rows` rows of `columns` elements, one after another. Its factors have `rank`
// vectors, each in one piece: vector k of P is p[k * p_stride + i] for row i, vector k of Q is
// q[k * columns + j] for column j. A matrix may be taken a few rows at a time: p then points to the
// first of them, and p_stride stays that of the whole.
#ifndef SLIMPS_COMPRESS_KERNELS_LOWRANK_H_
#define SLIMPS_COMPRESS_KERNELS_LOWRANK_H_

#include <cstddef>

namespace slimps {

struct LowRankShape {
  size_t rows = 0;
  size_t columns = 0;
  size_t rank = 0;
  size_t p_stride = 0;
};

struct LowRankKernels {
  // Sets x = gradient * grad_scale + x, and p[k, i] = the sum over j of x[i, j] * q[k, j]. Returns
  // the sum of x * x.
  double (*project)(const LowRankShape& shape, const float* gradient, float grad_scale, float* x,
                    const float* q, float* p);

  // Adds to q[k, j] the sum over i of x[i, j] * p[k, i], row by row.
  void (*project_back)(const LowRankShape& shape, const float* x, const float* p, float* q);

  // Sets x[i, j] -= p[0, i] * q[0, j], then p[1, i] * q[1, j], and so on. Returns the sum of x * x.
  double (*subtract)(const LowRankShape& shape, const float* p, const float* q, float* x);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOWRANK_H_
