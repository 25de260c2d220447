// SPDX-License-Identifier: Apache-2.0
// The packing part of lanes_avx2.h: half precision, bytes, nibbles. Only that file includes it.
#ifndef SLIMPS_COMPRESS_KERNELS_LANES_LANES_AVX2_PACKED_H_
#define SLIMPS_COMPRESS_KERNELS_LANES_LANES_AVX2_PACKED_H_

#include "compress/kernels/lanes/bytes_256.h"
#include "compress/kernels/lanes/lanes_avx2.h"

namespace slimps {
namespace {

inline __m256 FromF16(__m128i wire) { return _mm256_cvtph_ps(wire); }
inline __m128i ToF16(__m256 x) {
  return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline __m256 FromBf16(__m128i wire) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(wire), 16));
}
inline __m128i ToBf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i rounded = _mm256_srli_epi32(sum, 16);
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i wide = _mm256_blendv_epi8(rounded, quiet, is_nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
}

// Load and store 16-bit numbers as 32 bytes, or fewer at the end of an array.
inline void LoadWords(const std::byte* p, AllLanes, __m128i& low, __m128i& high) {
  low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16));
}
inline void LoadWords(const std::byte* p, SomeLanes count, __m128i& low, __m128i& high) {
  alignas(32) std::byte words[32] = {};
  std::memcpy(words, p, count.n * 2);
  LoadWords(words, AllLanes(), low, high);
}
inline void StoreWords(__m128i low, __m128i high, std::byte* p, AllLanes) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), low);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16), high);
}
inline void StoreWords(__m128i low, __m128i high, std::byte* p, SomeLanes count) {
  alignas(32) std::byte words[32];
  StoreWords(low, high, words, AllLanes());
  std::memcpy(p, words, count.n * 2);
}
template <typename Count>
inline F32x16 LoadF16(const std::byte* p, Count count) {
  __m128i low, high;
  LoadWords(p, count, low, high);
  return {FromF16(low), FromF16(high)};
}
template <typename Count>
inline F32x16 StoreF16(F32x16 x, std::byte* p, Count count) {
  const __m128i low = ToF16(x.a), high = ToF16(x.b);
  StoreWords(low, high, p, count);
  return {FromF16(low), FromF16(high)};
}
template <typename Count>
inline F32x16 LoadBf16(const std::byte* p, Count count) {
  __m128i low, high;
  LoadWords(p, count, low, high);
  return {FromBf16(low), FromBf16(high)};
}
template <typename Count>
inline F32x16 StoreBf16(F32x16 x, std::byte* p, Count count) {
  const __m128i low = ToBf16(x.a), high = ToBf16(x.b);
  StoreWords(low, high, p, count);
  return {FromBf16(low), FromBf16(high)};
}

// Returns the lanes, 0 .. 255 each, as 16 bytes.
inline __m128i ToBytes(I32x16 x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(x.a, x.b), 0xd8);
  return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}
inline I32x16 FromBytes(__m128i bytes) {
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
inline uint64_t PackNibbles(I32x16 x) {
  // Pairs (even + 16 * odd) as 16-bit numbers, then as bytes.
  const __m128i pairs = _mm_maddubs_epi16(ToBytes(x), _mm_set1_epi16(0x1001));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_packus_epi16(pairs, pairs)));
}
inline __m256i Broadcast4(const uint8_t* p) {
  int bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return _mm256_set1_epi32(bytes);
}
inline I32x16 LoadNibbles(const uint8_t* p) {
  const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  const __m256i fifteen = _mm256_set1_epi32(15);
  return {_mm256_and_si256(_mm256_srlv_epi32(Broadcast4(p), shifts), fifteen),
          _mm256_and_si256(_mm256_srlv_epi32(Broadcast4(p + 4), shifts), fifteen)};
}
// With its upper bit flipped, a code less 8 is a signed number of four bits.
inline __m256i SignedNibbles(__m256i word) {
  const __m256i shifts = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
  const __m256i flipped = _mm256_xor_si256(word, _mm256_set1_epi8(static_cast<char>(0x88)));
  return _mm256_srai_epi32(_mm256_sllv_epi32(flipped, shifts), 28);
}
inline I32x16 LoadSignedNibbles(const uint8_t* p) {
  return {SignedNibbles(Broadcast4(p)), SignedNibbles(Broadcast4(p + 4))};
}
inline I32x16 LoadBytes(const uint8_t* p, AllLanes) {
  return FromBytes(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline I32x16 LoadBytes(const uint8_t* p, SomeLanes count) {
  alignas(16) uint8_t bytes[16] = {};
  std::memcpy(bytes, p, count.n);
  return LoadBytes(bytes, AllLanes());
}
inline void StoreBytes(I32x16 x, uint8_t* p, AllLanes) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), ToBytes(x));
}
inline void StoreBytes(I32x16 x, uint8_t* p, SomeLanes count) {
  alignas(16) uint8_t bytes[16];
  StoreBytes(x, bytes, AllLanes());
  std::memcpy(p, bytes, count.n);
}

// Packs work within halves, and the permutation restores the order.
inline I8x32 PackI8(I32x16 x, I32x16 y) {
  const __m256i low = _mm256_packs_epi32(x.a, x.b), high = _mm256_packs_epi32(y.a, y.b);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return {_mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order)};
}
inline uint32_t SignBits(I8x32 x) { return static_cast<uint32_t>(_mm256_movemask_epi8(x.v)); }
inline void StoreNibblesI8(I8x32 x, uint8_t* p) {
  // Pairs (even + 16 * odd) as 16-bit numbers, then as bytes, a quarter from each half.
  const __m256i pairs = _mm256_maddubs_epi16(x.v, _mm256_set1_epi16(0x1001));
  const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(pairs, pairs), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(bytes));
}

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LANES_LANES_AVX2_PACKED_H_
