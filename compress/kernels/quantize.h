// Kernels of four and eight bits per element and of stochastic rounding. Conventions: kernels.h; layouts and what levels
// mean: compress/format/levels.h; random numbers: compress/format/philox.h.
#ifndef SLIMPS_COMPRESS_KERNELS_QUANTIZE_H_
#define SLIMPS_COMPRESS_KERNELS_QUANTIZE_H_

#include <cstddef>
#include <cstdint>

#include "compress/kernels/block_sums.h"

namespace slimps {

struct InputNorms {
  float input2 = 0;   // sum of x * x, in 16 lanes
  float largest = 0;  // of |x|
};

// As PhiloxStream of compress/format/philox.h.
struct RandomStream {
  uint32_t key0 = 0, key1 = 0;
  uint32_t round = 0;
  uint32_t worker = 0;
  uint32_t partition = 0;
};

// How elements of one scale are rounded to levels. With a = |x| * inverse and u the element's uniform number:
//   linear   level = floor(a), plus 1 where u < a - floor(a); at most `levels`; decodes to level * scale
//   natural  a < 1: level = 1 where u < a, else 0. a >= 1: the upper 23 bits of the element's random word are added to
//            a's as they lie, which carries into the exponent with the mantissa's probability; level = exponent + 1, at
//            most `levels`; decodes to 2^(level - levels) * scale
//   ternary  level = 1 where u < a, else 0; decodes to level * scale
// and the sign is x's.
struct Rounding {
  float grad_scale = 1;
  float inverse = 0;
  float scale = 0;
  uint32_t levels = 1;
  RandomStream random;
  uint32_t first = 0;  // the first element's number in its partition: a multiple of 64
};

using QuantizeLevels = BlockSums (*)(const float* gradient, float* residual,
                                     const Rounding& rounding, size_t n, uint8_t* out);
using LevelsToFloats = void (*)(const uint8_t* in, float scale, uint32_t levels, size_t n,
                                float* dst);

struct QuantizeKernels {
  // Reads only.
  InputNorms (*measure)(const float* gradient, const float* residual, float grad_scale, size_t n);

  // Bit i is x >= 0 and stands for 1, else -1. The residual becomes x - decoded.
  BlockSums (*sign)(const float* gradient, float* residual, float grad_scale, size_t n,
                    uint8_t* bits);

  // The residual becomes x - decoded. Of the sums input2 is left 0: measure has it. Bits past n are 0.
  QuantizeLevels linear_4bit;
  QuantizeLevels linear_8bit;
  QuantizeLevels natural_4bit;
  QuantizeLevels natural_8bit;
  // `sent` counts what is not 0. The second plane is `plane_bytes` after the first.
  BlockSums (*ternary)(const float* gradient, float* residual, const Rounding& rounding, size_t n,
                       uint8_t* out, size_t plane_bytes);

  LevelsToFloats decode_linear_4bit, add_linear_4bit;
  LevelsToFloats decode_linear_8bit, add_linear_8bit;
  LevelsToFloats decode_natural_4bit, add_natural_4bit;
  LevelsToFloats decode_natural_8bit, add_natural_8bit;
  // Whether none of n levels of `bits` bits, 4 or 8, is over `levels` in magnitude.
  bool (*levels_within_4bit)(const uint8_t* in, uint32_t levels, size_t n);
  bool (*levels_within_8bit)(const uint8_t* in, uint32_t levels, size_t n);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_QUANTIZE_H_
