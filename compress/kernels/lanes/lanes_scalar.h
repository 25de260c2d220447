// SPDX-License-Identifier: Apache-2.0
// Lanes as plain loops. They define what every function of lanes.h means, and they run on any CPU.
#ifndef SLIMPS_COMPRESS_KERNELS_LANES_LANES_SCALAR_H_
#define SLIMPS_COMPRESS_KERNELS_LANES_LANES_SCALAR_H_

#include "compress/kernels/lanes/lanes.h"

namespace slimps {
namespace {

struct F32x16 {
  float v[kLanes];
};
struct I32x16 {
  uint32_t v[kLanes];
};
struct I64x8 {
  uint64_t v[kLanes / 2];
};
struct Mask16 {
  uint32_t bits;
};

template <typename F>
inline F32x16 EachF(const F& f) {
  F32x16 out;
  for (size_t j = 0; j < kLanes; ++j) out.v[j] = f(j);
  return out;
}
template <typename F>
inline I32x16 EachI(const F& f) {
  I32x16 out;
  for (size_t j = 0; j < kLanes; ++j) out.v[j] = f(j);
  return out;
}
template <typename F>
inline Mask16 EachM(const F& f) {
  uint32_t bits = 0;
  for (size_t j = 0; j < kLanes; ++j) bits |= static_cast<uint32_t>(f(j)) << j;
  return {bits};
}

inline F32x16 SetF(float x) {
  return EachF([&](size_t) { return x; });
}
template <typename Count>
inline F32x16 LoadF(const float* p, Count count) {
  F32x16 out = {};
  std::memcpy(out.v, p, count.size() * sizeof(float));
  return out;
}
template <typename Count>
inline void StoreF(F32x16 x, float* p, Count count) {
  std::memcpy(p, x.v, count.size() * sizeof(float));
}

inline F32x16 AddF(F32x16 a, F32x16 b) {
  return EachF([&](size_t j) { return a.v[j] + b.v[j]; });
}
inline F32x16 SubF(F32x16 a, F32x16 b) {
  return EachF([&](size_t j) { return a.v[j] - b.v[j]; });
}
inline F32x16 MulF(F32x16 a, F32x16 b) {
  return EachF([&](size_t j) { return a.v[j] * b.v[j]; });
}
inline F32x16 DivF(F32x16 a, F32x16 b) {
  return EachF([&](size_t j) { return a.v[j] / b.v[j]; });
}
inline F32x16 MinF(F32x16 a, F32x16 b) {
  return EachF([&](size_t j) { return a.v[j] < b.v[j] ? a.v[j] : b.v[j]; });
}
inline F32x16 MaxF(F32x16 a, F32x16 b) {
  return EachF([&](size_t j) { return a.v[j] > b.v[j] ? a.v[j] : b.v[j]; });
}
inline F32x16 AbsF(F32x16 x) {
  return EachF([&](size_t j) { return __builtin_fabsf(x.v[j]); });
}
inline F32x16 SqrtF(F32x16 x) {
  return EachF([&](size_t j) { return __builtin_sqrtf(x.v[j]); });
}

inline F32x16 AddSquareF(F32x16 sum, F32x16 x) {
  return EachF([&](size_t j) { return __builtin_fmaf(x.v[j], x.v[j], sum.v[j]); });
}
inline F32x16 AddProductF(F32x16 x, F32x16 a, F32x16 b) {
  return EachF([&](size_t j) { return __builtin_fmaf(a.v[j], b.v[j], x.v[j]); });
}
inline F32x16 SubProductF(F32x16 x, F32x16 a, F32x16 b) {
  return EachF([&](size_t j) { return __builtin_fmaf(-a.v[j], b.v[j], x.v[j]); });
}

inline Mask16 GeF(F32x16 a, F32x16 b) {
  return EachM([&](size_t j) { return a.v[j] >= b.v[j]; });
}
inline Mask16 GtF(F32x16 a, F32x16 b) {
  return EachM([&](size_t j) { return a.v[j] > b.v[j]; });
}
inline Mask16 LeF(F32x16 a, F32x16 b) { return GeF(b, a); }
inline Mask16 LtF(F32x16 a, F32x16 b) { return GtF(b, a); }
inline Mask16 NotLeF(F32x16 a, F32x16 b) {
  return EachM([&](size_t j) { return !(a.v[j] <= b.v[j]); });
}
inline F32x16 SelectF(Mask16 mask, F32x16 yes, F32x16 no) {
  return EachF([&](size_t j) { return ((mask.bits >> j) & 1) != 0 ? yes.v[j] : no.v[j]; });
}
inline F32x16 KeepF(Mask16 mask, F32x16 x) { return SelectF(mask, x, SetF(0)); }
inline F32x16 SelectBitsF(uint32_t bits, F32x16 yes, F32x16 no) {
  return SelectF(Mask16{bits}, yes, no);
}
struct Bits32 {
  uint32_t bits;
};
inline Bits32 LoadBits32(const uint8_t* p) {
  Bits32 out;
  std::memcpy(&out.bits, p, sizeof out.bits);
  return out;
}
inline Bits32 AndNotB(Bits32 a, Bits32 b) { return {a.bits & ~b.bits}; }
template <int kHalf>
inline F32x16 SelectHalfF(Bits32 word, F32x16 yes, F32x16 no) {
  return SelectBitsF(word.bits >> (16 * kHalf), yes, no);
}
inline void StreamF(F32x16 x, float* p) { StoreF(x, p, AllLanes()); }
inline void EndStream() {}

inline uint32_t SignBits(F32x16 x) {
  return EachM([&](size_t j) { return (BitsOf(x.v[j]) >> 31) != 0; }).bits;
}
inline uint32_t SignBits(F32x16 x, F32x16 y) { return SignBits(x) | SignBits(y) << 16; }
inline F32x16 SelectNegativeF(F32x16 x, F32x16 yes, F32x16 no) {
  return SelectF(Mask16{SignBits(x)}, yes, no);
}

inline I32x16 SetI(uint32_t x) {
  return EachI([&](size_t) { return x; });
}
template <typename Count>
inline I32x16 LoadI(const uint32_t* p, Count count) {
  I32x16 out = {};
  std::memcpy(out.v, p, count.size() * sizeof(uint32_t));
  return out;
}
template <typename Count>
inline void StoreI(I32x16 x, uint32_t* p, Count count) {
  std::memcpy(p, x.v, count.size() * sizeof(uint32_t));
}
inline I32x16 AddI(I32x16 a, I32x16 b) {
  return EachI([&](size_t j) { return a.v[j] + b.v[j]; });
}
inline I32x16 SubI(I32x16 a, I32x16 b) {
  return EachI([&](size_t j) { return a.v[j] - b.v[j]; });
}
inline I32x16 MulI(I32x16 a, I32x16 b) {
  return EachI([&](size_t j) { return a.v[j] * b.v[j]; });
}
inline I32x16 AndI(I32x16 a, I32x16 b) {
  return EachI([&](size_t j) { return a.v[j] & b.v[j]; });
}
inline I32x16 OrI(I32x16 a, I32x16 b) {
  return EachI([&](size_t j) { return a.v[j] | b.v[j]; });
}
inline I32x16 XorI(I32x16 a, I32x16 b) {
  return EachI([&](size_t j) { return a.v[j] ^ b.v[j]; });
}
inline I32x16 MaxI(I32x16 a, I32x16 b) {
  return EachI([&](size_t j) { return a.v[j] > b.v[j] ? a.v[j] : b.v[j]; });
}
inline Mask16 EqI(I32x16 a, I32x16 b) {
  return EachM([&](size_t j) { return a.v[j] == b.v[j]; });
}
inline Mask16 GtI(I32x16 a, I32x16 b) {
  return EachM(
      [&](size_t j) { return static_cast<int32_t>(a.v[j]) > static_cast<int32_t>(b.v[j]); });
}
inline I32x16 SelectI(Mask16 mask, I32x16 yes, I32x16 no) {
  return EachI([&](size_t j) { return ((mask.bits >> j) & 1) != 0 ? yes.v[j] : no.v[j]; });
}
template <int kBits>
inline I32x16 ShiftLeftI(I32x16 x) {
  return EachI([&](size_t j) { return x.v[j] << kBits; });
}
template <int kBits>
inline I32x16 ShiftRightI(I32x16 x) {
  return EachI([&](size_t j) { return x.v[j] >> kBits; });
}
inline I32x16 ShiftRightEachI(I32x16 x, I32x16 counts) {
  return EachI([&](size_t j) { return counts.v[j] > 31 ? 0 : x.v[j] >> counts.v[j]; });
}
template <int kBits>
inline I32x16 ShiftRightSignedI(I32x16 x) {
  return EachI(
      [&](size_t j) { return static_cast<uint32_t>(static_cast<int32_t>(x.v[j]) >> kBits); });
}
inline I32x16 NegateI(Mask16 mask, I32x16 x) {
  return EachI([&](size_t j) { return ((mask.bits >> j) & 1) != 0 ? 0 - x.v[j] : x.v[j]; });
}
template <typename F>
inline I64x8 EachW(const F& f) {
  I64x8 out;
  for (size_t j = 0; j < kLanes / 2; ++j) out.v[j] = f(j);
  return out;
}
inline I64x8 SetW(uint32_t x) {
  return EachW([&](size_t) { return uint64_t{x}; });
}
inline I64x8 EvenW(I32x16 x) {
  return EachW([&](size_t j) { return uint64_t{x.v[2 * j]}; });
}
inline I64x8 OddW(I32x16 x) {
  return EachW([&](size_t j) { return uint64_t{x.v[2 * j + 1]}; });
}
inline I32x16 JoinW(I64x8 even, I64x8 odd) {
  return EachI(
      [&](size_t j) { return static_cast<uint32_t>(j % 2 == 0 ? even.v[j / 2] : odd.v[j / 2]); });
}
inline I64x8 MulW(I64x8 x, I64x8 factor) {
  return EachW([&](size_t j) { return (x.v[j] & 0xffffffff) * (factor.v[j] & 0xffffffff); });
}
inline I64x8 HighW(I64x8 x) {
  return EachW([&](size_t j) { return x.v[j] >> 32; });
}
inline I64x8 XorW(I64x8 x, I64x8 y) {
  return EachW([&](size_t j) { return x.v[j] ^ y.v[j]; });
}
inline I32x16 Iota() {
  return EachI([](size_t j) { return static_cast<uint32_t>(j); });
}

inline I32x16 AsI(F32x16 x) {
  I32x16 out;
  std::memcpy(&out, &x, sizeof out);
  return out;
}
inline F32x16 AsF(I32x16 x) {
  F32x16 out;
  std::memcpy(&out, &x, sizeof out);
  return out;
}
inline F32x16 ToFloat(I32x16 x) {
  return EachF([&](size_t j) { return static_cast<float>(static_cast<int32_t>(x.v[j])); });
}

inline I32x16 ToNearestInt(F32x16 x) {
  return EachI([&](size_t j) {
    const float nearest = __builtin_rintf(x.v[j]);
    const bool in_range = nearest >= -0x1p31f && nearest < 0x1p31f;
    return in_range ? static_cast<uint32_t>(static_cast<int32_t>(nearest)) : 0x80000000;
  });
}

inline uint32_t Bits(Mask16 mask) { return mask.bits; }
inline Mask16 MaskOf(uint32_t bits) { return {bits & 0xffff}; }
inline I32x16 LanesI(Mask16 mask) {
  return EachI([&](size_t j) { return ((mask.bits >> j) & 1) != 0 ? 0xffffffffu : 0u; });
}

template <typename T, typename Lanes>
inline size_t CompressLanes(Mask16 mask, const Lanes& x, T* out) {
  size_t count = 0;
  for (size_t j = 0; j < kLanes; ++j) {
    if (((mask.bits >> j) & 1) != 0) out[count++] = x.v[j];
  }
  return count;
}
inline size_t CompressI(Mask16 mask, I32x16 x, uint32_t* out) {
  return CompressLanes(mask, x, out);
}
inline size_t CompressF(Mask16 mask, F32x16 x, float* out) { return CompressLanes(mask, x, out); }

inline F32x16 LookupF(const float* table, I32x16 index) {
  return EachF([&](size_t j) { return table[index.v[j]]; });
}

template <int kDistance>
inline F32x16 ButterflyF(F32x16 x) {
  return EachF([&](size_t j) {
    const float other = x.v[j ^ kDistance];
    return (j & kDistance) == 0 ? x.v[j] + other : other - x.v[j];
  });
}
constexpr size_t kPassGroups = 4;

inline float FoldMax(F32x16 x) {
  float most = x.v[0];
  for (size_t j = 1; j < kLanes; ++j) most = x.v[j] > most ? x.v[j] : most;
  return most;
}
inline float FoldSum(F32x16 x) {
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t j = 0; j < width; ++j) x.v[j] += x.v[j + width];
  }
  return x.v[0];
}

}  // namespace
}  // namespace slimps

#include "compress/kernels/lanes/lanes_scalar_packed.h"

#endif  // SLIMPS_COMPRESS_KERNELS_LANES_LANES_SCALAR_H_
