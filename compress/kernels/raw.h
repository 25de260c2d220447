// SPDX-License-Identifier: Apache-2.0
// Kernels of the raw formats, and the checks before any encoding. kernels.h has the conventions.
#ifndef SLIMPS_COMPRESS_KERNELS_RAW_H_
#define SLIMPS_COMPRESS_KERNELS_RAW_H_

#include <cstddef>

#include "compress/kernels/block_sums.h"

namespace slimps {

struct RawKernels {
  // Returns the index of the first x that is NaN or has a magnitude over `limit`; n if there is
  // none.
  size_t (*find_unencodable)(const float* gradient, const float* residual, float grad_scale,
                             float limit, size_t n);

  // Returns the largest |from[i]|: infinity if an element is infinite or NaN, and 0 for n = 0.
  float (*largest)(const float* from, size_t n);

  // Sets to[i] = from[i] and returns what `largest` does.
  float (*copy_bounded)(const float* from, float* to, size_t n);

  // Round x to nearest even. The residual becomes x - decoded.
  BlockSums (*encode_f32)(const float* gradient, float* residual, float grad_scale, size_t n,
                          std::byte* out);
  BlockSums (*encode_f16)(const float* gradient, float* residual, float grad_scale, size_t n,
                          std::byte* out);
  BlockSums (*encode_bf16)(const float* gradient, float* residual, float grad_scale, size_t n,
                           std::byte* out);
  void (*decode_f16)(const std::byte* in, size_t n, float* dst);
  void (*decode_bf16)(const std::byte* in, size_t n, float* dst);
  void (*add_f32)(const std::byte* in, size_t n, float* dst);  // dst[i] += in[i]
  void (*add_f16)(const std::byte* in, size_t n, float* dst);
  void (*add_bf16)(const std::byte* in, size_t n, float* dst);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_RAW_H_
