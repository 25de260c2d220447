// SPDX-License-Identifier: Apache-2.0
// The kernels of select.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_SELECT_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_SELECT_LOOPS_H_

#include "compress/kernels/loops/input_loops.h"
#include "compress/kernels/select.h"

namespace slimps {
namespace {

template <SelectBy kBy>
inline F32x16 KeyOf(F32x16 x) {
  if constexpr (kBy == SelectBy::kMagnitude) return AbsF(x);
  if constexpr (kBy == SelectBy::kNegative) return SubF(SetF(0), x);
  return x;
}

// Calls body.operator()<by>().
template <typename Body>
inline auto WithKey(SelectBy by, const Body& body) {
  if (by == SelectBy::kPositive) return body.template operator()<SelectBy::kPositive>();
  if (by == SelectBy::kNegative) return body.template operator()<SelectBy::kNegative>();
  return body.template operator()<SelectBy::kMagnitude>();
}

inline uint32_t CountBits(uint32_t bits) { return static_cast<uint32_t>(__builtin_popcount(bits)); }

template <SelectBy kBy, bool kResidual>
Candidates CollectBlock(const float* gradient, float* residual, float grad_scale, float floor,
                        size_t n, uint32_t* index, float* value) {
  const F32x16 scale = SetF(grad_scale), bound = SetF(floor);
  F32x16 rest2 = SetF(0), sum = SetF(0), most = SetF(0);
  size_t found = 0;
  ForLanes(n, [&](size_t i, auto count) {
    F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    if constexpr (kResidual) StoreF(x, residual + i, count);
    const F32x16 magnitude = AbsF(x);
    sum = AddF(sum, magnitude);
    most = MaxF(most, magnitude);
    // The floor is over 0, so lanes past the end are no candidates.
    const Mask16 over = GeF(KeyOf<kBy>(x), bound);
    // Candidates are few: most groups of lanes skip the stores.
    if (__builtin_expect(Bits(over) != 0, 0)) {
      CompressI(over, AddI(Iota(), SetI(static_cast<uint32_t>(i))), index + found);
      found += CompressF(over, x, value + found);
      x = SelectF(over, SetF(0), x);
    }
    AddSquare(rest2, x);
  });
  float lanes[kLanes], largest = 0;
  StoreF(most, lanes, AllLanes());
  for (const float lane : lanes) largest = lane > largest ? lane : largest;
  return {static_cast<uint32_t>(found), FoldSum(rest2), FoldSum(sum), largest};
}

inline Candidates Collect(const float* gradient, float* residual, float grad_scale, SelectBy by,
                          float floor, size_t n, uint32_t* index, float* value) {
  return WithKey(by, [&]<SelectBy kBy>() {
    return residual == nullptr
               ? CollectBlock<kBy, false>(gradient, nullptr, grad_scale, floor, n, index, value)
               : CollectBlock<kBy, true>(gradient, residual, grad_scale, floor, n, index, value);
  });
}

// Finds the lanes that are sure to be chosen, and those that may fill.
template <SelectBy kBy, typename Count>
inline void Classify(F32x16 x, const Choice& choice, Count count, uint32_t& sure,
                     uint32_t& filler) {
  const F32x16 key = KeyOf<kBy>(x);
  sure = Bits(GeF(key, SetF(choice.sure))) & count.bits();
  filler = Bits(GeF(key, SetF(choice.filler))) & count.bits() & ~sure;
}

inline ChoiceCounts CountChoice(const float* values, float scale, SelectBy by, Choice choice,
                                size_t n) {
  return WithKey(by, [&]<SelectBy kBy>() {
    ChoiceCounts counts;
    ForLanes(n, [&](size_t i, auto count) {
      uint32_t sure, filler;
      Classify<kBy>(MulF(LoadF(values + i, count), SetF(scale)), choice, count, sure, filler);
      counts.sure += CountBits(sure);
      counts.filler += CountBits(filler);
    });
    return counts;
  });
}

inline Picked Pick(const float* values, const uint32_t* index, float scale, SelectBy by,
                   Choice choice, size_t n, uint32_t* picked_index, float* picked) {
  return WithKey(by, [&]<SelectBy kBy>() {
    F32x16 left2 = SetF(0);
    size_t found = 0, fill = choice.fill;
    ForLanes(n, [&](size_t i, auto count) {
      const F32x16 x = MulF(LoadF(values + i, count), SetF(scale));
      uint32_t sure, filler;
      Classify<kBy>(x, choice, count, sure, filler);
      // Drop the last fillers: the first ones are chosen.
      while (CountBits(filler) > fill) filler &= ~(0x80000000u >> __builtin_clz(filler));
      fill -= CountBits(filler);
      const Mask16 chosen = MaskOf(sure | filler);
      AddSquare(left2, SelectF(chosen, SetF(0), x));
      if ((sure | filler) == 0) return;
      const I32x16 at =
          index == nullptr ? AddI(Iota(), SetI(static_cast<uint32_t>(i))) : LoadI(index + i, count);
      CompressI(chosen, at, picked_index + found);
      found += CompressF(chosen, x, picked + found);
    });
    return Picked{static_cast<uint32_t>(found), FoldSum(left2)};
  });
}

inline void Histogram(const float* values, float scale, SelectBy by, uint32_t shift,
                      uint32_t prefix, size_t n, uint32_t* counts) {
  WithKey(by, [&]<SelectBy kBy>() {
    ForLanes(n, [&](size_t i, auto count) {
      const F32x16 x = MulF(LoadF(values + i, count), SetF(scale));
      // Adding 0 turns -0 into +0, whose bits are 0.
      const F32x16 key = AddF(MaxF(KeyOf<kBy>(x), SetF(0)), SetF(0));
      uint32_t bits[kLanes];
      StoreI(ShiftRightEachI(AsI(key), SetI(shift)), bits, AllLanes());
      for (size_t j = 0; j < count.size(); ++j) {
        if (bits[j] >> kHistogramBits == prefix) ++counts[bits[j] & (kHistogramCounts - 1)];
      }
    });
  });
}

constexpr SelectKernels kSelectKernels = {
    .collect = Collect,
    .count = CountChoice,
    .pick = Pick,
    .histogram = Histogram,
};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_SELECT_LOOPS_H_
