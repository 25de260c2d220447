// SPDX-License-Identifier: Apache-2.0
// Lanes as two AVX2 vectors of 8. Only for files compiled with -mavx2 -mfma -mf16c -mpopcnt.
#ifndef SLIMPS_COMPRESS_KERNELS_LANES_LANES_AVX2_H_
#define SLIMPS_COMPRESS_KERNELS_LANES_LANES_AVX2_H_

#include <immintrin.h>

#include "compress/kernels/lanes/lanes.h"

namespace slimps {
namespace {

struct F32x16 {
  __m256 a, b;  // lanes 0 .. 7, 8 .. 15
};
struct I32x16 {
  __m256i a, b;
};
struct I64x8 {
  __m256i a, b;  // 32-bit lanes 0 .. 7, 8 .. 15
};
struct Mask16 {
  __m256i a, b;  // each lane is all ones or all zeros
};

// Returns a mask for masked loads and stores of the lanes below n. `from` is the number of the
// vector's first lane.
inline __m256i TailMask(size_t n, int from) {
  const __m256i lane =
      _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(from));
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
}

inline F32x16 SetF(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32x16 LoadF(const float* p, AllLanes) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline F32x16 LoadF(const float* p, SomeLanes count) {
  return {_mm256_maskload_ps(p, TailMask(count.n, 0)),
          _mm256_maskload_ps(p + 8, TailMask(count.n, 8))};
}
inline void StoreF(F32x16 x, float* p, AllLanes) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline void StoreF(F32x16 x, float* p, SomeLanes count) {
  _mm256_maskstore_ps(p, TailMask(count.n, 0), x.a);
  _mm256_maskstore_ps(p + 8, TailMask(count.n, 8), x.b);
}

inline F32x16 AddF(F32x16 x, F32x16 y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
inline F32x16 SubF(F32x16 x, F32x16 y) {
  return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
inline F32x16 MulF(F32x16 x, F32x16 y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
inline F32x16 DivF(F32x16 x, F32x16 y) {
  return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
inline F32x16 MinF(F32x16 x, F32x16 y) {
  return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
inline F32x16 MaxF(F32x16 x, F32x16 y) {
  return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
inline F32x16 AbsF(F32x16 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
inline F32x16 SqrtF(F32x16 x) { return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)}; }

inline F32x16 AddSquareF(F32x16 sum, F32x16 x) {
  return {_mm256_fmadd_ps(x.a, x.a, sum.a), _mm256_fmadd_ps(x.b, x.b, sum.b)};
}
inline F32x16 AddProductF(F32x16 x, F32x16 a, F32x16 b) {
  return {_mm256_fmadd_ps(a.a, b.a, x.a), _mm256_fmadd_ps(a.b, b.b, x.b)};
}
inline F32x16 SubProductF(F32x16 x, F32x16 a, F32x16 b) {
  return {_mm256_fnmadd_ps(a.a, b.a, x.a), _mm256_fnmadd_ps(a.b, b.b, x.b)};
}

template <int kPredicate>
inline Mask16 CompareF(F32x16 x, F32x16 y) {
  return {_mm256_castps_si256(_mm256_cmp_ps(x.a, y.a, kPredicate)),
          _mm256_castps_si256(_mm256_cmp_ps(x.b, y.b, kPredicate))};
}
inline Mask16 GeF(F32x16 x, F32x16 y) { return CompareF<_CMP_GE_OQ>(x, y); }
inline Mask16 GtF(F32x16 x, F32x16 y) { return CompareF<_CMP_GT_OQ>(x, y); }
inline Mask16 LeF(F32x16 x, F32x16 y) { return CompareF<_CMP_LE_OQ>(x, y); }
inline Mask16 LtF(F32x16 x, F32x16 y) { return CompareF<_CMP_LT_OQ>(x, y); }
inline Mask16 NotLeF(F32x16 x, F32x16 y) { return CompareF<_CMP_NLE_UQ>(x, y); }
inline F32x16 SelectF(Mask16 mask, F32x16 yes, F32x16 no) {
  return {_mm256_blendv_ps(no.a, yes.a, _mm256_castsi256_ps(mask.a)),
          _mm256_blendv_ps(no.b, yes.b, _mm256_castsi256_ps(mask.b))};
}
// A blend looks at sign bits only, so it is enough to shift each lane's bit there.
inline F32x16 SelectBitsF(uint32_t bits, F32x16 yes, F32x16 no) {
  const __m256i word = _mm256_set1_epi32(static_cast<int>(bits));
  const __m256i low = _mm256_sllv_epi32(word, _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24));
  const __m256i high = _mm256_sllv_epi32(word, _mm256_setr_epi32(23, 22, 21, 20, 19, 18, 17, 16));
  return {_mm256_blendv_ps(no.a, yes.a, _mm256_castsi256_ps(low)),
          _mm256_blendv_ps(no.b, yes.b, _mm256_castsi256_ps(high))};
}
// 4 bytes, repeated in every lane.
struct Bits32 {
  __m256i word;
};
inline Bits32 LoadBits32(const uint8_t* p) {
  int bits;
  std::memcpy(&bits, p, sizeof bits);
  return {_mm256_set1_epi32(bits)};
}
inline Bits32 AndNotB(Bits32 a, Bits32 b) { return {_mm256_andnot_si256(b.word, a.word)}; }
// A permutation within four lanes looks at two bits of an index. The table has `no` and `yes` in
// turn, so that only the lower bit counts. This is less work than a blend by sign bits, for which
// Intel's CPUs take two steps.
template <int kHalf>
inline F32x16 SelectHalfF(Bits32 bits, F32x16 yes, F32x16 no) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  constexpr int kFrom = 16 * kHalf;
  const __m256i low =
      _mm256_srlv_epi32(bits.word, _mm256_add_epi32(lane, _mm256_set1_epi32(kFrom)));
  const __m256i high =
      _mm256_srlv_epi32(bits.word, _mm256_add_epi32(lane, _mm256_set1_epi32(kFrom + 8)));
  return {_mm256_permutevar_ps(_mm256_blend_ps(no.a, yes.a, 0xaa), low),
          _mm256_permutevar_ps(_mm256_blend_ps(no.b, yes.b, 0xaa), high)};
}
inline void StreamF(F32x16 x, float* p) {
  _mm256_stream_ps(p, x.a);
  _mm256_stream_ps(p + 8, x.b);
}
inline void EndStream() { _mm_sfence(); }
inline uint32_t SignBits(F32x16 x) {
  return static_cast<uint32_t>(_mm256_movemask_ps(x.a)) |
         static_cast<uint32_t>(_mm256_movemask_ps(x.b)) << 8;
}
// Saturating packs keep signs. They work within halves, and the permutation restores the order.
inline uint32_t SignBits(F32x16 x, F32x16 y) {
  const __m256i low = _mm256_packs_epi32(_mm256_castps_si256(x.a), _mm256_castps_si256(x.b));
  const __m256i high = _mm256_packs_epi32(_mm256_castps_si256(y.a), _mm256_castps_si256(y.b));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
  return static_cast<uint32_t>(_mm256_movemask_epi8(bytes));
}
inline F32x16 SelectNegativeF(F32x16 x, F32x16 yes, F32x16 no) {
  return {_mm256_blendv_ps(no.a, yes.a, x.a), _mm256_blendv_ps(no.b, yes.b, x.b)};
}
inline F32x16 KeepF(Mask16 mask, F32x16 x) {
  return {_mm256_and_ps(x.a, _mm256_castsi256_ps(mask.a)),
          _mm256_and_ps(x.b, _mm256_castsi256_ps(mask.b))};
}

inline I32x16 SetI(uint32_t x) {
  const __m256i all = _mm256_set1_epi32(static_cast<int>(x));
  return {all, all};
}
inline I32x16 LoadI(const uint32_t* p, AllLanes) {
  const auto* from = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)};
}
inline I32x16 LoadI(const uint32_t* p, SomeLanes count) {
  const auto* from = reinterpret_cast<const int*>(p);
  return {_mm256_maskload_epi32(from, TailMask(count.n, 0)),
          _mm256_maskload_epi32(from + 8, TailMask(count.n, 8))};
}
inline void StoreI(I32x16 x, uint32_t* p, AllLanes) {
  auto* to = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(to, x.a);
  _mm256_storeu_si256(to + 1, x.b);
}
inline void StoreI(I32x16 x, uint32_t* p, SomeLanes count) {
  auto* to = reinterpret_cast<int*>(p);
  _mm256_maskstore_epi32(to, TailMask(count.n, 0), x.a);
  _mm256_maskstore_epi32(to + 8, TailMask(count.n, 8), x.b);
}
inline I32x16 AddI(I32x16 x, I32x16 y) {
  return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
inline I32x16 SubI(I32x16 x, I32x16 y) {
  return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
inline I32x16 MulI(I32x16 x, I32x16 y) {
  return {_mm256_mullo_epi32(x.a, y.a), _mm256_mullo_epi32(x.b, y.b)};
}
inline I32x16 AndI(I32x16 x, I32x16 y) {
  return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
}
inline I32x16 OrI(I32x16 x, I32x16 y) {
  return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
inline I32x16 XorI(I32x16 x, I32x16 y) {
  return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)};
}
inline I32x16 MaxI(I32x16 x, I32x16 y) {
  return {_mm256_max_epu32(x.a, y.a), _mm256_max_epu32(x.b, y.b)};
}
inline Mask16 EqI(I32x16 x, I32x16 y) {
  return {_mm256_cmpeq_epi32(x.a, y.a), _mm256_cmpeq_epi32(x.b, y.b)};
}
inline Mask16 GtI(I32x16 x, I32x16 y) {
  return {_mm256_cmpgt_epi32(x.a, y.a), _mm256_cmpgt_epi32(x.b, y.b)};
}
inline I32x16 SelectI(Mask16 mask, I32x16 yes, I32x16 no) {
  return {_mm256_blendv_epi8(no.a, yes.a, mask.a), _mm256_blendv_epi8(no.b, yes.b, mask.b)};
}
template <int kBits>
inline I32x16 ShiftLeftI(I32x16 x) {
  return {_mm256_slli_epi32(x.a, kBits), _mm256_slli_epi32(x.b, kBits)};
}
template <int kBits>
inline I32x16 ShiftRightI(I32x16 x) {
  return {_mm256_srli_epi32(x.a, kBits), _mm256_srli_epi32(x.b, kBits)};
}
inline I32x16 ShiftRightEachI(I32x16 x, I32x16 counts) {
  return {_mm256_srlv_epi32(x.a, counts.a), _mm256_srlv_epi32(x.b, counts.b)};
}
template <int kBits>
inline I32x16 ShiftRightSignedI(I32x16 x) {
  return {_mm256_srai_epi32(x.a, kBits), _mm256_srai_epi32(x.b, kBits)};
}
inline I32x16 NegateI(Mask16 mask, I32x16 x) {
  return {_mm256_sub_epi32(_mm256_xor_si256(x.a, mask.a), mask.a),
          _mm256_sub_epi32(_mm256_xor_si256(x.b, mask.b), mask.b)};
}
inline I64x8 SetW(uint32_t x) {
  const __m256i all = _mm256_set1_epi32(static_cast<int>(x));
  return {all, all};
}
inline I64x8 EvenW(I32x16 x) { return {x.a, x.b}; }
inline I64x8 OddW(I32x16 x) { return {_mm256_srli_epi64(x.a, 32), _mm256_srli_epi64(x.b, 32)}; }
inline I32x16 JoinW(I64x8 even, I64x8 odd) {
  return {_mm256_blend_epi32(even.a, _mm256_slli_epi64(odd.a, 32), 0xaa),
          _mm256_blend_epi32(even.b, _mm256_slli_epi64(odd.b, 32), 0xaa)};
}
inline I64x8 MulW(I64x8 x, I64x8 factor) {
  return {_mm256_mul_epu32(x.a, factor.a), _mm256_mul_epu32(x.b, factor.b)};
}
inline I64x8 HighW(I64x8 x) { return {_mm256_srli_epi64(x.a, 32), _mm256_srli_epi64(x.b, 32)}; }
inline I64x8 XorW(I64x8 x, I64x8 y) {
  return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)};
}
inline I32x16 Iota() {
  return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
          _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}

inline I32x16 AsI(F32x16 x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
inline F32x16 AsF(I32x16 x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
inline F32x16 ToFloat(I32x16 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline I32x16 ToNearestInt(F32x16 x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }

inline uint32_t Bits(Mask16 mask) {
  const int low = _mm256_movemask_ps(_mm256_castsi256_ps(mask.a));
  const int high = _mm256_movemask_ps(_mm256_castsi256_ps(mask.b));
  return static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << 8;
}
inline Mask16 MaskOf(uint32_t bits) {
  const __m256i word = _mm256_set1_epi32(static_cast<int>(bits));
  const __m256i low = _mm256_sllv_epi32(word, _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24));
  const __m256i high = _mm256_sllv_epi32(word, _mm256_setr_epi32(23, 22, 21, 20, 19, 18, 17, 16));
  return {_mm256_srai_epi32(low, 31), _mm256_srai_epi32(high, 31)};
}
inline I32x16 LanesI(Mask16 mask) { return {mask.a, mask.b}; }

// Entry m has the numbers of m's set bits in rising order, four bits each, lowest first.
struct CompressTable {
  uint32_t order[256];
};
constexpr CompressTable MakeCompressTable() {
  CompressTable table = {};
  for (uint32_t mask = 0; mask < 256; ++mask) {
    uint32_t count = 0;
    for (uint32_t bit = 0; bit < 8; ++bit) {
      if ((mask >> bit & 1) != 0) table.order[mask] |= bit << (4 * count++);
    }
  }
  return table;
}
constexpr CompressTable kCompressTable = MakeCompressTable();

inline __m256i CompressOrder(uint32_t mask) {
  const __m256i word = _mm256_set1_epi32(static_cast<int>(kCompressTable.order[mask]));
  return _mm256_srlv_epi32(word, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
}
inline size_t CompressI(Mask16 mask, I32x16 x, uint32_t* out) {
  const uint32_t bits = Bits(mask);
  const uint32_t low = bits & 0xff, high = bits >> 8;
  const size_t first = static_cast<size_t>(_mm_popcnt_u32(low));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                      _mm256_permutevar8x32_epi32(x.a, CompressOrder(low)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + first),
                      _mm256_permutevar8x32_epi32(x.b, CompressOrder(high)));
  return first + static_cast<size_t>(_mm_popcnt_u32(high));
}
inline size_t CompressF(Mask16 mask, F32x16 x, float* out) {
  return CompressI(mask, AsI(x), reinterpret_cast<uint32_t*>(out));
}

// A permutation looks at three bits of an index. The fourth bit chooses the half of the table.
inline __m256 Lookup8(const float* table, __m256i index) {
  const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), index);
  const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), index);
  return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}
inline F32x16 LookupF(const float* table, I32x16 index) {
  return {Lookup8(table, index.a), Lookup8(table, index.b)};
}

// Negates the lanes that take the difference, and adds each lane's partner. A product by 1 or -1 is
// exact, so the sum is rounded once, as everywhere.
template <int kDistance>
inline __m256 Butterfly8(__m256 x) {
  const auto sign = [](int lane) { return (lane & kDistance) == 0 ? 1.0f : -1.0f; };
  const __m256 signs =
      _mm256_setr_ps(sign(0), sign(1), sign(2), sign(3), sign(4), sign(5), sign(6), sign(7));
  __m256 other;
  if constexpr (kDistance == 1) {
    other = _mm256_permute_ps(x, 0xb1);
  } else if constexpr (kDistance == 2) {
    other = _mm256_permute_ps(x, 0x4e);
  } else {
    other = _mm256_permute2f128_ps(x, x, 1);
  }
  return _mm256_fmadd_ps(x, signs, other);
}
template <int kDistance>
inline F32x16 ButterflyF(F32x16 x) {
  if constexpr (kDistance == 8) {
    return {_mm256_add_ps(x.a, x.b), _mm256_sub_ps(x.a, x.b)};
  } else {
    return {Butterfly8<kDistance>(x.a), Butterfly8<kDistance>(x.b)};
  }
}

// How many groups of lanes a pass over a block keeps in registers.
constexpr size_t kPassGroups = 4;

inline float FoldMax(F32x16 x) {
  const __m256 eight = _mm256_max_ps(x.a, x.b);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float FoldSum(F32x16 x) {
  const __m256 eight = _mm256_add_ps(x.a, x.b);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

}  // namespace
}  // namespace slimps

#include "compress/kernels/lanes/lanes_avx2_packed.h"

#endif  // SLIMPS_COMPRESS_KERNELS_LANES_LANES_AVX2_H_
