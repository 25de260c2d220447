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

// The 16 levels T that codes stand for.
inline constexpr uint8_t kCodeTable[16] = {0,  3,  5,  7,  9,  11, 13, 14,
                                           15, 17, 19, 21, 23, 25, 27, 30};

// How y is rounded to one of the levels of kCodeTable, at random and, up to the clamping, without
// bias. With u = y / (2 * scale) + 15, where level T[z] lies at T[z], the place of u is z, and a
// straight line between two levels. The levels' gaps are 3, five times 2, 1, 1, six times 2, and 3:
//
//   place(u) = u / 3 + clamp(u, 3, 27) / 6 + clamp(u, 13, 15) / 2 - 7
//
// In fp32, with w = 2^16 * (u / 2 - 3.5), which leaves no constant over. Each operation is rounded,
// and nearest rounds ties to even:
//
//   w = min(max(y * inverse + 4 * 2^16, -3.5 * 2^16), 11.5 * 2^16)
//   p = ((w + w) + min(max(w, -2 * 2^16), 10 * 2^16)) * fp32(1 / 3)
//       + min(max(w, 3 * 2^16), 4 * 2^16)
//   code = floor((nearest(p) + r) / 2^16)
//
// r is the element's 16 random bits. Code c decodes to (2 T[c] - 30) * scale, one product, and
// inverse = 2^14 / scale.
struct CodeRounding {
  float inverse = 0;
  float scale = 0;
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
