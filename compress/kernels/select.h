// SPDX-License-Identifier: Apache-2.0
// Kernels that choose which elements a sparse codec sends, by key: |x|, x or -x. kernels.h has the
// conventions.
#ifndef SLIMPS_COMPRESS_KERNELS_SELECT_H_
#define SLIMPS_COMPRESS_KERNELS_SELECT_H_

#include <cstddef>
#include <cstdint>

namespace slimps {

enum class SelectBy : uint8_t { kMagnitude, kPositive, kNegative };  // key: |x|, x, -x

// What the first pass over a block learns.
struct Candidates {
  uint32_t count = 0;       // elements whose key is at least the floor
  float rest2 = 0;          // sum of x * x of the other elements
  float magnitude_sum = 0;  // sum of |x| of all elements
  float magnitude_max = 0;  // largest |x|; 0 for n = 0
};

// What to send: all elements with key >= sure, and the first `fill` with filler <= key < sure.
struct Choice {
  float sure = 0;
  float filler = 0;
  size_t fill = 0;
};

struct ChoiceCounts {
  uint32_t sure = 0;
  uint32_t filler = 0;
};

struct Picked {
  uint32_t count = 0;
  float left2 = 0;  // sum of squares of the elements that were not chosen
};

struct SelectKernels {
  // Lists the candidates in rising order: index[j] is the element's number, value[j] its x. Both
  // have room for n + 16. Leaves x in the residual unless that is null. REQUIRES: floor > 0.
  Candidates (*collect)(const float* gradient, float* residual, float grad_scale, SelectBy by,
                        float floor, size_t n, uint32_t* index, float* value);

  // Counts the elements that `choice` takes, with x[i] = values[i] * scale.
  ChoiceCounts (*count)(const float* values, float scale, SelectBy by, Choice choice, size_t n);

  // Lists the elements that `choice` takes, with x[i] = values[i] * scale. x[i] stands at index[i],
  // or at i where `index` is null. The outputs have room for n + 16. They may be the inputs.
  Picked (*pick)(const float* values, const uint32_t* index, float scale, SelectBy by,
                 Choice choice, size_t n, uint32_t* picked_index, float* picked);

  // Adds 1 to counts[bits >> shift & 2047] for every key whose bits >> shift >> 11 equal `prefix`.
  // Keys under 0 count as 0.
  void (*histogram)(const float* values, float scale, SelectBy by, uint32_t shift, uint32_t prefix,
                    size_t n, uint32_t* counts);
};

inline constexpr size_t kHistogramBits = 11;
inline constexpr size_t kHistogramCounts = size_t{1} << kHistogramBits;

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_SELECT_H_
