// SPDX-License-Identifier: Apache-2.0
// I8x32: 32 bytes of a 256-bit register, for the lanes of AVX2 and of AVX-512 alike. What they do
// differently is in their own headers. Included by sources that are compiled for one of them.
#ifndef SLIMPS_COMPRESS_KERNELS_LANES_BYTES_256_H_
#define SLIMPS_COMPRESS_KERNELS_LANES_BYTES_256_H_

#include <immintrin.h>

#include <cstdint>

namespace slimps {
namespace {

struct I8x32 {
  __m256i v;
};
inline I8x32 AddI8(I8x32 x, uint8_t n) {
  return {_mm256_add_epi8(x.v, _mm256_set1_epi8(static_cast<char>(n)))};
}
inline I8x32 SetI8(uint8_t n) { return {_mm256_set1_epi8(static_cast<char>(n))}; }
inline I8x32 LoadI8(const uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
inline I8x32 RepeatI8(const uint8_t* p) {
  return {_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline I8x32 AddI8(I8x32 x, I8x32 y) { return {_mm256_add_epi8(x.v, y.v)}; }
inline I8x32 LowNibblesI8(I8x32 x) { return {_mm256_and_si256(x.v, _mm256_set1_epi8(15))}; }
inline I8x32 HighNibblesI8(I8x32 x) { return LowNibblesI8({_mm256_srli_epi16(x.v, 4)}); }
inline I8x32 LookupI8(I8x32 table, I8x32 index) { return {_mm256_shuffle_epi8(table.v, index.v)}; }
inline void StoreInterleavedI8(I8x32 even, I8x32 odd, uint8_t* p) {
  const __m256i low = _mm256_unpacklo_epi8(even.v, odd.v);
  const __m256i high = _mm256_unpackhi_epi8(even.v, odd.v);
  auto* const to = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(to, _mm256_permute2x128_si256(low, high, 0x20));
  _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(low, high, 0x31));
}
inline I8x32 NegateI8(I8x32 x) { return {_mm256_sub_epi8(_mm256_setzero_si256(), x.v)}; }
inline void StoreI8(I8x32 x, uint8_t* p) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.v);
}

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LANES_BYTES_256_H_
