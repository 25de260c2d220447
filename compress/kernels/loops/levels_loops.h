// SPDX-License-Identifier: Apache-2.0
// The kernels of levels.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_LEVELS_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_LEVELS_LOOPS_H_

#include "compress/kernels/levels.h"
#include "compress/kernels/loops/input_loops.h"
#include "compress/kernels/loops/planes_loops.h"

namespace slimps {
namespace {

template <bool kResidual>
SignSums EncodeSign(const float* gradient, float* residual, float grad_scale, size_t n,
                    uint8_t* bits) {
  const F32x16 scale = SetF(grad_scale);
  F32x16 magnitude = SetF(0), input2 = SetF(0);
  StoreSigns(n, kSignClear, bits, [&](size_t i, auto count) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    magnitude = AddF(magnitude, AbsF(x));
    if constexpr (kResidual) {
      StoreF(x, residual + i, count);
    } else {
      CountSquare(input2, x);
    }
    return x;
  });
  return {.positive = FoldSum(magnitude), .input2 = FoldSum(input2)};
}

template <bool kResidual>
SignSums EncodeSignSplit(const float* gradient, float* residual, float grad_scale, size_t n,
                         uint8_t* bits) {
  const F32x16 scale = SetF(grad_scale), zero = SetF(0);
  F32x16 positive = zero, negative = zero, input2 = zero;
  StoreSigns(n, kSignClear, bits, [&](size_t i, auto count) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    positive = AddF(positive, MaxF(x, zero));
    negative = AddF(negative, MinF(x, zero));
    if constexpr (kResidual) {
      StoreF(x, residual + i, count);
    } else {
      CountSquare(input2, x);
    }
    return x;
  });
  return {FoldSum(positive), FoldSum(negative), FoldSum(input2), CountBits(bits, n)};
}

inline float SubtractSign(float positive, float negative, size_t n, float* residual) {
  const F32x16 plus = SetF(positive), minus = SetF(negative);
  F32x16 error2 = SetF(0);
  ForLanes(n, [&](size_t i, auto count) {
    const F32x16 x = LoadF(residual + i, count);
    const F32x16 error = SubF(x, SelectNegativeF(x, minus, plus));
    StoreF(error, residual + i, count);
    CountSquare(error2, KeepCount(error, count));
  });
  return FoldSum(error2);
}

template <bool kResidual>
BlockSums Encode1BitFixed(const float* gradient, float* residual, float grad_scale, float threshold,
                          float value, size_t n, uint8_t* bits) {
  const F32x16 scale = SetF(grad_scale);
  const F32x16 bound = SetF(threshold), plus = SetF(value), minus = SetF(-value);
  F32x16 input2 = SetF(0), error2 = SetF(0);
  StoreSigns(n, 0, bits, [&](size_t i, auto count) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    const F32x16 over = AsF(LanesI(GtF(x, bound)));
    // An element past the end is not sent: its error must be 0, as its input is.
    const F32x16 error = KeepCount(SubF(x, SelectNegativeF(over, plus, minus)), count);
    CountSquare(input2, x);
    CountSquare(error2, error);
    if constexpr (kResidual) StoreF(error, residual + i, count);
    return over;
  });
  return {.input2 = FoldSum(input2),
          .decoded2 = value * value * static_cast<float>(n),
          .error2 = FoldSum(error2),
          .sent = static_cast<uint32_t>(n)};
}

// What two bits say about x, as sign bits: `sent` if it is sent, `x` its sign.
struct SentSigns {
  F32x16 sent, x;
};

template <bool kResidual>
BlockSums Encode2BitFixed(const float* gradient, float* residual, float grad_scale, float threshold,
                          size_t n, uint8_t* plane0, uint8_t* plane1) {
  const F32x16 scale = SetF(grad_scale), bound = SetF(threshold);
  const I32x16 sign = SetI(0x80000000);
  F32x16 input2 = SetF(0), error2 = SetF(0);
  const auto encode = [&](size_t i, auto count) -> SentSigns {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    const Mask16 sent = GeF(AbsF(x), bound);
    const F32x16 signed_bound = AsF(OrI(AndI(AsI(x), sign), AsI(bound)));
    const F32x16 error = SubF(x, KeepF(sent, signed_bound));
    CountSquare(input2, x);
    CountSquare(error2, error);
    if constexpr (kResidual) StoreF(error, residual + i, count);
    return {AsF(LanesI(sent)), x};
  };
  const size_t whole = n / (2 * kLanes) * (2 * kLanes);
  for (size_t i = 0; i < whole; i += 2 * kLanes) {
    const SentSigns low = encode(i, AllLanes()), high = encode(i + kLanes, AllLanes());
    const uint32_t sent = SignBits(low.sent, high.sent), negative = SignBits(low.x, high.x);
    const uint32_t word0 = sent & ~negative, word1 = sent & negative;
    std::memcpy(plane0 + i / 8, &word0, sizeof word0);
    std::memcpy(plane1 + i / 8, &word1, sizeof word1);
  }
  ForLanes(n - whole, [&](size_t i, auto count) {
    const SentSigns bits = encode(whole + i, count);
    const uint32_t sent = SignBits(bits.sent), negative = SignBits(bits.x);
    StoreBits(sent & ~negative, plane0, whole + i, count);
    StoreBits(sent & negative, plane1, whole + i, count);
  });
  const uint32_t sent = CountBits(plane0, n) + CountBits(plane1, n);
  // If the square overflowed and none is sent, the product would be NaN.
  const float square = sent == 0 ? 0.0f : threshold * threshold;
  return {.input2 = FoldSum(input2),
          .decoded2 = square * static_cast<float>(sent),
          .error2 = FoldSum(error2),
          .sent = sent};
}

template <typename Format, bool kAdd>
inline __attribute__((always_inline)) void DecodePlanes(const LevelsTerm& term, size_t n,
                                                        float* dst) {
  const F32x16 plus = SetF(term.positive), minus = SetF(term.negative);
  const size_t whole = n / (2 * kLanes) * (2 * kLanes);
  for (size_t i = 0; i < whole; i += 2 * kLanes) {
    const auto word = Format::Load(term, i);
    Emit<kAdd>(Format::template Values<0>(word, plus, minus), dst + i, AllLanes());
    Emit<kAdd>(Format::template Values<1>(word, plus, minus), dst + i + kLanes, AllLanes());
  }
  ForLanes(n - whole, [&](size_t j, auto count) {
    Emit<kAdd>(Format::ValuesAt(term, whole + j, count, plus, minus), dst + whole + j, count);
  });
}

template <bool kAdd>
void Decode1Bit(const uint8_t* bits, float positive, float negative, size_t n, float* dst) {
  DecodePlanes<OneBit, kAdd>({bits, nullptr, positive, negative}, n, dst);
}

template <bool kAdd>
void Decode2Bit(const uint8_t* plane0, const uint8_t* plane1, float positive, float negative,
                size_t n, float* dst) {
  DecodePlanes<TwoBits, kAdd>({plane0, plane1, positive, negative}, n, dst);
}

constexpr LevelsKernels kLevelsKernels = {
    .encode_sign = ByResidual<EncodeSign<false>, EncodeSign<true>>,
    .encode_sign_split = ByResidual<EncodeSignSplit<false>, EncodeSignSplit<true>>,
    .subtract_sign = SubtractSign,
    .encode_1bit_fixed = ByResidual<Encode1BitFixed<false>, Encode1BitFixed<true>>,
    .encode_2bit_fixed = ByResidual<Encode2BitFixed<false>, Encode2BitFixed<true>>,
    .decode_1bit = Decode1Bit<false>,
    .add_1bit = Decode1Bit<true>,
    .decode_2bit = Decode2Bit<false>,
    .add_2bit = Decode2Bit<true>,
};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_LEVELS_LOOPS_H_
