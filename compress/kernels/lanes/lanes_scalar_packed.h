// SPDX-License-Identifier: Apache-2.0
// The packing part of lanes_scalar.h: half precision, bytes, nibbles. Only that file includes it.
#ifndef SLIMPS_COMPRESS_KERNELS_LANES_LANES_SCALAR_PACKED_H_
#define SLIMPS_COMPRESS_KERNELS_LANES_LANES_SCALAR_PACKED_H_

#include "compress/kernels/lanes/half.h"
#include "compress/kernels/lanes/lanes_scalar.h"

namespace slimps {
namespace {

template <typename Half, typename Count>
inline F32x16 LoadHalf(const std::byte* p, Count count) {
  F32x16 out = {};
  for (size_t j = 0; j < count.size(); ++j) {
    uint16_t wire;
    std::memcpy(&wire, p + j * sizeof wire, sizeof wire);
    out.v[j] = Half::Decode(wire);
  }
  return out;
}
template <typename Half, typename Count>
inline F32x16 StoreHalf(F32x16 x, std::byte* p, Count count) {
  for (size_t j = 0; j < count.size(); ++j) {
    const uint16_t wire = Half::Encode(x.v[j]);
    std::memcpy(p + j * sizeof wire, &wire, sizeof wire);
  }
  return LoadHalf<Half>(p, count);
}
template <typename Count>
inline F32x16 LoadF16(const std::byte* p, Count count) {
  return LoadHalf<F16>(p, count);
}
template <typename Count>
inline F32x16 StoreF16(F32x16 x, std::byte* p, Count count) {
  return StoreHalf<F16>(x, p, count);
}
template <typename Count>
inline F32x16 LoadBf16(const std::byte* p, Count count) {
  return LoadHalf<Bf16>(p, count);
}
template <typename Count>
inline F32x16 StoreBf16(F32x16 x, std::byte* p, Count count) {
  return StoreHalf<Bf16>(x, p, count);
}

inline uint64_t PackNibbles(I32x16 x) {
  uint64_t packed = 0;
  for (size_t j = 0; j < kLanes; ++j) packed |= uint64_t{x.v[j]} << (4 * j);
  return packed;
}
inline I32x16 LoadNibbles(const uint8_t* p) {
  return EachI([&](size_t j) { return static_cast<uint32_t>(p[j / 2]) >> (j % 2 * 4) & 15; });
}
inline I32x16 LoadSignedNibbles(const uint8_t* p) {
  const I32x16 codes = LoadNibbles(p);
  return EachI([&](size_t j) { return codes.v[j] - 8; });
}
template <typename Count>
inline I32x16 LoadBytes(const uint8_t* p, Count count) {
  I32x16 out = {};
  for (size_t j = 0; j < count.size(); ++j) out.v[j] = p[j];
  return out;
}
template <typename Count>
inline void StoreBytes(I32x16 x, uint8_t* p, Count count) {
  for (size_t j = 0; j < count.size(); ++j) p[j] = static_cast<uint8_t>(x.v[j]);
}

struct I8x32 {
  int8_t v[2 * kLanes];
};
template <typename F>
inline I8x32 EachI8(const F& f) {
  I8x32 out;
  for (size_t j = 0; j < 2 * kLanes; ++j) out.v[j] = static_cast<int8_t>(f(j));
  return out;
}
inline I8x32 PackI8(I32x16 x, I32x16 y) {
  return EachI8([&](size_t j) {
    const auto wide = static_cast<int32_t>(j < kLanes ? x.v[j] : y.v[j - kLanes]);
    return wide < -128 ? -128 : wide > 127 ? 127 : wide;
  });
}
inline I8x32 AddI8(I8x32 x, uint8_t n) {
  return EachI8([&](size_t j) { return static_cast<uint8_t>(x.v[j] + n); });
}
inline I8x32 SetI8(uint8_t n) {
  return EachI8([&](size_t) { return n; });
}
inline I8x32 LoadI8(const uint8_t* p) {
  return EachI8([&](size_t j) { return p[j]; });
}
inline I8x32 RepeatI8(const uint8_t* p) {
  return EachI8([&](size_t j) { return p[j % 16]; });
}
inline I8x32 AddI8(I8x32 x, I8x32 y) {
  return EachI8([&](size_t j) { return static_cast<uint8_t>(x.v[j] + y.v[j]); });
}
inline I8x32 LowNibblesI8(I8x32 x) {
  return EachI8([&](size_t j) { return x.v[j] & 15; });
}
inline I8x32 HighNibblesI8(I8x32 x) {
  return EachI8([&](size_t j) { return (x.v[j] >> 4) & 15; });
}
inline I8x32 LookupI8(I8x32 table, I8x32 index) {
  return EachI8([&](size_t j) { return table.v[index.v[j]]; });
}
inline void StoreInterleavedI8(I8x32 even, I8x32 odd, uint8_t* p) {
  for (size_t j = 0; j < 2 * kLanes; ++j) {
    p[2 * j] = static_cast<uint8_t>(even.v[j]);
    p[2 * j + 1] = static_cast<uint8_t>(odd.v[j]);
  }
}
inline I8x32 NegateI8(I8x32 x) {
  return EachI8([&](size_t j) { return static_cast<uint8_t>(-x.v[j]); });
}
inline uint32_t SignBits(I8x32 x) {
  uint32_t bits = 0;
  for (size_t j = 0; j < 2 * kLanes; ++j) bits |= static_cast<uint32_t>(x.v[j] < 0) << j;
  return bits;
}
inline void StoreI8(I8x32 x, uint8_t* p) { std::memcpy(p, x.v, sizeof x.v); }
inline void StoreNibblesI8(I8x32 x, uint8_t* p) {
  for (size_t j = 0; j < kLanes; ++j) {
    p[j] = static_cast<uint8_t>(x.v[2 * j] | x.v[2 * j + 1] << 4);
  }
}

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LANES_LANES_SCALAR_PACKED_H_
