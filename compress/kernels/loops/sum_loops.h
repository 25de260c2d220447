// SPDX-License-Identifier: Apache-2.0
// The kernels of sum.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_SUM_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_SUM_LOOPS_H_

#include "compress/kernels/lanes/lanes.h"
#include "compress/kernels/loops/planes_loops.h"
#include "compress/kernels/sum.h"

namespace slimps {
namespace {

// How many elements' sums are kept in registers at once. With AVX2 they take eight of the sixteen
// registers. The others hold a term's two values, its bits and the shifts.
constexpr size_t kSumElements = 64;

template <typename Format, bool kAdd>
void SumLevels(const LevelsTerm* terms, size_t count, size_t n, float* dst) {
  size_t i = 0;
  for (; n - i >= kSumElements; i += kSumElements) {
    float* const to = dst + i;
    const auto start = [&](size_t j) { return kAdd ? LoadF(to + j, AllLanes()) : SetF(0); };
    F32x16 a = start(0), b = start(16), c = start(32), d = start(48);
    for (const LevelsTerm* term = terms; term != terms + count; ++term) {
      const F32x16 plus = SetF(term->positive), minus = SetF(term->negative);
      const auto first = Format::Load(*term, i);
      a = AddF(a, Format::template Values<0>(first, plus, minus));
      b = AddF(b, Format::template Values<1>(first, plus, minus));
      const auto second = Format::Load(*term, i + 32);
      c = AddF(c, Format::template Values<0>(second, plus, minus));
      d = AddF(d, Format::template Values<1>(second, plus, minus));
    }
    StoreF(a, to, AllLanes());
    StoreF(b, to + 16, AllLanes());
    StoreF(c, to + 32, AllLanes());
    StoreF(d, to + 48, AllLanes());
  }
  ForLanes(n - i, [&](size_t j, auto lanes) {
    F32x16 sum = kAdd ? LoadF(dst + i + j, lanes) : SetF(0);
    for (const LevelsTerm* term = terms; term != terms + count; ++term) {
      sum = AddF(sum,
                 Format::ValuesAt(*term, i + j, lanes, SetF(term->positive), SetF(term->negative)));
    }
    StoreF(sum, dst + i + j, lanes);
  });
}

inline void Sign(size_t n, float* x) {
  const F32x16 zero = SetF(0), plus = SetF(1), minus = SetF(-1);
  ForLanes(n, [&](size_t i, auto count) {
    const F32x16 sum = LoadF(x + i, count);
    StoreF(SelectF(GtF(sum, zero), plus, SelectF(LtF(sum, zero), minus, sum)), x + i, count);
  });
}

constexpr SumKernels kSumKernels = {
    .sum_1bit = SumLevels<OneBit, false>,
    .add_1bit = SumLevels<OneBit, true>,
    .sum_2bit = SumLevels<TwoBits, false>,
    .add_2bit = SumLevels<TwoBits, true>,
    .sign = Sign,
};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_SUM_LOOPS_H_
