// SPDX-License-Identifier: Apache-2.0
// The random numbers of codecs that round every element: xoshiro128+ (Blackman, Vigna: "Scrambled
// linear pseudorandom number generators", ACM Transactions on Mathematical Software 47, 2021),
// started by Philox. Philox itself, with ten rounds for every element, would cost as much as the
// rest of such a codec.
//
// Each block of 4,096 elements has sixteen generators. For block b:
//
//   state   of generator j: the four words that Philox gives for counter c0 = 16 * b + j, with
//           c1 to c3 and the key as in compress/format/philox.h
//   short   of element i of the block: generator i % 16, its step i / 32 (from 0); the lower half
//           of its 32 bits where i % 32 < 16, otherwise the upper half
//
// So sixteen lanes with sixteen generators give 32 consecutive elements per step without a shuffle.
// Blocks repeat bit for bit, whatever the threads and the order. No receiver needs these numbers.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_XOSHIRO_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_XOSHIRO_LOOPS_H_

#include "compress/kernels/lanes/lanes.h"
#include "compress/kernels/loops/philox_loops.h"
#include "compress/kernels/quantize.h"

namespace slimps {
namespace {

inline void StartRandom(const RandomStream& stream, uint32_t block, RandomLanes* lanes) {
  const PhiloxWords words = PhiloxLanes(stream)(16 * block);
  for (size_t k = 0; k < 4; ++k) StoreI(words.word[k], lanes->word[k], AllLanes());
}

// Draws `steps` words from every lane.
inline void DrawSteps(RandomLanes* lanes, size_t steps, uint32_t* words) {
  I32x16 s0 = LoadI(lanes->word[0], AllLanes()), s1 = LoadI(lanes->word[1], AllLanes());
  I32x16 s2 = LoadI(lanes->word[2], AllLanes()), s3 = LoadI(lanes->word[3], AllLanes());
  for (size_t step = 0; step < steps; ++step) {
    StoreI(AddI(s0, s3), words + step * kLanes, AllLanes());
    const I32x16 shifted = ShiftLeftI<9>(s1);
    s2 = XorI(s2, s0);
    s3 = XorI(s3, s1);
    s1 = XorI(s1, s2);
    s0 = XorI(s0, s3);
    s2 = XorI(s2, shifted);
    s3 = OrI(ShiftLeftI<11>(s3), ShiftRightI<21>(s3));
  }
  StoreI(s0, lanes->word[0], AllLanes());
  StoreI(s1, lanes->word[1], AllLanes());
  StoreI(s2, lanes->word[2], AllLanes());
  StoreI(s3, lanes->word[3], AllLanes());
}

// Calls pair(i, low, high) for every 32 elements, with 16 random bits for each element of both
// groups of lanes. At the end it calls one(i, count, random) for what is left. Words are drawn
// ahead into a small array, since state and body together need more registers than there are.
template <typename Pair, typename One>
inline __attribute__((always_inline)) void ForRandomLanes(RandomLanes* lanes, size_t n,
                                                          const Pair& pair, const One& one) {
  constexpr size_t kStep = 2 * kLanes, kSteps = 8;
  alignas(64) uint32_t words[kSteps * kLanes];
  const I32x16 low = SetI(0xffff);
  size_t i = 0;
  while (i < n) {
    const size_t left = n - i;
    const size_t steps = left < kSteps * kStep ? (left + kStep - 1) / kStep : kSteps;
    DrawSteps(lanes, steps, words);
    const size_t whole = left < kSteps * kStep ? left / kStep : kSteps;
    const uint32_t* from = words;
    for (size_t step = 0; step < whole; ++step, from += kLanes, i += kStep) {
      const I32x16 word = LoadI(from, AllLanes());
      pair(i, AndI(word, low), ShiftRightI<16>(word));
    }
    if (whole == steps) continue;
    const I32x16 word = LoadI(from, AllLanes());
    ForLanes(n - i, [&](size_t j, auto count) {
      one(i + j, count, j == 0 ? AndI(word, low) : ShiftRightI<16>(word));
    });
    return;
  }
}

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_XOSHIRO_LOOPS_H_
