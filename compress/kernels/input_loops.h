// x, as every kernel sees it.
#ifndef SLIMPS_COMPRESS_KERNELS_INPUT_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_INPUT_LOOPS_H_

#include "compress/kernels/lanes.h"

namespace slimps {
namespace {

// gradient * grad_scale + residual, or without the sum.
template <bool kResidual, typename Count>
inline F32x16 InputLanes(const float* gradient, const float* residual, F32x16 grad_scale, size_t i,
                         Count count) {
  const F32x16 scaled = MulF(LoadF(gradient + i, count), grad_scale);
  if constexpr (kResidual) return AddF(scaled, LoadF(residual + i, count));
  return scaled;
}

inline void AddSquare(F32x16& sum, F32x16 x) { sum = AddF(sum, MulF(x, x)); }

// Lanes past the end as +0.
inline F32x16 KeepCount(F32x16 x, AllLanes) { return x; }
inline F32x16 KeepCount(F32x16 x, SomeLanes count) { return KeepF(MaskOf(count.bits()), x); }

// Bit j of `bits` is element i + j; bits past the end are 0. i is a multiple of 16.
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

template <bool kAdd, typename Count>
inline void Emit(F32x16 value, float* dst, Count count) {
  if constexpr (kAdd) value = AddF(LoadF(dst, count), value);
  StoreF(value, dst, count);
}

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_INPUT_LOOPS_H_
