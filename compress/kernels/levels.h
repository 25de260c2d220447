// Kernels of one and two bits per element. Conventions: kernels.h; layout of the bits: compress/format/levels.h.
#ifndef SLIMPS_COMPRESS_KERNELS_LEVELS_H_
#define SLIMPS_COMPRESS_KERNELS_LEVELS_H_

#include <cstddef>
#include <cstdint>

#include "compress/kernels/block_sums.h"

namespace slimps {

struct SignSums {
  float positive = 0;  // sum of what is positive
  float negative = 0;  // sum of what is negative
  float input2 =
      0;  // sum of x * x; 0 with a residual: subtract_sign's sum of squares gives it then
  uint32_t positives = 0;  // how many sign bits are clear
};

struct LevelsKernels {
  // Bit i is set where x's sign bit is clear: x >= 0, but for -0. The residual becomes x: subtracting what was sent
  // (subtract_sign) needs the scales first. encode_sign: `positive` of the result is the sum of |x|, `negative` and
  // `positives` are 0.
  SignSums (*encode_sign)(const float* gradient, float* residual, float grad_scale, size_t n,
                          uint8_t* bits);
  SignSums (*encode_sign_split)(const float* gradient, float* residual, float grad_scale, size_t n,
                                uint8_t* bits);
  // residual[i] -= its sign bit is clear ? positive : negative. Returns the sum of the new residuals' squares.
  float (*subtract_sign)(float positive, float negative, size_t n, float* residual);
  // Bit i is x > threshold and stands for +value, else -value. The residual becomes x - decoded.
  BlockSums (*encode_1bit_fixed)(const float* gradient, float* residual, float grad_scale,
                                 float threshold, float value, size_t n, uint8_t* bits);
  // plane0: x >= threshold, sends +threshold; plane1: x <= -threshold, sends -threshold. REQUIRES: threshold > 0.
  BlockSums (*encode_2bit_fixed)(const float* gradient, float* residual, float grad_scale,
                                 float threshold, size_t n, uint8_t* plane0, uint8_t* plane1);

  void (*decode_1bit)(const uint8_t* bits, float positive, float negative, size_t n, float* dst);
  void (*add_1bit)(const uint8_t* bits, float positive, float negative, size_t n, float* dst);
  void (*decode_2bit)(const uint8_t* plane0, const uint8_t* plane1, float positive, float negative,
                      size_t n, float* dst);
  void (*add_2bit)(const uint8_t* plane0, const uint8_t* plane1, float positive, float negative,
                   size_t n, float* dst);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LEVELS_H_
