// AVX2 and F16C. Whole vectors here, the rest by the loops of scalar_loops.h; this file alone is
// compiled for AVX2, and uses nothing from elsewhere that could be emitted out of line.
#include <cpuid.h>
#include <immintrin.h>

#include "compress/format/kernel_sets.h"
#include "compress/format/scalar_loops.h"

namespace slimps {
namespace {

bool RunsHere() {
  __builtin_cpu_init();
  // Not every compiler's __builtin_cpu_supports knows "f16c": bit 29 of ECX of CPUID leaf 1.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1u << 29)) != 0;
  return has_f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt");
}

// Elements per step where bits are involved: one 32-bit word of them, two rounds of the 16 lanes.
constexpr size_t kStep = 32;
constexpr size_t kVector = 8;

inline __m256 Abs(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }

template <bool kResidual>
inline __m256 InputVector(const float* gradient, const float* residual, __m256 grad_scale,
                          size_t i) {
  const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(gradient + i), grad_scale);
  if constexpr (kResidual) return _mm256_add_ps(scaled, _mm256_loadu_ps(residual + i));
  return scaled;
}

inline uint32_t MaskBits(__m256 mask) { return static_cast<uint32_t>(_mm256_movemask_ps(mask)); }

inline void StoreWord(uint32_t word, uint8_t* bits, size_t i) {
  std::memcpy(bits + i / 8, &word, sizeof word);
}

inline uint32_t LoadWord(const uint8_t* bits, size_t i) {
  uint32_t word;
  std::memcpy(&word, bits + i / 8, sizeof word);
  return word;
}

template <bool kResidual>
size_t Find(const float* gradient, const float* residual, float grad_scale, float limit, size_t n) {
  const __m256 scale = _mm256_set1_ps(grad_scale);
  const __m256 bound = _mm256_set1_ps(limit);
  size_t i = 0;
  for (; n - i >= kStep; i += kStep) {
    __m256 bad = _mm256_setzero_ps();
    for (size_t k = 0; k < kStep; k += kVector) {
      const __m256 x = InputVector<kResidual>(gradient, residual, scale, i + k);
      bad = _mm256_or_ps(bad, _mm256_cmp_ps(Abs(x), bound, _CMP_NLE_UQ));
    }
    if (MaskBits(bad) != 0) break;
  }
  return FindLoop(gradient, residual, grad_scale, limit, i, n);
}

size_t FindUnencodable(const float* gradient, const float* residual, float grad_scale, float limit,
                       size_t n) {
  return residual == nullptr ? Find<false>(gradient, nullptr, grad_scale, limit, n)
                             : Find<true>(gradient, residual, grad_scale, limit, n);
}

// ---- raw
// -----------------------------------------------------------------------------------------------------------

struct F32Vector : F32 {
  static void Store(__m256 x, std::byte* out) {
    _mm256_storeu_ps(reinterpret_cast<float*>(out), x);
  }
  static __m256 Load(const std::byte* in) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(in));
  }
};

struct F16Vector : F16 {
  static void Store(__m256 x, std::byte* out) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static __m256 Load(const std::byte* in) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
  }
};

struct Bf16Vector : Bf16 {
  static void Store(__m256 x, std::byte* out) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i rounded = _mm256_srli_epi32(sum, 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i wide = _mm256_blendv_epi8(rounded, quiet, is_nan);
    const __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), packed);
  }
  static __m256 Load(const std::byte* in) {
    const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(packed), 16));
  }
};

template <typename Type, bool kResidual>
void EncodeRawVectors(const float* gradient, float* residual, float grad_scale, size_t n,
                      std::byte* out) {
  const __m256 scale = _mm256_set1_ps(grad_scale);
  size_t i = 0;
  for (; n - i >= kVector; i += kVector) {
    const __m256 x = InputVector<kResidual>(gradient, residual, scale, i);
    std::byte* const wire = out + i * sizeof(typename Type::Wire);
    Type::Store(x, wire);
    if constexpr (kResidual) {
      _mm256_storeu_ps(residual + i, _mm256_sub_ps(x, Type::Load(wire)));
    }
  }
  EncodeRawLoop<Type>(gradient, residual, grad_scale, i, n, out);
}

template <typename Type>
void EncodeRaw(const float* gradient, float* residual, float grad_scale, size_t n, std::byte* out) {
  if (residual == nullptr) {
    EncodeRawVectors<Type, false>(gradient, nullptr, grad_scale, n, out);
  } else {
    EncodeRawVectors<Type, true>(gradient, residual, grad_scale, n, out);
  }
}

template <bool kAdd>
inline void Emit(__m256 value, float* dst) {
  if constexpr (kAdd) value = _mm256_add_ps(_mm256_loadu_ps(dst), value);
  _mm256_storeu_ps(dst, value);
}

template <typename Type, bool kAdd>
void DecodeRaw(const std::byte* in, size_t n, float* dst) {
  size_t i = 0;
  for (; n - i >= kVector; i += kVector) {
    Emit<kAdd>(Type::Load(in + i * sizeof(typename Type::Wire)), dst + i);
  }
  DecodeRawLoop<Type, kAdd>(in, i, n, dst);
}

// ---- levels: encode
// ------------------------------------------------------------------------------------------------

template <bool kResidual>
float Sign(const float* gradient, float* residual, float grad_scale, size_t n, uint8_t* bits) {
  const __m256 scale = _mm256_set1_ps(grad_scale);
  const __m256 zero = _mm256_setzero_ps();
  __m256 sums[2] = {zero, zero};
  size_t i = 0;
  for (; n - i >= kStep; i += kStep) {
    uint32_t word = 0;
    for (size_t k = 0; k < 4; ++k) {
      const size_t at = i + k * kVector;
      const __m256 x = InputVector<kResidual>(gradient, residual, scale, at);
      sums[k % 2] = _mm256_add_ps(sums[k % 2], Abs(x));
      word |= MaskBits(_mm256_cmp_ps(x, zero, _CMP_GE_OQ)) << (k * kVector);
      if constexpr (kResidual) _mm256_storeu_ps(residual + at, x);
    }
    StoreWord(word, bits, i);
  }
  float lanes[kLanes];
  _mm256_storeu_ps(lanes, sums[0]);
  _mm256_storeu_ps(lanes + kVector, sums[1]);
  SignLoop(gradient, residual, grad_scale, i, n, bits, lanes);
  return FoldLanes(lanes);
}

float EncodeSign(const float* gradient, float* residual, float grad_scale, size_t n,
                 uint8_t* bits) {
  return residual == nullptr ? Sign<false>(gradient, nullptr, grad_scale, n, bits)
                             : Sign<true>(gradient, residual, grad_scale, n, bits);
}

template <bool kResidual>
SignSums SignSplit(const float* gradient, float* residual, float grad_scale, size_t n,
                   uint8_t* bits) {
  const __m256 scale = _mm256_set1_ps(grad_scale);
  const __m256 zero = _mm256_setzero_ps();
  __m256 positive[2] = {zero, zero};
  __m256 negative[2] = {zero, zero};
  uint32_t positives = 0;
  size_t i = 0;
  for (; n - i >= kStep; i += kStep) {
    uint32_t word = 0;
    for (size_t k = 0; k < 4; ++k) {
      const size_t at = i + k * kVector;
      const __m256 x = InputVector<kResidual>(gradient, residual, scale, at);
      const __m256 mask = _mm256_cmp_ps(x, zero, _CMP_GE_OQ);
      positive[k % 2] = _mm256_add_ps(positive[k % 2], _mm256_and_ps(mask, x));
      negative[k % 2] = _mm256_add_ps(negative[k % 2], _mm256_andnot_ps(mask, x));
      word |= MaskBits(mask) << (k * kVector);
      if constexpr (kResidual) _mm256_storeu_ps(residual + at, x);
    }
    positives += static_cast<uint32_t>(_mm_popcnt_u32(word));
    StoreWord(word, bits, i);
  }
  float positive_lanes[kLanes], negative_lanes[kLanes];
  _mm256_storeu_ps(positive_lanes, positive[0]);
  _mm256_storeu_ps(positive_lanes + kVector, positive[1]);
  _mm256_storeu_ps(negative_lanes, negative[0]);
  _mm256_storeu_ps(negative_lanes + kVector, negative[1]);
  positives +=
      SignSplitLoop(gradient, residual, grad_scale, i, n, bits, positive_lanes, negative_lanes);
  return {FoldLanes(positive_lanes), FoldLanes(negative_lanes), positives};
}

SignSums EncodeSignSplit(const float* gradient, float* residual, float grad_scale, size_t n,
                         uint8_t* bits) {
  return residual == nullptr ? SignSplit<false>(gradient, nullptr, grad_scale, n, bits)
                             : SignSplit<true>(gradient, residual, grad_scale, n, bits);
}

template <bool kResidual>
void Fixed1(const float* gradient, float* residual, float grad_scale, float threshold, float value,
            size_t n, uint8_t* bits) {
  const __m256 scale = _mm256_set1_ps(grad_scale);
  const __m256 bound = _mm256_set1_ps(threshold);
  const __m256 plus = _mm256_set1_ps(value);
  const __m256 minus = _mm256_set1_ps(-value);
  size_t i = 0;
  for (; n - i >= kStep; i += kStep) {
    uint32_t word = 0;
    for (size_t k = 0; k < 4; ++k) {
      const size_t at = i + k * kVector;
      const __m256 x = InputVector<kResidual>(gradient, residual, scale, at);
      const __m256 over = _mm256_cmp_ps(x, bound, _CMP_GT_OQ);
      word |= MaskBits(over) << (k * kVector);
      if constexpr (kResidual) {
        _mm256_storeu_ps(residual + at, _mm256_sub_ps(x, _mm256_blendv_ps(minus, plus, over)));
      }
    }
    StoreWord(word, bits, i);
  }
  Fixed1Loop(gradient, residual, grad_scale, threshold, value, i, n, bits);
}

void Encode1BitFixed(const float* gradient, float* residual, float grad_scale, float threshold,
                     float value, size_t n, uint8_t* bits) {
  if (residual == nullptr) {
    Fixed1<false>(gradient, nullptr, grad_scale, threshold, value, n, bits);
  } else {
    Fixed1<true>(gradient, residual, grad_scale, threshold, value, n, bits);
  }
}

template <bool kResidual>
void Fixed2(const float* gradient, float* residual, float grad_scale, float threshold, size_t n,
            uint8_t* plane0, uint8_t* plane1) {
  const __m256 scale = _mm256_set1_ps(grad_scale);
  const __m256 plus = _mm256_set1_ps(threshold);
  const __m256 minus = _mm256_set1_ps(-threshold);
  size_t i = 0;
  for (; n - i >= kStep; i += kStep) {
    uint32_t high = 0, low = 0;
    for (size_t k = 0; k < 4; ++k) {
      const size_t at = i + k * kVector;
      const __m256 x = InputVector<kResidual>(gradient, residual, scale, at);
      const __m256 over = _mm256_cmp_ps(x, plus, _CMP_GE_OQ);
      const __m256 under = _mm256_cmp_ps(x, minus, _CMP_LE_OQ);
      high |= MaskBits(over) << (k * kVector);
      low |= MaskBits(under) << (k * kVector);
      if constexpr (kResidual) {
        const __m256 sent = _mm256_or_ps(_mm256_and_ps(over, plus), _mm256_and_ps(under, minus));
        _mm256_storeu_ps(residual + at, _mm256_sub_ps(x, sent));
      }
    }
    StoreWord(high, plane0, i);
    StoreWord(low, plane1, i);
  }
  Fixed2Loop(gradient, residual, grad_scale, threshold, i, n, plane0, plane1);
}

void Encode2BitFixed(const float* gradient, float* residual, float grad_scale, float threshold,
                     size_t n, uint8_t* plane0, uint8_t* plane1) {
  if (residual == nullptr) {
    Fixed2<false>(gradient, nullptr, grad_scale, threshold, n, plane0, plane1);
  } else {
    Fixed2<true>(gradient, residual, grad_scale, threshold, n, plane0, plane1);
  }
}

// ---- levels: decode
// ------------------------------------------------------------------------------------------------

// Lane j's sign bit is bit 8 * k + j of `word`: what a blend looks at.
inline __m256 SignsFromBits(__m256i word, size_t k) {
  const __m256i shift = _mm256_sub_epi32(_mm256_set_epi32(24, 25, 26, 27, 28, 29, 30, 31),
                                         _mm256_set1_epi32(static_cast<int>(8 * k)));
  return _mm256_castsi256_ps(_mm256_sllv_epi32(word, shift));
}

inline __m256i Broadcast(uint32_t word) { return _mm256_set1_epi32(static_cast<int>(word)); }

template <bool kAdd>
void Decode1Bit(const uint8_t* bits, float positive, float negative, size_t n, float* dst) {
  const __m256 plus = _mm256_set1_ps(positive);
  const __m256 minus = _mm256_set1_ps(negative);
  size_t i = 0;
  for (; n - i >= kStep; i += kStep) {
    const __m256i word = Broadcast(LoadWord(bits, i));
    for (size_t k = 0; k < 4; ++k) {
      Emit<kAdd>(_mm256_blendv_ps(minus, plus, SignsFromBits(word, k)), dst + i + k * kVector);
    }
  }
  Decode1Loop<kAdd>(bits, positive, negative, i, n, dst);
}

template <bool kAdd>
void Decode2Bit(const uint8_t* plane0, const uint8_t* plane1, float positive, float negative,
                size_t n, float* dst) {
  const __m256 zero = _mm256_setzero_ps();
  const __m256 plus = _mm256_set1_ps(positive);
  const __m256 minus = _mm256_set1_ps(negative);
  size_t i = 0;
  for (; n - i >= kStep; i += kStep) {
    // Both bits set means zero.
    const uint32_t high = LoadWord(plane0, i);
    const uint32_t low = LoadWord(plane1, i);
    const __m256i over = Broadcast(high & ~low);
    const __m256i under = Broadcast(low & ~high);
    for (size_t k = 0; k < 4; ++k) {
      const __m256 lower = _mm256_blendv_ps(zero, minus, SignsFromBits(under, k));
      Emit<kAdd>(_mm256_blendv_ps(lower, plus, SignsFromBits(over, k)), dst + i + k * kVector);
    }
  }
  Decode2Loop<kAdd>(plane0, plane1, positive, negative, i, n, dst);
}

}  // namespace

constinit const Kernels kAvx2Kernels = {
    .name = "avx2",
    .runs_here = RunsHere,
    .find_unencodable = FindUnencodable,
    .encode_f32 = EncodeRaw<F32Vector>,
    .encode_f16 = EncodeRaw<F16Vector>,
    .encode_bf16 = EncodeRaw<Bf16Vector>,
    .decode_f16 = DecodeRaw<F16Vector, false>,
    .decode_bf16 = DecodeRaw<Bf16Vector, false>,
    .add_f32 = DecodeRaw<F32Vector, true>,
    .add_f16 = DecodeRaw<F16Vector, true>,
    .add_bf16 = DecodeRaw<Bf16Vector, true>,
    .encode_sign = EncodeSign,
    .encode_sign_split = EncodeSignSplit,
    .encode_1bit_fixed = Encode1BitFixed,
    .encode_2bit_fixed = Encode2BitFixed,
    .decode_1bit = Decode1Bit<false>,
    .add_1bit = Decode1Bit<true>,
    .decode_2bit = Decode2Bit<false>,
    .add_2bit = Decode2Bit<true>,
};

}  // namespace slimps
