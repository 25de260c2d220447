// SPDX-License-Identifier: Apache-2.0
// The decoders of quantize.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_DEQUANTIZE_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_DEQUANTIZE_LOOPS_H_

#include "compress/kernels/loops/input_loops.h"
#include "compress/kernels/quantize.h"

namespace slimps {
namespace {

// Returns what signed levels of the map "natural" stand for at scale 1: sign(level) * 2^(|level| -
// levels), and +0 for level 0.
inline F32x16 NaturalUnits(I32x16 level, I32x16 levels) {
  const I32x16 sign = AndI(level, SetI(0x80000000));
  const I32x16 magnitude = NegateI(GtI(SetI(0), level), level);
  const I32x16 exponent = ShiftLeftI<23>(SubI(AddI(magnitude, SetI(127)), levels));
  return KeepF(GtI(magnitude, SetI(0)), AsF(OrI(exponent, sign)));
}

// Returns a mask of four bits for each lane that counts.
inline uint64_t NibbleMask(AllLanes) { return ~uint64_t{0}; }
inline uint64_t NibbleMask(SomeLanes count) { return (uint64_t{1} << (4 * count.n)) - 1; }

// Reading 16 codes of 4 bits: element i + j is in bits 4 * j of the little-endian word at p. At the
// end of an array, LastNibbles copies the last bytes and adds zeros, so that nothing past the end
// is read.
struct LastNibbles {
  LastNibbles(const uint8_t* p, SomeLanes count) { std::memcpy(bytes, p, (count.n + 1) / 2); }
  uint8_t bytes[kLanes / 2] = {};
};
inline I32x16 LoadNibbles(const uint8_t* p, AllLanes) { return LoadNibbles(p); }
inline I32x16 LoadNibbles(const uint8_t* p, SomeLanes count) {
  return LoadNibbles(LastNibbles(p, count).bytes);
}
inline I32x16 LoadSignedNibbles(const uint8_t* p, AllLanes) { return LoadSignedNibbles(p); }
inline I32x16 LoadSignedNibbles(const uint8_t* p, SomeLanes count) {
  return LoadSignedNibbles(LastNibbles(p, count).bytes);
}

template <bool kAdd>
void DecodeLinearNibbles(const uint8_t* in, float scale, uint32_t /*levels*/, size_t n,
                         float* dst) {
  const F32x16 by = SetF(scale);
  ForLanes(n, [&](size_t i, auto count) {
    Emit<kAdd>(MulF(ToFloat(LoadSignedNibbles(in + i / 2, count)), by), dst + i, count);
  });
}

template <bool kAdd>
void DecodeNaturalNibbles(const uint8_t* in, float scale, uint32_t levels, size_t n, float* dst) {
  // What the codes 0 .. 15 stand for: a look-up is less work than the arithmetic. Code 0 is no
  // valid level.
  alignas(64) float table[kLanes];
  const F32x16 units = NaturalUnits(SubI(Iota(), SetI(8)), SetI(levels));
  StoreF(MulF(units, SetF(scale)), table, AllLanes());
  ForLanes(n, [&](size_t i, auto count) {
    Emit<kAdd>(LookupF(table, LoadNibbles(in + i / 2, count)), dst + i, count);
  });
}

template <bool kAdd>
void DecodeLinearBytes(const uint8_t* in, float scale, uint32_t /*levels*/, size_t n, float* dst) {
  const F32x16 by = SetF(scale);
  const I32x16 zero = SetI(128);
  ForLanes(n, [&](size_t i, auto count) {
    const I32x16 level = SubI(LoadBytes(in + i, count), zero);
    Emit<kAdd>(MulF(ToFloat(level), by), dst + i, count);
  });
}

template <bool kAdd>
void DecodeNaturalBytes(const uint8_t* in, float scale, uint32_t levels, size_t n, float* dst) {
  const F32x16 by = SetF(scale);
  const I32x16 zero = SetI(128), most = SetI(levels);
  ForLanes(n, [&](size_t i, auto count) {
    const I32x16 level = SubI(LoadBytes(in + i, count), zero);
    Emit<kAdd>(MulF(NaturalUnits(level, most), by), dst + i, count);
  });
}

// Checks codes c of kBits bits, each in a field twice as wide. zero - levels <= c <= zero + levels
// holds exactly if c + half - (zero - levels) reaches the field's upper bit and c + half - 1 -
// (zero + levels) does not.
template <uint32_t kBits>
bool CodesWithin(const uint8_t* in, uint32_t levels, size_t n) {
  constexpr uint32_t kOnes = kBits == 4 ? 0x01010101 : 0x00010001;  // a 1 in each field
  constexpr uint32_t kZero = 1u << (kBits - 1), kHalf = 1u << (2 * kBits - 1);
  constexpr size_t kPerByte = 8 / kBits, kStep = 64 * kPerByte;
  const I32x16 low = SetI(kOnes * ((1u << kBits) - 1)), top = SetI(kOnes * kHalf);
  const I32x16 under = SetI(kOnes * (kHalf - (kZero - levels)));
  const I32x16 over = SetI(kOnes * (kHalf - 1 - (kZero + levels)));
  // Collects the upper bits of all steps, so that one comparison at the end is enough.
  I32x16 reached = top, passed = SetI(0);
  const auto check = [&](I32x16 codes) {
    reached = AndI(reached, AddI(codes, under));
    passed = OrI(passed, AddI(codes, over));
  };
  size_t i = 0;
  for (; n - i >= kStep; i += kStep) {
    uint32_t words[kLanes];
    std::memcpy(words, in + i / kPerByte, sizeof words);
    const I32x16 packed = LoadI(words, AllLanes());
    check(AndI(packed, low));
    check(AndI(ShiftRightI<kBits>(packed), low));
  }
  if (Bits(EqI(AndI(reached, top), top)) != 0xffff ||
      Bits(EqI(AndI(passed, top), SetI(0))) != 0xffff) {
    return false;
  }
  for (; i < n; ++i) {
    const uint32_t byte = in[i / kPerByte];
    const uint32_t code = byte >> (kBits == 4 ? i % 2 * 4 : 0) & ((1u << kBits) - 1);
    if (code + levels < kZero || code > kZero + levels) return false;
  }
  return true;
}
inline bool NibblesWithin(const uint8_t* in, uint32_t levels, size_t n) {
  return CodesWithin<4>(in, levels, n);
}
inline bool BytesWithin(const uint8_t* in, uint32_t levels, size_t n) {
  return CodesWithin<8>(in, levels, n);
}

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_DEQUANTIZE_LOOPS_H_
