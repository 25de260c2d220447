// SPDX-License-Identifier: Apache-2.0
// Lanes as one AVX-512 vector of 16. Only for files compiled with -mavx512f -mavx512bw -mavx512dq
// -mavx512vl.
#ifndef SLIMPS_COMPRESS_KERNELS_LANES_LANES_AVX512_H_
#define SLIMPS_COMPRESS_KERNELS_LANES_LANES_AVX512_H_

#include <immintrin.h>

#include "compress/kernels/lanes/bytes_256.h"
#include "compress/kernels/lanes/lanes.h"

namespace slimps {
namespace {

struct F32x16 {
  __m512 v;
};
struct I32x16 {
  __m512i v;
};
struct I64x8 {
  __m512i v;
};
struct Mask16 {
  __mmask16 bits;
};

inline __mmask16 TailMask(SomeLanes count) { return static_cast<__mmask16>(count.bits()); }

inline F32x16 SetF(float x) { return {_mm512_set1_ps(x)}; }
inline F32x16 LoadF(const float* p, AllLanes) { return {_mm512_loadu_ps(p)}; }
inline F32x16 LoadF(const float* p, SomeLanes count) {
  return {_mm512_maskz_loadu_ps(TailMask(count), p)};
}
inline void StoreF(F32x16 x, float* p, AllLanes) { _mm512_storeu_ps(p, x.v); }
inline void StoreF(F32x16 x, float* p, SomeLanes count) {
  _mm512_mask_storeu_ps(p, TailMask(count), x.v);
}

inline F32x16 AddF(F32x16 x, F32x16 y) { return {_mm512_add_ps(x.v, y.v)}; }
inline F32x16 SubF(F32x16 x, F32x16 y) { return {_mm512_sub_ps(x.v, y.v)}; }
inline F32x16 MulF(F32x16 x, F32x16 y) { return {_mm512_mul_ps(x.v, y.v)}; }
inline F32x16 DivF(F32x16 x, F32x16 y) { return {_mm512_div_ps(x.v, y.v)}; }
inline F32x16 MinF(F32x16 x, F32x16 y) { return {_mm512_min_ps(x.v, y.v)}; }
inline F32x16 MaxF(F32x16 x, F32x16 y) { return {_mm512_max_ps(x.v, y.v)}; }
inline F32x16 AbsF(F32x16 x) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), x.v)}; }
inline F32x16 SqrtF(F32x16 x) { return {_mm512_sqrt_ps(x.v)}; }

inline F32x16 AddSquareF(F32x16 sum, F32x16 x) { return {_mm512_fmadd_ps(x.v, x.v, sum.v)}; }
inline F32x16 AddProductF(F32x16 x, F32x16 a, F32x16 b) { return {_mm512_fmadd_ps(a.v, b.v, x.v)}; }
inline F32x16 SubProductF(F32x16 x, F32x16 a, F32x16 b) {
  return {_mm512_fnmadd_ps(a.v, b.v, x.v)};
}

inline Mask16 GeF(F32x16 x, F32x16 y) { return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_GE_OQ)}; }
inline Mask16 GtF(F32x16 x, F32x16 y) { return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_GT_OQ)}; }
inline Mask16 LeF(F32x16 x, F32x16 y) { return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_LE_OQ)}; }
inline Mask16 LtF(F32x16 x, F32x16 y) { return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ)}; }
inline Mask16 NotLeF(F32x16 x, F32x16 y) { return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_NLE_UQ)}; }
inline F32x16 SelectF(Mask16 mask, F32x16 yes, F32x16 no) {
  return {_mm512_mask_blend_ps(mask.bits, no.v, yes.v)};
}
inline F32x16 SelectBitsF(uint32_t bits, F32x16 yes, F32x16 no) {
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(bits), no.v, yes.v)};
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
inline void StreamF(F32x16 x, float* p) { _mm512_stream_ps(p, x.v); }
inline void EndStream() { _mm_sfence(); }
inline uint32_t SignBits(F32x16 x) { return _mm512_movepi32_mask(_mm512_castps_si512(x.v)); }
inline uint32_t SignBits(F32x16 x, F32x16 y) { return SignBits(x) | SignBits(y) << 16; }
inline F32x16 SelectNegativeF(F32x16 x, F32x16 yes, F32x16 no) {
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(SignBits(x)), no.v, yes.v)};
}
inline F32x16 KeepF(Mask16 mask, F32x16 x) { return {_mm512_maskz_mov_ps(mask.bits, x.v)}; }

inline I32x16 SetI(uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
inline I32x16 LoadI(const uint32_t* p, AllLanes) { return {_mm512_loadu_si512(p)}; }
inline I32x16 LoadI(const uint32_t* p, SomeLanes count) {
  return {_mm512_maskz_loadu_epi32(TailMask(count), p)};
}
inline void StoreI(I32x16 x, uint32_t* p, AllLanes) { _mm512_storeu_si512(p, x.v); }
inline void StoreI(I32x16 x, uint32_t* p, SomeLanes count) {
  _mm512_mask_storeu_epi32(p, TailMask(count), x.v);
}
inline I32x16 AddI(I32x16 x, I32x16 y) { return {_mm512_add_epi32(x.v, y.v)}; }
inline I32x16 SubI(I32x16 x, I32x16 y) { return {_mm512_sub_epi32(x.v, y.v)}; }
inline I32x16 MulI(I32x16 x, I32x16 y) { return {_mm512_mullo_epi32(x.v, y.v)}; }
inline I32x16 AndI(I32x16 x, I32x16 y) { return {_mm512_and_si512(x.v, y.v)}; }
inline I32x16 OrI(I32x16 x, I32x16 y) { return {_mm512_or_si512(x.v, y.v)}; }
inline I32x16 XorI(I32x16 x, I32x16 y) { return {_mm512_xor_si512(x.v, y.v)}; }
inline I32x16 MaxI(I32x16 x, I32x16 y) { return {_mm512_max_epu32(x.v, y.v)}; }
inline Mask16 EqI(I32x16 x, I32x16 y) { return {_mm512_cmpeq_epi32_mask(x.v, y.v)}; }
inline Mask16 GtI(I32x16 x, I32x16 y) { return {_mm512_cmpgt_epi32_mask(x.v, y.v)}; }
inline I32x16 SelectI(Mask16 mask, I32x16 yes, I32x16 no) {
  return {_mm512_mask_blend_epi32(mask.bits, no.v, yes.v)};
}
template <int kBits>
inline I32x16 ShiftLeftI(I32x16 x) {
  return {_mm512_slli_epi32(x.v, kBits)};
}
template <int kBits>
inline I32x16 ShiftRightI(I32x16 x) {
  return {_mm512_srli_epi32(x.v, kBits)};
}
inline I32x16 ShiftRightEachI(I32x16 x, I32x16 counts) {
  return {_mm512_srlv_epi32(x.v, counts.v)};
}
template <int kBits>
inline I32x16 ShiftRightSignedI(I32x16 x) {
  return {_mm512_srai_epi32(x.v, kBits)};
}
inline I32x16 NegateI(Mask16 mask, I32x16 x) {
  return {_mm512_mask_sub_epi32(x.v, mask.bits, _mm512_setzero_si512(), x.v)};
}
inline I64x8 SetW(uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
inline I64x8 EvenW(I32x16 x) { return {x.v}; }
inline I64x8 OddW(I32x16 x) { return {_mm512_srli_epi64(x.v, 32)}; }
inline I32x16 JoinW(I64x8 even, I64x8 odd) {
  return {_mm512_mask_blend_epi32(0xaaaa, even.v, _mm512_slli_epi64(odd.v, 32))};
}
inline I64x8 MulW(I64x8 x, I64x8 factor) { return {_mm512_mul_epu32(x.v, factor.v)}; }
inline I64x8 HighW(I64x8 x) { return {_mm512_srli_epi64(x.v, 32)}; }
inline I64x8 XorW(I64x8 x, I64x8 y) { return {_mm512_xor_si512(x.v, y.v)}; }
inline I32x16 Iota() {
  return {_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}

inline I32x16 AsI(F32x16 x) { return {_mm512_castps_si512(x.v)}; }
inline F32x16 AsF(I32x16 x) { return {_mm512_castsi512_ps(x.v)}; }
inline F32x16 ToFloat(I32x16 x) { return {_mm512_cvtepi32_ps(x.v)}; }
inline I32x16 ToNearestInt(F32x16 x) { return {_mm512_cvtps_epi32(x.v)}; }

inline uint32_t Bits(Mask16 mask) { return mask.bits; }
inline Mask16 MaskOf(uint32_t bits) { return {static_cast<__mmask16>(bits)}; }
inline I32x16 LanesI(Mask16 mask) { return {_mm512_movm_epi32(mask.bits)}; }

// Compress in the register and store the whole vector: the compressing store is microcoded on some
// CPUs.
inline size_t CompressI(Mask16 mask, I32x16 x, uint32_t* out) {
  _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(mask.bits, x.v));
  return static_cast<size_t>(__builtin_popcount(mask.bits));
}
inline size_t CompressF(Mask16 mask, F32x16 x, float* out) {
  return CompressI(mask, AsI(x), reinterpret_cast<uint32_t*>(out));
}

inline F32x16 LookupF(const float* table, I32x16 index) {
  return {_mm512_permutexvar_ps(index.v, _mm512_loadu_ps(table))};
}

inline __m256i LoadWords(const std::byte* p, AllLanes) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline __m256i LoadWords(const std::byte* p, SomeLanes count) {
  return _mm256_maskz_loadu_epi16(TailMask(count), p);
}
inline void StoreWords(__m256i words, std::byte* p, AllLanes) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words);
}
inline void StoreWords(__m256i words, std::byte* p, SomeLanes count) {
  _mm256_mask_storeu_epi16(p, TailMask(count), words);
}
inline F32x16 FromF16(__m256i words) { return {_mm512_cvtph_ps(words)}; }
inline F32x16 FromBf16(__m256i words) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16))};
}
template <typename Count>
inline F32x16 LoadF16(const std::byte* p, Count count) {
  return FromF16(LoadWords(p, count));
}
template <typename Count>
inline F32x16 StoreF16(F32x16 x, std::byte* p, Count count) {
  const __m256i words = _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  StoreWords(words, p, count);
  return FromF16(words);
}
template <typename Count>
inline F32x16 LoadBf16(const std::byte* p, Count count) {
  return FromBf16(LoadWords(p, count));
}
template <typename Count>
inline F32x16 StoreBf16(F32x16 x, std::byte* p, Count count) {
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i upper = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  const __m512i wide = _mm512_mask_blend_epi32(is_nan, _mm512_srli_epi32(sum, 16), quiet);
  const __m256i words = _mm512_cvtepi32_epi16(wide);
  StoreWords(words, p, count);
  return FromBf16(words);
}

inline uint64_t PackNibbles(I32x16 x) {
  const __m128i bytes = _mm512_cvtepi32_epi8(x.v);
  // Pairs (even + 16 * odd) as 16-bit numbers, then as bytes.
  const __m128i pairs = _mm_maddubs_epi16(bytes, _mm_set1_epi16(0x1001));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_packus_epi16(pairs, pairs)));
}
// Returns 8 bytes, the first four repeated in the lower eight lanes, the others in the upper eight.
inline __m512i LoadNibbleWords(const uint8_t* p) {
  int low, high;
  std::memcpy(&low, p, sizeof low);
  std::memcpy(&high, p + 4, sizeof high);
  return _mm512_mask_set1_epi32(_mm512_set1_epi32(low), 0xff00, high);
}
inline I32x16 LoadNibbles(const uint8_t* p) {
  const __m512i shifts =
      _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  return {_mm512_and_si512(_mm512_srlv_epi32(LoadNibbleWords(p), shifts), _mm512_set1_epi32(15))};
}
inline I32x16 LoadSignedNibbles(const uint8_t* p) {
  const __m512i shifts =
      _mm512_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0);
  const __m512i flipped =
      _mm512_xor_si512(LoadNibbleWords(p), _mm512_set1_epi32(static_cast<int>(0x88888888)));
  return {_mm512_srai_epi32(_mm512_sllv_epi32(flipped, shifts), 28)};
}
inline I32x16 LoadBytes(const uint8_t* p, AllLanes) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline I32x16 LoadBytes(const uint8_t* p, SomeLanes count) {
  return {_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(TailMask(count), p))};
}
inline void StoreBytes(I32x16 x, uint8_t* p, AllLanes) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.v));
}
inline void StoreBytes(I32x16 x, uint8_t* p, SomeLanes count) {
  _mm_mask_storeu_epi8(p, TailMask(count), _mm512_cvtepi32_epi8(x.v));
}

inline I8x32 PackI8(I32x16 x, I32x16 y) {
  return {_mm256_set_m128i(_mm512_cvtsepi32_epi8(y.v), _mm512_cvtsepi32_epi8(x.v))};
}
inline uint32_t SignBits(I8x32 x) { return _mm256_movepi8_mask(x.v); }
inline void StoreNibblesI8(I8x32 x, uint8_t* p) {
  // Pairs (even + 16 * odd) as 16-bit numbers, then as bytes.
  const __m256i pairs = _mm256_maddubs_epi16(x.v, _mm256_set1_epi16(0x1001));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtepi16_epi8(pairs));
}

// Negates the lanes that take the difference, and adds each lane's partner. A product by 1 or -1 is
// exact, so the sum is rounded once, as everywhere.
template <int kDistance>
inline F32x16 ButterflyF(F32x16 x) {
  const auto sign = [](int lane) { return (lane & kDistance) == 0 ? 1.0f : -1.0f; };
  const __m512 signs =
      _mm512_setr_ps(sign(0), sign(1), sign(2), sign(3), sign(4), sign(5), sign(6), sign(7),
                     sign(8), sign(9), sign(10), sign(11), sign(12), sign(13), sign(14), sign(15));
  __m512 other;
  if constexpr (kDistance == 1) {
    other = _mm512_permute_ps(x.v, 0xb1);
  } else if constexpr (kDistance == 2) {
    other = _mm512_permute_ps(x.v, 0x4e);
  } else if constexpr (kDistance == 4) {
    other = _mm512_shuffle_f32x4(x.v, x.v, 0xb1);
  } else {
    other = _mm512_shuffle_f32x4(x.v, x.v, 0x4e);
  }
  return {_mm512_fmadd_ps(x.v, signs, other)};
}

// How many groups of lanes a pass over a block keeps in registers.
constexpr size_t kPassGroups = 16;

inline float FoldMax(F32x16 x) {
  const __m256 low = _mm512_castps512_ps256(x.v), high = _mm512_extractf32x8_ps(x.v, 1);
  const __m256 eight = _mm256_max_ps(low, high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float FoldSum(F32x16 x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LANES_LANES_AVX512_H_
