// SPDX-License-Identifier: Apache-2.0
// Kernels of the randomised Hadamard transform of one block: y = H D x / m, and back x = D H y.
// kernels.h has the conventions.
//
//   m   RotatedElements(n): the block is padded with zeros to a power of two
//   D   the diagonal of random signs. Element i of block b is negated if bit i % 32 is set in word
//       128 * b + i / 32 of the stream (PhiloxStream::Word in compress/format/philox.h)
//   H   the Hadamard matrix of m rows: entry (i, j) is -1 to the number of bits that i and j share
//
// H H = m, so the way back undoes the way there. The root of m that would make each of the two
// orthonormal is not taken: 1 / m is a power of two, so that scaling is exact. |y|^2 = |x|^2 / m.
//
// The fp32 additions have one order: stages of distance 1, 2, 4, ..., m / 2. A stage replaces a =
// y[i] and b = y[i + distance] by a + b and a - b. The way there multiplies by 1 / m before the
// first stage, so nothing exceeds the largest |x|.
//
// Source of the method: Ailon, Chazelle: "Approximate nearest neighbors and the fast
// Johnson-Lindenstrauss transform", STOC 2006.
#ifndef SLIMPS_COMPRESS_KERNELS_ROTATE_H_
#define SLIMPS_COMPRESS_KERNELS_ROTATE_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "compress/kernels/quantize.h"

namespace slimps {

inline constexpr size_t kSmallestRotation = 16;

// Returns to how many elements a block of n, at most kBlockElements, is padded.
constexpr size_t RotatedElements(size_t n) {
  return n == 0 ? 0 : n <= kSmallestRotation ? kSmallestRotation : std::bit_ceil(n);
}

// `rotated` has RotatedElements(n) numbers, 64-byte aligned.
struct RotateKernels {
  // Writes y of x to `rotated`. The residual becomes x. Returns the sum of x * x, in 16 lanes.
  float (*rotate)(const float* gradient, float* residual, float grad_scale, size_t n,
                  const RandomStream& stream, uint32_t block, float* rotated);

  // Sets dst[i] = x[i], or dst[i] += x[i], for i below n. `rotated` becomes H y.
  void (*restore)(float* rotated, size_t n, const RandomStream& stream, uint32_t block, float* dst);
  void (*add)(float* rotated, size_t n, const RandomStream& stream, uint32_t block, float* dst);

  // Sets residual[i] -= x[i]. `rotated` becomes H y. Returns the sum of the new residuals' squares.
  float (*subtract)(float* rotated, size_t n, const RandomStream& stream, uint32_t block,
                    float* residual);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_ROTATE_H_
