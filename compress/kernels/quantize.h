// Kernels of four and eight bits per element and of stochastic rounding. Conventions: kernels.h; layouts and what levels
// mean: compress/format/levels.h; random numbers: compress/format/xoshiro.h.
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

// The generators of one block, [state's word][lane].
struct RandomLanes {
  alignas(64) uint32_t word[4][16];
};

// How elements of one scale are rounded to levels. With r the element's 16 random bits and t = x * inverse, whose unit is
// 2^-16 of the smallest level:
//   linear   level = floor((nearest(t) + r) / 2^16), nearest with ties to even; decodes to level * scale
//   ternary  the same with t clamped to +-2^16
//   natural  of |t|. Under 2^16 as linear: 0 or 1. Else 128 r + 64 is added to the bits of |t| as they lie, which carries
//            into the exponent with the mantissa's probability; level = exponent - 15. The sign is x's. Decodes to
//            sign * 2^(level - levels) * scale, +0 for level 0
// So a level's expectation is exact to 2^-17 of the step between levels. REQUIRES of linear and natural: inverse is such
// that no |level| is over what the bits hold.
struct Rounding {
  float grad_scale = 1;
  float inverse = 0;
  float scale = 0;
  uint32_t levels = 1;
  // Drawn from, and moved on. A block may be rounded in several calls, in the order of its elements; n is a multiple of
  // 32 in all but the last.
  RandomLanes* random = nullptr;
};

using QuantizeLevels = BlockSums (*)(const float* gradient, float* residual,
                                     const Rounding& rounding, size_t n, uint8_t* out);
using LevelsToFloats = void (*)(const uint8_t* in, float scale, uint32_t levels, size_t n,
                                float* dst);

using MeasureInput = InputNorms (*)(const float* gradient, const float* residual, float grad_scale,
                                    size_t n);

struct QuantizeKernels {
  // Reads only. The quicker one is for where nothing but statistics depends on input2, which may differ in its last bits.
  MeasureInput measure, measure_largest;

  // Bit i is x >= 0 and stands for 1, else -1. The residual becomes x - decoded.
  BlockSums (*sign)(const float* gradient, float* residual, float grad_scale, size_t n,
                    uint8_t* bits);

  void (*start_random)(const RandomStream& stream, uint32_t block, RandomLanes* lanes);

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
