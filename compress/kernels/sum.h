// SPDX-License-Identifier: Apache-2.0
// Kernels that add up many payloads at once. kernels.h has the conventions.
#ifndef SLIMPS_COMPRESS_KERNELS_SUM_H_
#define SLIMPS_COMPRESS_KERNELS_SUM_H_

#include <cstddef>
#include <cstdint>

namespace slimps {

// One block of a payload with one or two bits per element (compress/format/levels.h). Bit i stands
// for element i.
struct LevelsTerm {
  const uint8_t* plane0 = nullptr;
  const uint8_t* plane1 = nullptr;  // with two bits only
  float positive = 0;
  float negative = 0;
};

// Sets dst[i] = ((start + term 0) + term 1) + ..., each sum rounded. Sums stay in registers over
// all terms.
using SumTerms = void (*)(const LevelsTerm* terms, size_t count, size_t n, float* dst);

struct SumKernels {
  SumTerms sum_1bit;  // start = +0
  SumTerms add_1bit;  // start = dst[i]
  SumTerms sum_2bit;
  SumTerms add_2bit;

  // Replaces x[i] by its sign, 1 or -1. Zeros and NaN stay as they are.
  void (*sign)(size_t n, float* x);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_SUM_H_
