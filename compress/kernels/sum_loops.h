// The kernels of sum.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_SUM_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_SUM_LOOPS_H_

#include "compress/kernels/input_loops.h"
#include "compress/kernels/lanes.h"
#include "compress/kernels/sum.h"

namespace slimps {
namespace {

// Elements whose sums are kept in registers at once: with AVX2 eight of the sixteen, which leaves room for a term's two
// values, its bits and the shifts.
constexpr size_t kSumElements = 64;

struct OneBit {
  // 32 elements' worth of one term.
  struct Word {
    Bits32 bits;
  };
  static Word Load(const LevelsTerm& term, size_t i) { return {LoadBits32(term.plane0 + i / 8)}; }
  template <int kHalf>
  static F32x16 Values(Word word, F32x16 plus, F32x16 minus) {
    return SelectHalfF<kHalf>(word.bits, plus, minus);
  }
  template <typename Count>
  static F32x16 ValuesAt(const LevelsTerm& term, size_t i, Count count, F32x16 plus, F32x16 minus) {
    return SelectBitsF(LoadBits(term.plane0, i, count), plus, minus);
  }
};

struct TwoBits {
  struct Word {
    Bits32 high, low;
  };
  static Word Load(const LevelsTerm& term, size_t i) {
    // Both bits set means zero.
    const Bits32 high = LoadBits32(term.plane0 + i / 8), low = LoadBits32(term.plane1 + i / 8);
    return {AndNotB(high, low), AndNotB(low, high)};
  }
  template <int kHalf>
  static F32x16 Values(Word word, F32x16 plus, F32x16 minus) {
    // One of the two is +0, no bits at all.
    const F32x16 zero = SetF(0);
    return AsF(OrI(AsI(SelectHalfF<kHalf>(word.high, plus, zero)),
                   AsI(SelectHalfF<kHalf>(word.low, minus, zero))));
  }
  template <typename Count>
  static F32x16 ValuesAt(const LevelsTerm& term, size_t i, Count count, F32x16 plus, F32x16 minus) {
    const uint32_t high = LoadBits(term.plane0, i, count), low = LoadBits(term.plane1, i, count);
    return SelectBitsF(high & ~low, plus, SelectBitsF(low & ~high, minus, SetF(0)));
  }
};

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

#endif  // SLIMPS_COMPRESS_KERNELS_SUM_LOOPS_H_
