// Kernels that add up many payloads at once. Conventions: kernels.h.
#ifndef SLIMPS_COMPRESS_KERNELS_SUM_H_
#define SLIMPS_COMPRESS_KERNELS_SUM_H_

#include <cstddef>
#include <cstdint>

namespace slimps {

// One block of a payload with one or two bits per element (compress/format/levels.h): bit i stands for element i.
struct LevelsTerm {
  const uint8_t* plane0 = nullptr;
  const uint8_t* plane1 = nullptr;  // of two bits
  float positive = 0;
  float negative = 0;
};

// dst[i] = ((start + term 0) + term 1) + ..., each sum rounded; sums stay in registers over all terms.
using SumTerms = void (*)(const LevelsTerm* terms, size_t count, size_t n, float* dst);

struct SumKernels {
  SumTerms sum_1bit;  // start is +0
  SumTerms add_1bit;  // start is dst[i]
  SumTerms sum_2bit;
  SumTerms add_2bit;
  // x[i] = its sign: 1, -1; zeros and NaN stay.
  void (*sign)(size_t n, float* x);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_SUM_H_
