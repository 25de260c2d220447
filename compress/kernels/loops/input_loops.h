// SPDX-License-Identifier: Apache-2.0
// How every kernel reads its input x, and helpers that several kernels share.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_INPUT_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_INPUT_LOOPS_H_

#include "compress/kernels/lanes/lanes.h"

namespace slimps {
namespace {

// How many elements ahead input is prefetched. This hides the start of each page, across which
// hardware does not prefetch.
constexpr size_t kFetchAhead = 512;

// Returns gradient * grad_scale + residual, or without the residual.
template <bool kResidual, typename Count>
inline F32x16 InputLanes(const float* gradient, const float* residual, F32x16 grad_scale, size_t i,
                         Count count) {
  const F32x16 scaled = MulF(LoadF(gradient + i, count), grad_scale);
  Prefetch(gradient + i + kFetchAhead);
  if constexpr (kResidual) Prefetch(residual + i + kFetchAhead);
  if constexpr (kResidual) return AddF(scaled, LoadF(residual + i, count));
  return scaled;
}

// The kernel that runs kWith, or kWithout if it is given no residual.
template <auto kWithout, auto kWith, typename Result, typename Residual, typename... Rest>
Result ByResidual(const float* gradient, Residual* residual, Rest... rest) {
  return residual == nullptr ? kWithout(gradient, nullptr, rest...)
                             : kWith(gradient, residual, rest...);
}

// For sums on which payloads depend: rounded twice, as any implementation would compute it.
inline void AddSquare(F32x16& sum, F32x16 x) { sum = AddF(sum, MulF(x, x)); }
// For statistics: fused, one instruction where speed counts.
inline void CountSquare(F32x16& sum, F32x16 x) { sum = AddSquareF(sum, x); }

// Returns x with lanes past the end as +0.
inline F32x16 KeepCount(F32x16 x, AllLanes) { return x; }
inline F32x16 KeepCount(F32x16 x, SomeLanes count) { return KeepF(MaskOf(count.bits()), x); }

// Store and load bits: bit j of `bits` is element i + j. Bits past the end are 0. REQUIRES: i is a
// multiple of 16.
inline void StoreBits(uint32_t bits, uint8_t* plane, size_t i, AllLanes) {
  const auto word = static_cast<uint16_t>(bits);
  std::memcpy(plane + i / 8, &word, sizeof word);
}
inline void StoreBits(uint32_t bits, uint8_t* plane, size_t i, SomeLanes count) {
  const auto word = static_cast<uint16_t>(bits & count.bits());
  std::memcpy(plane + i / 8, &word, (count.n + 7) / 8);
}
inline uint32_t LoadBits(const uint8_t* plane, size_t i, AllLanes) {
  uint16_t word;
  std::memcpy(&word, plane + i / 8, sizeof word);
  return word;
}
inline uint32_t LoadBits(const uint8_t* plane, size_t i, SomeLanes count) {
  uint16_t word = 0;
  std::memcpy(&word, plane + i / 8, (count.n + 7) / 8);
  return word;
}

constexpr uint32_t kSignClear = 0xffffffff;  // flips "sign bit set" into "sign bit clear"

// Sets bit i of `plane` to the sign bit of element i in what body returns, XOR `flip`.
template <typename Body>
inline __attribute__((always_inline)) void StoreSigns(size_t n, uint32_t flip, uint8_t* plane,
                                                      const Body& body) {
  const size_t whole = n / (2 * kLanes) * (2 * kLanes);
  for (size_t i = 0; i < whole; i += 2 * kLanes) {
    const F32x16 low = body(i, AllLanes());
    const uint32_t word = SignBits(low, body(i + kLanes, AllLanes())) ^ flip;
    std::memcpy(plane + i / 8, &word, sizeof word);
  }
  ForLanes(n - whole, [&](size_t i, auto count) {
    StoreBits(SignBits(body(whole + i, count)) ^ flip, plane, whole + i, count);
  });
}

inline uint32_t CountBits(const uint8_t* plane, size_t n) {
  uint64_t count = 0;
  size_t byte = 0;
  for (; byte + 8 <= (n + 7) / 8; byte += 8) {
    uint64_t word;
    std::memcpy(&word, plane + byte, sizeof word);
    count += static_cast<uint64_t>(__builtin_popcountll(word));
  }
  for (; byte < (n + 7) / 8; ++byte) {
    count += static_cast<uint64_t>(__builtin_popcount(plane[byte]));
  }
  return static_cast<uint32_t>(count);
}

// Writes the values to dst, or adds them to it.
template <bool kAdd, typename Count>
inline void Emit(F32x16 value, float* dst, Count count) {
  if constexpr (kAdd) {
    Prefetch(dst + kFetchAhead);
    value = AddF(LoadF(dst, count), value);
  }
  StoreF(value, dst, count);
}

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_INPUT_LOOPS_H_
