// Kernels of the sparse format: indices and values of one block. Conventions: kernels.h; layout of the bytes:
// compress/format/sparse.h. Indices are of elements within their block, rising.
#ifndef SLIMPS_COMPRESS_KERNELS_SPARSE_H_
#define SLIMPS_COMPRESS_KERNELS_SPARSE_H_

#include <cstddef>
#include <cstdint>

#include "compress/kernels/quantize.h"

namespace slimps {

// How seeded entries are spread over blocks: floor((e * count + offset) / elements) of them lie before element e.
struct SeededGrid {
  uint64_t elements = 0;
  uint64_t count = 0;
  uint64_t offset = 0;

  // REQUIRES: elements > 0; all numbers are under 2^32.
  constexpr size_t Before(uint64_t element) const { return (element * count + offset) / elements; }
};

struct SentSums {
  float sent2 = 0;     // sum of squares of the values
  float decoded2 = 0;  // of what they decode to
  float error2 = 0;    // of the differences
};

struct SparseKernels {
  // 12 bits each, lowest first. `start`: 1 where the first index begins in the upper half of byte 0, else 0. Bits of
  // the first and last byte that are no index's are written as 0.
  void (*encode_packed)(const uint32_t* index, size_t n, size_t start, uint8_t* out);
  // `base` is added to every index, here and below.
  void (*decode_packed)(const uint8_t* in, size_t start, size_t n, uint32_t base, uint32_t* index);

  // How many bytes encode_delta writes.
  size_t (*delta_bytes)(const uint32_t* index, size_t n);
  size_t (*encode_delta)(const uint32_t* index, size_t n, uint8_t* out);
  // Returns how many indices; `index` has room for bytes + 1. Sums are not checked.
  size_t (*decode_delta)(const uint8_t* in, size_t bytes, uint32_t base, uint32_t* index);

  // Whether every index is greater than the one before and under `bound`. REQUIRES: indices under 2^31.
  bool (*rising)(const uint32_t* index, size_t n, uint32_t bound);
  bool (*finite)(const float* values, size_t n);

  // The indices of `blocks` blocks from `first_block` on, block by block, as compress/format/sparse.h says; counted from
  // the first of these blocks' begin. `index` has room for as many and 16 more. REQUIRES: blocks * 4096 < 2^31.
  void (*draw)(const RandomStream& stream, const SeededGrid& grid, size_t first_block,
               size_t blocks, uint32_t* index);

  // Bit `start` + i is values[i] >= 0; other bits are written as 0. REQUIRES: start < 8.
  void (*encode_signs)(const float* values, size_t n, size_t start, uint8_t* out);
  void (*decode_signs)(const uint8_t* in, size_t start, float positive, float negative, size_t n,
                       float* values);

  void (*add)(const uint32_t* index, const float* values, size_t n,
              float* dst);  // dst[index[i]] +=
  void (*put)(const uint32_t* index, const float* values, size_t n, float* dst);  // dst[index[i]] =
  void (*gather)(const uint32_t* index, const float* from, size_t n, float* values);
  // Asks for the cache lines that put_error will touch.
  void (*prefetch)(const uint32_t* index, size_t n, const float* dst);
  // residual[index[i]] = values[i] - decoded[i], unless `residual` is null.
  SentSums (*put_error)(const uint32_t* index, const float* values, const float* decoded, size_t n,
                        float* residual);
  // x in the residual, unless that is null; returns the sum of x * x.
  float (*store_input)(const float* gradient, float* residual, float grad_scale, size_t n);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_SPARSE_H_
