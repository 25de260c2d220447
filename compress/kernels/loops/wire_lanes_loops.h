// SPDX-License-Identifier: Apache-2.0
// The kernels of wire_lanes.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_WIRE_LANES_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_WIRE_LANES_LOOPS_H_

#include "compress/kernels/loops/input_loops.h"
#include "compress/kernels/loops/xoshiro_loops.h"
#include "compress/kernels/wire_lanes.h"

namespace slimps {
namespace {

inline BlockSums RoundCodes(float* y, const CodeRounding& rounding, size_t n, uint8_t* out) {
  alignas(64) float decoded_of[kLanes];
  for (size_t c = 0; c < kLanes; ++c) {
    decoded_of[c] = (2 * static_cast<float>(kCodeTable[c]) - kCodeTable[15]) * rounding.scale;
  }
  const auto units = [](float codes) { return SetF(65536 * codes); };
  const F32x16 inverse = SetF(rounding.inverse), middle = units(4), third = SetF(1.0f / 3);
  const F32x16 least = units(-3.5f), most = units(11.5f);
  const F32x16 from_13 = units(3), to_15 = units(4), from_3 = units(-2), to_27 = units(10);
  F32x16 decoded2 = SetF(0), error2 = SetF(0);
  const auto code_of = [&](size_t i, I32x16 random) {
    const F32x16 x = LoadF(y + i, AllLanes());
    const F32x16 w = MinF(MaxF(AddF(MulF(x, inverse), middle), least), most);
    const F32x16 wide = MinF(MaxF(w, from_3), to_27), steep = MinF(MaxF(w, from_13), to_15);
    const F32x16 place = AddF(MulF(AddF(AddF(w, w), wide), third), steep);
    const I32x16 code = ShiftRightI<16>(AddI(ToNearestInt(place), random));
    const F32x16 decoded = LookupF(decoded_of, code);
    CountSquare(decoded2, decoded);
    CountSquare(error2, SubF(x, decoded));
    StoreF(decoded, y + i, AllLanes());
    return code;
  };
  ForRandomLanes(
      rounding.random, n,
      [&](size_t i, I32x16 first, I32x16 second) {
        const I32x16 low = code_of(i, first);
        StoreNibblesI8(PackI8(low, code_of(i + kLanes, second)), out + i / 2);
      },
      [&](size_t i, auto, I32x16 random) {
        const uint64_t packed = PackNibbles(code_of(i, random));
        std::memcpy(out + i / 2, &packed, sizeof packed);
      });
  return {
      .decoded2 = FoldSum(decoded2), .error2 = FoldSum(error2), .sent = static_cast<uint32_t>(n)};
}

// Sixty-four elements at a time: the even ones' codes are the lower halves of 32 bytes, the odd
// ones' the upper halves. Sums stay bytes until all terms are added.
inline void AddCodes(const uint8_t* const* terms, size_t count, const uint8_t* table, size_t n,
                     uint32_t* lanes) {
  constexpr size_t kStep = 64;
  const I8x32 levels = RepeatI8(table);
  alignas(64) uint8_t sums[kStep];
  size_t i = 0;
  for (; n - i >= kStep; i += kStep) {
    I8x32 even = SetI8(0), odd = SetI8(0);
    for (size_t term = 0; term < count; ++term) {
      const I8x32 codes = LoadI8(terms[term] + i / 2);
      even = AddI8(even, LookupI8(levels, LowNibblesI8(codes)));
      odd = AddI8(odd, LookupI8(levels, HighNibblesI8(codes)));
    }
    StoreInterleavedI8(even, odd, sums);
    for (size_t j = 0; j < kStep; j += kLanes) {
      uint32_t* const to = lanes + i + j;
      StoreI(AddI(LoadI(to, AllLanes()), LoadBytes(sums + j, AllLanes())), to, AllLanes());
    }
  }
  for (; i < n; ++i) {
    for (size_t term = 0; term < count; ++term) {
      lanes[i] += table[terms[term][i / 2] >> (i % 2 * 4) & 15];
    }
  }
}

inline void AddBytes(const uint8_t* in, size_t n, uint32_t* lanes) {
  for (size_t i = 0; i < n; i += kLanes) {
    StoreI(AddI(LoadI(lanes + i, AllLanes()), LoadBytes(in + i, AllLanes())), lanes + i,
           AllLanes());
  }
}

// A bfloat16 is the upper half of a float, so loading one shifts its bits there.
inline void AddWords(const uint8_t* in, size_t n, uint32_t* lanes) {
  const auto* words = reinterpret_cast<const std::byte*>(in);
  for (size_t i = 0; i < n; i += kLanes) {
    const I32x16 lane = ShiftRightI<16>(AsI(LoadBf16(words + 2 * i, AllLanes())));
    StoreI(AddI(LoadI(lanes + i, AllLanes()), lane), lanes + i, AllLanes());
  }
}

inline void ToFloats(const uint32_t* lanes, uint32_t largest, float scale, size_t n, float* dst) {
  const F32x16 by = SetF(scale);
  const I32x16 middle = SetI(largest);
  for (size_t i = 0; i < n; i += kLanes) {
    const I32x16 lane = LoadI(lanes + i, AllLanes());
    StoreF(MulF(ToFloat(SubI(AddI(lane, lane), middle)), by), dst + i, AllLanes());
  }
}

constexpr WireLaneKernels kWireLaneKernels = {.round_codes = RoundCodes,
                                              .add_codes = AddCodes,
                                              .add_bytes = AddBytes,
                                              .add_words = AddWords,
                                              .to_floats = ToFloats};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_WIRE_LANES_LOOPS_H_
