// The loops that define what every kernel computes, from element `begin` to n. The scalar kernels
// run them from 0, the vector kernels over what is left after their last whole vector. Included by
// kernels_*.cc only: all has internal linkage, so that code compiled for a newer CPU can never be
// linked into the scalar kernels.
#ifndef SLIMPS_COMPRESS_FORMAT_SCALAR_LOOPS_H_
#define SLIMPS_COMPRESS_FORMAT_SCALAR_LOOPS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace slimps {
namespace {

constexpr size_t kLanes = 16;

inline float Input(const float* gradient, const float* residual, float grad_scale, size_t i) {
  const float scaled = gradient[i] * grad_scale;
  return residual == nullptr ? scaled : scaled + residual[i];
}

// 8 + 8, 4 + 4, 2 + 2, 1 + 1.
inline float FoldLanes(float* lanes) {
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

inline size_t FindLoop(const float* gradient, const float* residual, float grad_scale, float limit,
                       size_t begin, size_t n) {
  for (size_t i = begin; i < n; ++i) {
    if (!(__builtin_fabsf(Input(gradient, residual, grad_scale, i)) <= limit)) return i;
  }
  return n;
}

// ---- fp32, fp16, bf16
// ----------------------------------------------------------------------------------------------

inline uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

struct F32 {
  using Wire = float;
  static Wire Encode(float value) { return value; }
  static float Decode(Wire wire) { return wire; }
};

// As VCVTPS2PH and VCVTPH2PS: nearest even, NaNs become quiet and keep their upper bits.
struct F16 {
  using Wire = uint16_t;
  static Wire Encode(float value) {
    const uint32_t bits = BitsOf(value);
    const uint32_t sign = (bits >> 16) & 0x8000;
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return sign | 0x7e00 | ((magnitude >> 13) & 0x3ff);
    if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65520 and more round to infinity
    if (magnitude >= 0x38800000) {                      // normal: 2^-14 and more
      const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
      return sign | ((rounded - 0x38000000) >> 13);
    }
    if (magnitude < 0x33000000) return sign;  // under half of the smallest, 2^-25
    const uint32_t shift = 126 - (magnitude >> 23);
    const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    const uint32_t rest = mantissa & ((1u << shift) - 1);
    const uint32_t half = 1u << (shift - 1);
    uint32_t quotient = mantissa >> shift;
    if (rest > half || (rest == half && (quotient & 1) != 0)) ++quotient;
    return sign | quotient;
  }
  static float Decode(Wire wire) {
    const uint32_t sign = static_cast<uint32_t>(wire & 0x8000) << 16;
    const uint32_t magnitude = wire & 0x7fff;
    if (magnitude > 0x7c00) return FloatOf(sign | 0x7fc00000 | (magnitude << 13));
    if (magnitude == 0x7c00) return FloatOf(sign | 0x7f800000);
    if (magnitude >= 0x400) return FloatOf(sign | ((magnitude << 13) + 0x38000000));
    return FloatOf(sign | BitsOf(static_cast<float>(magnitude) * 0x1p-24f));
  }
};

struct Bf16 {
  using Wire = uint16_t;
  static Wire Encode(float value) {
    const uint32_t bits = BitsOf(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (bits >> 16) | 0x40;
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  }
  static float Decode(Wire wire) { return FloatOf(static_cast<uint32_t>(wire) << 16); }
};

template <typename Type>
inline void EncodeRawLoop(const float* gradient, float* residual, float grad_scale, size_t begin,
                          size_t n, std::byte* out) {
  for (size_t i = begin; i < n; ++i) {
    const float x = Input(gradient, residual, grad_scale, i);
    const typename Type::Wire wire = Type::Encode(x);
    std::memcpy(out + i * sizeof wire, &wire, sizeof wire);
    if (residual != nullptr) residual[i] = x - Type::Decode(wire);
  }
}

template <typename Type, bool kAdd>
inline void DecodeRawLoop(const std::byte* in, size_t begin, size_t n, float* dst) {
  for (size_t i = begin; i < n; ++i) {
    typename Type::Wire wire;
    std::memcpy(&wire, in + i * sizeof wire, sizeof wire);
    dst[i] = kAdd ? dst[i] + Type::Decode(wire) : Type::Decode(wire);
  }
}

// ---- levels; `begin` is a multiple of 8
// ----------------------------------------------------------------------------

// Calls bit(i) for each element and stores what it returns.
template <typename Bit>
inline void StoreBits(size_t begin, size_t n, uint8_t* bits, const Bit& bit) {
  for (size_t i = begin; i < n; i += 8) {
    const size_t end = n - i < 8 ? n : i + 8;
    unsigned byte = 0;
    for (size_t j = i; j < end; ++j) byte |= static_cast<unsigned>(bit(j)) << (j - i);
    bits[i / 8] = static_cast<uint8_t>(byte);
  }
}

inline bool BitAt(const uint8_t* bits, size_t i) { return ((bits[i / 8] >> (i % 8)) & 1) != 0; }

inline void SignLoop(const float* gradient, float* residual, float grad_scale, size_t begin,
                     size_t n, uint8_t* bits, float* lanes) {
  StoreBits(begin, n, bits, [&](size_t i) {
    const float x = Input(gradient, residual, grad_scale, i);
    lanes[i % kLanes] += __builtin_fabsf(x);
    if (residual != nullptr) residual[i] = x;
    return x >= 0;
  });
}

inline uint32_t SignSplitLoop(const float* gradient, float* residual, float grad_scale,
                              size_t begin, size_t n, uint8_t* bits, float* positive_lanes,
                              float* negative_lanes) {
  uint32_t positives = 0;
  StoreBits(begin, n, bits, [&](size_t i) {
    const float x = Input(gradient, residual, grad_scale, i);
    const bool positive = x >= 0;
    positive_lanes[i % kLanes] += positive ? x : 0.0f;
    negative_lanes[i % kLanes] += positive ? 0.0f : x;
    positives += positive ? 1 : 0;
    if (residual != nullptr) residual[i] = x;
    return positive;
  });
  return positives;
}

inline void Fixed1Loop(const float* gradient, float* residual, float grad_scale, float threshold,
                       float value, size_t begin, size_t n, uint8_t* bits) {
  StoreBits(begin, n, bits, [&](size_t i) {
    const float x = Input(gradient, residual, grad_scale, i);
    const bool over = x > threshold;
    if (residual != nullptr) residual[i] = x - (over ? value : -value);
    return over;
  });
}

inline void Fixed2Loop(const float* gradient, float* residual, float grad_scale, float threshold,
                       size_t begin, size_t n, uint8_t* plane0, uint8_t* plane1) {
  for (size_t i = begin; i < n; i += 8) {
    const size_t end = n - i < 8 ? n : i + 8;
    unsigned high = 0, low = 0;
    for (size_t j = i; j < end; ++j) {
      const float x = Input(gradient, residual, grad_scale, j);
      const bool over = x >= threshold;
      const bool under = x <= -threshold;
      high |= static_cast<unsigned>(over) << (j - i);
      low |= static_cast<unsigned>(under) << (j - i);
      const float sent = over ? threshold : (under ? -threshold : 0.0f);
      if (residual != nullptr) residual[j] = x - sent;
    }
    plane0[i / 8] = static_cast<uint8_t>(high);
    plane1[i / 8] = static_cast<uint8_t>(low);
  }
}

template <bool kAdd>
inline void Decode1Loop(const uint8_t* bits, float positive, float negative, size_t begin, size_t n,
                        float* dst) {
  for (size_t i = begin; i < n; ++i) {
    const float level = BitAt(bits, i) ? positive : negative;
    dst[i] = kAdd ? dst[i] + level : level;
  }
}

template <bool kAdd>
inline void Decode2Loop(const uint8_t* plane0, const uint8_t* plane1, float positive,
                        float negative, size_t begin, size_t n, float* dst) {
  for (size_t i = begin; i < n; ++i) {
    const bool over = BitAt(plane0, i);
    const bool under = BitAt(plane1, i);
    const float level = over == under ? 0.0f : (over ? positive : negative);
    dst[i] = kAdd ? dst[i] + level : level;
  }
}

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_SCALAR_LOOPS_H_
