// SPDX-License-Identifier: Apache-2.0
// What a kernel learns about a block while it encodes it, for EncodeStats. Sums of squares run in
// 16 fp32 lanes. They are infinite where squares exceed fp32. That does no harm: they are
// statistics, and no payload depends on them.
#ifndef SLIMPS_COMPRESS_KERNELS_BLOCK_SUMS_H_
#define SLIMPS_COMPRESS_KERNELS_BLOCK_SUMS_H_

#include <cstdint>

namespace slimps {

struct BlockSums {
  float input2 = 0;    // sum of x * x
  float decoded2 = 0;  // sum of decode(x) * decode(x)
  float error2 = 0;    // sum of (x - decode(x))^2
  uint32_t sent = 0;   // elements that the payload carries
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_BLOCK_SUMS_H_
