// SPDX-License-Identifier: Apache-2.0
// Kernels of four and eight bits per element and of stochastic rounding. kernels.h has the
// conventions, compress/format/levels.h the layouts and what levels mean, loops/xoshiro_loops.h the
// random numbers.
#ifndef SLIMPS_COMPRESS_KERNELS_QUANTIZE_H_
#define SLIMPS_COMPRESS_KERNELS_QUANTIZE_H_

#include <cstddef>
#include <cstdint>

#include "compress/kernels/block_sums.h"

namespace slimps {

struct InputNorms {
  float input2 = 0;   // sum of x * x, in 16 lanes
  float largest = 0;  // largest |x|
};

// Has the fields of PhiloxStream in compress/format/philox.h.
struct RandomStream {
  uint32_t key0 = 0, key1 = 0;
  uint32_t round = 0;
  uint32_t worker = 0;
  uint32_t partition = 0;
};

// The generators of one block, as [word of the state][lane].
struct RandomLanes {
  alignas(64) uint32_t word[4][16];
};

// How elements of one scale are rounded to levels. r is the element's 16 random bits. t = x *
// inverse counts in 2^-16 of the smallest level.
//
//   linear    level = floor((nearest(t) + r) / 2^16), nearest with ties to even. Decodes to
//             level * scale
//   ternary   the same with t clamped to +-2^16
//   natural   uses |t|. Below 2^16 it gives level 0 or 1, as linear does. From there on
//             128 * r + 64 is added to the bits of |t|: the mantissa carries into the exponent with
//             the probability that it stands for. level = exponent - 15. The sign is x's.
//             Decodes to sign * 2^(level - levels) * scale, and to +0 for level 0
//
// So a level's expectation is exact to 2^-17 of the step between levels. REQUIRES for linear and
// natural: with this `inverse` no |level| exceeds what the bits hold.
struct Rounding {
  float grad_scale = 1;
  float inverse = 0;
  float scale = 0;
  uint32_t levels = 1;
  // The random numbers; every call draws from them and moves them on. A block may be rounded in
  // several calls, in the order of its elements. Then n is a multiple of 32 in all calls but the
  // last.
  RandomLanes* random = nullptr;
};

using QuantizeLevels = BlockSums (*)(const float* gradient, float* residual,
                                     const Rounding& rounding, size_t n, uint8_t* out);
using LevelsToFloats = void (*)(const uint8_t* in, float scale, uint32_t levels, size_t n,
                                float* dst);

using MeasureInput = InputNorms (*)(const float* gradient, const float* residual, float grad_scale,
                                    size_t n);

struct QuantizeKernels {
  // Only read. measure_largest is quicker, but the last bits of its input2 may differ: use it where
  // only statistics depend on input2.
  MeasureInput measure, measure_largest;

  // Sets bit i where x >= 0. A set bit stands for 1, a clear one for -1. The residual becomes x -
  // decoded.
  BlockSums (*sign)(const float* gradient, float* residual, float grad_scale, size_t n,
                    uint8_t* bits);

  // Starts the generators of a block.
  void (*start_random)(const RandomStream& stream, uint32_t block, RandomLanes* lanes);

  // Round to levels. The residual becomes x - decoded. `input2` of the sums stays 0, since measure
  // gives it. Bits past n are 0.
  QuantizeLevels linear_4bit;
  QuantizeLevels linear_8bit;
  QuantizeLevels natural_4bit;
  QuantizeLevels natural_8bit;

  // Rounds to -1, 0 or 1. `sent` counts the elements that are not 0. The second plane lies
  // `plane_bytes` after the first.
  BlockSums (*ternary)(const float* gradient, float* residual, const Rounding& rounding, size_t n,
                       uint8_t* out, size_t plane_bytes);

  LevelsToFloats decode_linear_4bit, add_linear_4bit;
  LevelsToFloats decode_linear_8bit, add_linear_8bit;
  LevelsToFloats decode_natural_4bit, add_natural_4bit;
  LevelsToFloats decode_natural_8bit, add_natural_8bit;

  // True if the magnitude of none of the n levels is over `levels`.
  bool (*levels_within_4bit)(const uint8_t* in, uint32_t levels, size_t n);
  bool (*levels_within_8bit)(const uint8_t* in, uint32_t levels, size_t n);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_QUANTIZE_H_
