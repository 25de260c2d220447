// SPDX-License-Identifier: Apache-2.0
// Kernels of integers that are added up without being decoded. kernels.h has the conventions,
// compress/format/lanes.h the layouts. Here a lane is one element's integer on the wire, or a sum
// of them in uint32. n is a multiple of 16: the length of a rotated block.
#ifndef SLIMPS_COMPRESS_KERNELS_WIRE_LANES_H_
#define SLIMPS_COMPRESS_KERNELS_WIRE_LANES_H_

#include <cstddef>
#include <cstdint>

#include "compress/kernels/block_sums.h"
#include "compress/kernels/quantize.h"

namespace slimps {

// The largest integer that a table of 16 levels may have.
inline constexpr uint32_t kMaxGranularity = 31;

// How y is rounded to one of 16 levels T[0] = 0 < T[1] < ... < T[15] = g, at random and, up to the
// clamping, without bias. In units of two levels, `base` and `slope` map T[z] to z * 2^16, and what
// lies between two levels on a straight line. Entry k holds from 2 k - 1 to 2 k + 1: there the line
// must not bend. Each operation is rounded to fp32, and nearest rounds ties to even.
//
//   w = min(max(y * inverse + g / 4, 0), g / 2)
//   p = min(base[k] + slope[k] * w, 15 * 2^16), k = nearest(w)
//   code = floor((nearest(p) + r) / 2^16)
//
// r is the element's 16 random bits. Code c decodes to (2 T[c] - g) * scale, one product. inverse =
// 1 / (4 * scale).
struct CodeRounding {
  float inverse = 0;
  float scale = 0;
  const uint8_t* table = nullptr;                 // T
  const float *base = nullptr, *slope = nullptr;  // 16 entries each
  RandomLanes* random = nullptr;
};

struct WireLaneKernels {
  // Writes a code for each of y's numbers, as levels of 4 bits lie, and sets y to what the codes
  // decode to. Returns decoded2 and error2.
  BlockSums (*round_codes)(float* y, const CodeRounding& rounding, size_t n, uint8_t* out);

  // Sets lanes[i] += T[code i] of each term. REQUIRES: T[15] * count <= 255.
  void (*add_codes)(const uint8_t* const* terms, size_t count, const uint8_t* table, size_t n,
                    uint32_t* lanes);

  // Set lanes[i] += number i of `in`, which has one or two bytes each.
  void (*add_bytes)(const uint8_t* in, size_t n, uint32_t* lanes);
  void (*add_words)(const uint8_t* in, size_t n, uint32_t* lanes);

  // Sets dst[i] = (2 * lanes[i] - largest) * scale. REQUIRES: lanes[i] <= largest < 2^23.
  void (*to_floats)(const uint32_t* lanes, uint32_t largest, float scale, size_t n, float* dst);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_WIRE_LANES_H_
