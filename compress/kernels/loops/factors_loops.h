// SPDX-License-Identifier: Apache-2.0
// The kernels of factors.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_FACTORS_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_FACTORS_LOOPS_H_

#include "compress/kernels/factors.h"
#include "compress/kernels/lanes/lanes.h"
#include "compress/kernels/loops/input_loops.h"

namespace slimps {
namespace {

template <bool kAdd>
void ExpandRow(const std::byte* u, const std::byte* v, size_t rank, size_t stride, size_t n,
               float* dst) {
  const auto* const factors = reinterpret_cast<const float*>(v);
  ForLanes(n, [&](size_t i, auto count) {
    F32x16 sum = SetF(0);
    for (size_t k = 0; k < rank; ++k) {
      float factor;
      std::memcpy(&factor, u + k * sizeof factor, sizeof factor);
      sum = AddF(sum, MulF(SetF(factor), LoadF(factors + k * stride + i, count)));
    }
    Emit<kAdd>(sum, dst + i, count);
  });
}

constexpr FactorKernels kFactorKernels = {.decode = ExpandRow<false>, .add = ExpandRow<true>};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_FACTORS_LOOPS_H_
