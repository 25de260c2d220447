// SPDX-License-Identifier: Apache-2.0
// Kernels of the format "low rank": products of two thin matrices. kernels.h has the conventions.
#ifndef SLIMPS_COMPRESS_KERNELS_FACTORS_H_
#define SLIMPS_COMPRESS_KERNELS_FACTORS_H_

#include <cstddef>

namespace slimps {

// Computes ((0 + u[0] v[j]) + u[1] v[stride + j]) + ... for each j < n, each product and each sum
// rounded. `u` and `v` are fp32 in any alignment; `u` has `rank` numbers.
using ExpandFactors = void (*)(const std::byte* u, const std::byte* v, size_t rank, size_t stride,
                               size_t n, float* dst);

struct FactorKernels {
  ExpandFactors decode;  // dst[j] = the sum
  ExpandFactors add;     // dst[j] += the sum
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_FACTORS_H_
