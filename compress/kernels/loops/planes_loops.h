// SPDX-License-Identifier: Apache-2.0
// What one and two bits per element stand for, 32 elements at a time. Decoders and sums share it.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_PLANES_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_PLANES_LOOPS_H_

#include "compress/kernels/loops/input_loops.h"
#include "compress/kernels/sum.h"

namespace slimps {
namespace {

struct OneBit {
  // The bits of 32 elements of one term.
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
    // At least one of the two is +0, which has no bits, so OR joins them.
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

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_PLANES_LOOPS_H_
