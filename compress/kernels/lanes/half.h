// SPDX-License-Identifier: Apache-2.0
// Converts one number to and from fp16 and bf16 with the rounding of the vector instructions: to
// nearest even. NaNs become quiet and keep their upper bits.
#ifndef SLIMPS_COMPRESS_KERNELS_LANES_HALF_H_
#define SLIMPS_COMPRESS_KERNELS_LANES_HALF_H_

#include <cstdint>

#include "compress/kernels/lanes/lanes.h"

namespace slimps {
namespace {

struct F16 {
  static uint16_t Encode(float value) {
    const uint32_t bits = BitsOf(value);
    const uint32_t sign = (bits >> 16) & 0x8000;
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) {
      return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
    }
    if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 or more
    if (magnitude >= 0x38800000) {  // normal: 2^-14 or more
      const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
      return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
    }
    // Less than half of the smallest fp16 number rounds to 0.
    if (magnitude < 0x33000000) return static_cast<uint16_t>(sign);
    // Subnormal: shift the mantissa right, and round by the bits that fall off.
    const uint32_t shift = 126 - (magnitude >> 23);
    const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    const uint32_t rest = mantissa & ((1u << shift) - 1);
    const uint32_t half = 1u << (shift - 1);
    uint32_t quotient = mantissa >> shift;
    if (rest > half || (rest == half && (quotient & 1) != 0)) ++quotient;
    return static_cast<uint16_t>(sign | quotient);
  }
  static float Decode(uint16_t wire) {
    const uint32_t sign = static_cast<uint32_t>(wire & 0x8000) << 16;
    const uint32_t magnitude = wire & 0x7fff;
    if (magnitude > 0x7c00) return FloatOf(sign | 0x7fc00000 | (magnitude << 13));
    if (magnitude == 0x7c00) return FloatOf(sign | 0x7f800000);
    if (magnitude >= 0x400) return FloatOf(sign | ((magnitude << 13) + 0x38000000));
    return FloatOf(sign | BitsOf(static_cast<float>(magnitude) * 0x1p-24f));
  }
};

struct Bf16 {
  static uint16_t Encode(float value) {
    const uint32_t bits = BitsOf(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
  static float Decode(uint16_t wire) { return FloatOf(static_cast<uint32_t>(wire) << 16); }
};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LANES_HALF_H_
