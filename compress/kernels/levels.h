// SPDX-License-Identifier: Apache-2.0
// Kernels of one and two bits per element. kernels.h has the conventions, compress/format/levels.h
// the layout of the bits.
#ifndef SLIMPS_COMPRESS_KERNELS_LEVELS_H_
#define SLIMPS_COMPRESS_KERNELS_LEVELS_H_

#include <cstddef>
#include <cstdint>

#include "compress/kernels/block_sums.h"

namespace slimps {

struct SignSums {
  float positive = 0;  // sum of the positive x
  float negative = 0;  // sum of the negative x
  // Sum of x * x without a residual. With one it is 0: subtract_sign then gives the squares.
  float input2 = 0;
  uint32_t positives = 0;  // how many sign bits are clear
};

struct LevelsKernels {
  // Set bit i where x's sign bit is clear, that is for x >= 0 except -0. The residual becomes x,
  // and not yet what is left of it: what was sent is subtracted by subtract_sign, once the scales
  // are known. In encode_sign's result `positive` is the sum of |x|; `negative` and `positives` are
  // 0.
  SignSums (*encode_sign)(const float* gradient, float* residual, float grad_scale, size_t n,
                          uint8_t* bits);
  SignSums (*encode_sign_split)(const float* gradient, float* residual, float grad_scale, size_t n,
                                uint8_t* bits);

  // Subtracts `positive` from residual[i] where its sign bit is clear, otherwise `negative`.
  // Returns the sum of the new residuals' squares.
  float (*subtract_sign)(float positive, float negative, size_t n, float* residual);

  // Sets bit i where x > threshold. A set bit stands for +value, a clear one for -value. The
  // residual becomes x - decoded.
  BlockSums (*encode_1bit_fixed)(const float* gradient, float* residual, float grad_scale,
                                 float threshold, float value, size_t n, uint8_t* bits);

  // Sets plane0's bit where x >= threshold and sends +threshold; sets plane1's where x <=
  // -threshold and sends -threshold. The residual becomes x - decoded. REQUIRES: threshold > 0.
  BlockSums (*encode_2bit_fixed)(const float* gradient, float* residual, float grad_scale,
                                 float threshold, size_t n, uint8_t* plane0, uint8_t* plane1);

  // Decode or add n elements: `positive` and `negative` are P and N of compress/format/levels.h.
  void (*decode_1bit)(const uint8_t* bits, float positive, float negative, size_t n, float* dst);
  void (*add_1bit)(const uint8_t* bits, float positive, float negative, size_t n, float* dst);
  void (*decode_2bit)(const uint8_t* plane0, const uint8_t* plane1, float positive, float negative,
                      size_t n, float* dst);
  void (*add_2bit)(const uint8_t* plane0, const uint8_t* plane1, float positive, float negative,
                   size_t n, float* dst);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LEVELS_H_
