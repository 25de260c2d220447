// SPDX-License-Identifier: Apache-2.0
// Kernels of the sparse format: indices and values of one block. Indices count elements within
// their block, and they rise. kernels.h has the conventions, compress/format/sparse.h the layout of
// the bytes.
#ifndef SLIMPS_COMPRESS_KERNELS_SPARSE_H_
#define SLIMPS_COMPRESS_KERNELS_SPARSE_H_

#include <cstddef>
#include <cstdint>

#include "compress/kernels/quantize.h"

namespace slimps {

// Spreads seeded entries over blocks: floor((e * count + offset) / elements) of them lie before
// element e.
struct SeededGrid {
  uint64_t elements = 0;
  uint64_t count = 0;
  uint64_t offset = 0;

  // Returns the entries before `element`. REQUIRES: elements > 0; all numbers are under 2^32.
  constexpr size_t Before(uint64_t element) const { return (element * count + offset) / elements; }
};

struct SentSums {
  float sent2 = 0;     // sum of squares of the values sent
  float decoded2 = 0;  // sum of squares of what they decode to
  float error2 = 0;    // sum of squares of the differences
};

struct SparseKernels {
  // Packs indices of 12 bits, lowest bit first. `start` is 1 if the first index begins in the upper
  // half of byte 0, otherwise 0. Bits of the first and last byte that belong to no index are
  // written as 0.
  void (*encode_packed)(const uint32_t* index, size_t n, size_t start, uint8_t* out);

  // Unpacks n indices. Here and below, `base` is added to each.
  void (*decode_packed)(const uint8_t* in, size_t start, size_t n, uint32_t base, uint32_t* index);

  // Returns how many bytes encode_delta writes.
  size_t (*delta_bytes)(const uint32_t* index, size_t n);

  // Returns how many bytes it wrote.
  size_t (*encode_delta)(const uint32_t* index, size_t n, uint8_t* out);

  // Returns how many indices it wrote. `index` has room for bytes + 1. Sums are not checked.
  size_t (*decode_delta)(const uint8_t* in, size_t bytes, uint32_t base, uint32_t* index);

  // True if every index is greater than the one before and below `bound`. REQUIRES: indices below
  // 2^31.
  bool (*rising)(const uint32_t* index, size_t n, uint32_t bound);

  // True if no value is infinite or NaN.
  bool (*finite)(const float* values, size_t n);

  // Draws the indices of `blocks` blocks from `first_block` on, block by block, as
  // compress/format/sparse.h says. They count from the first of these blocks' begin. `index` has
  // room for them and 16 more. REQUIRES: blocks * 4096 < 2^31.
  void (*draw)(const RandomStream& stream, const SeededGrid& grid, size_t first_block,
               size_t blocks, uint32_t* index);

  // Sets bit `start` + i where values[i] >= 0. Other bits are written as 0. REQUIRES: start < 8.
  void (*encode_signs)(const float* values, size_t n, size_t start, uint8_t* out);
  void (*decode_signs)(const uint8_t* in, size_t start, float positive, float negative, size_t n,
                       float* values);

  // Sets dst[index[i]] += values[i].
  void (*add)(const uint32_t* index, const float* values, size_t n, float* dst);

  // Sets dst[index[i]] = values[i].
  void (*put)(const uint32_t* index, const float* values, size_t n, float* dst);

  // Sets values[i] = from[index[i]].
  void (*gather)(const uint32_t* index, const float* from, size_t n, float* values);

  // Prefetches the cache lines that put_error will touch.
  void (*prefetch)(const uint32_t* index, size_t n, const float* dst);

  // Sets residual[index[i]] = values[i] - decoded[i] unless `residual` is null.
  SentSums (*put_error)(const uint32_t* index, const float* values, const float* decoded, size_t n,
                        float* residual);

  // Leaves x in the residual unless that is null. Returns the sum of x * x.
  float (*store_input)(const float* gradient, float* residual, float grad_scale, size_t n);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_SPARSE_H_
