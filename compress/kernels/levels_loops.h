// The kernels of levels.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_LEVELS_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LEVELS_LOOPS_H_

#include "compress/kernels/input_loops.h"
#include "compress/kernels/levels.h"

namespace slimps {
namespace {

template <bool kResidual>
SignSums EncodeSignBlock(const float* gradient, float* residual, float grad_scale, size_t n,
                         uint8_t* bits) {
  const F32x16 scale = SetF(grad_scale), zero = SetF(0);
  F32x16 magnitude = zero, input2 = zero;
  ForLanes(n, [&](size_t i, auto count) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    magnitude = AddF(magnitude, AbsF(x));
    AddSquare(input2, x);
    StoreBits(Bits(GeF(x, zero)), bits, i, count);
    if constexpr (kResidual) StoreF(x, residual + i, count);
  });
  return {.positive = FoldSum(magnitude), .input2 = FoldSum(input2)};
}

inline SignSums EncodeSign(const float* gradient, float* residual, float grad_scale, size_t n,
                           uint8_t* bits) {
  return residual == nullptr ? EncodeSignBlock<false>(gradient, nullptr, grad_scale, n, bits)
                             : EncodeSignBlock<true>(gradient, residual, grad_scale, n, bits);
}

template <bool kResidual>
SignSums EncodeSignSplitBlock(const float* gradient, float* residual, float grad_scale, size_t n,
                              uint8_t* bits) {
  const F32x16 scale = SetF(grad_scale), zero = SetF(0);
  F32x16 positive = zero, negative = zero, input2 = zero;
  uint32_t positives = 0;
  ForLanes(n, [&](size_t i, auto count) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    const Mask16 mask = GeF(x, zero);
    positive = AddF(positive, KeepF(mask, x));
    negative = AddF(negative, SelectF(mask, zero, x));
    AddSquare(input2, x);
    const uint32_t word = Bits(mask) & count.bits();
    positives += static_cast<uint32_t>(__builtin_popcount(word));
    StoreBits(word, bits, i, count);
    if constexpr (kResidual) StoreF(x, residual + i, count);
  });
  return {FoldSum(positive), FoldSum(negative), FoldSum(input2), positives};
}

inline SignSums EncodeSignSplit(const float* gradient, float* residual, float grad_scale, size_t n,
                                uint8_t* bits) {
  return residual == nullptr ? EncodeSignSplitBlock<false>(gradient, nullptr, grad_scale, n, bits)
                             : EncodeSignSplitBlock<true>(gradient, residual, grad_scale, n, bits);
}

inline float Subtract1Bit(const uint8_t* bits, float positive, float negative, size_t n,
                          float* residual) {
  const F32x16 plus = SetF(positive), minus = SetF(negative);
  F32x16 error2 = SetF(0);
  ForLanes(n, [&](size_t i, auto count) {
    const F32x16 sent = SelectBitsF(LoadBits(bits, i, count), plus, minus);
    const F32x16 error = SubF(LoadF(residual + i, count), sent);
    StoreF(error, residual + i, count);
    AddSquare(error2, KeepCount(error, count));
  });
  return FoldSum(error2);
}

// `encode(x, count, i)` stores the bits and returns what x decodes to.
template <bool kResidual, typename Encode>
inline BlockSums EncodeFixed(const float* gradient, float* residual, float grad_scale, size_t n,
                             const Encode& encode) {
  const F32x16 scale = SetF(grad_scale);
  F32x16 input2 = SetF(0), error2 = SetF(0);
  ForLanes(n, [&](size_t i, auto count) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    const F32x16 error = SubF(x, encode(x, count, i));
    AddSquare(input2, x);
    AddSquare(error2, error);
    if constexpr (kResidual) StoreF(error, residual + i, count);
  });
  return {.input2 = FoldSum(input2), .error2 = FoldSum(error2)};
}

template <bool kResidual>
BlockSums Encode1BitFixedBlock(const float* gradient, float* residual, float grad_scale,
                               float threshold, float value, size_t n, uint8_t* bits) {
  const F32x16 bound = SetF(threshold), plus = SetF(value), minus = SetF(-value);
  BlockSums sums = EncodeFixed<kResidual>(gradient, residual, grad_scale, n,
                                          [&](F32x16 x, auto count, size_t i) {
                                            const Mask16 over = GtF(x, bound);
                                            StoreBits(Bits(over), bits, i, count);
                                            // What lies past the end is not sent: its error must be 0, as the input is.
                                            return KeepCount(SelectF(over, plus, minus), count);
                                          });
  sums.decoded2 = value * value * static_cast<float>(n);
  sums.sent = static_cast<uint32_t>(n);
  return sums;
}

inline BlockSums Encode1BitFixed(const float* gradient, float* residual, float grad_scale,
                                 float threshold, float value, size_t n, uint8_t* bits) {
  return residual == nullptr
             ? Encode1BitFixedBlock<false>(gradient, nullptr, grad_scale, threshold, value, n, bits)
             : Encode1BitFixedBlock<true>(gradient, residual, grad_scale, threshold, value, n,
                                          bits);
}

template <bool kResidual>
BlockSums Encode2BitFixedBlock(const float* gradient, float* residual, float grad_scale,
                               float threshold, size_t n, uint8_t* plane0, uint8_t* plane1) {
  const F32x16 plus = SetF(threshold), minus = SetF(-threshold);
  uint32_t sent = 0;
  BlockSums sums = EncodeFixed<kResidual>(
      gradient, residual, grad_scale, n, [&](F32x16 x, auto count, size_t i) {
        const Mask16 over = GeF(x, plus), under = LeF(x, minus);
        const uint32_t high = Bits(over), low = Bits(under);
        sent += static_cast<uint32_t>(__builtin_popcount(high | low));
        StoreBits(high, plane0, i, count);
        StoreBits(low, plane1, i, count);
        return SelectF(over, plus, KeepF(under, minus));
      });
  sums.decoded2 = threshold * threshold * static_cast<float>(sent);
  sums.sent = sent;
  return sums;
}

inline BlockSums Encode2BitFixed(const float* gradient, float* residual, float grad_scale,
                                 float threshold, size_t n, uint8_t* plane0, uint8_t* plane1) {
  return residual == nullptr ? Encode2BitFixedBlock<false>(gradient, nullptr, grad_scale, threshold,
                                                           n, plane0, plane1)
                             : Encode2BitFixedBlock<true>(gradient, residual, grad_scale, threshold,
                                                          n, plane0, plane1);
}

template <bool kAdd>
void Decode1Bit(const uint8_t* bits, float positive, float negative, size_t n, float* dst) {
  const F32x16 plus = SetF(positive), minus = SetF(negative);
  ForLanes(n, [&](size_t i, auto count) {
    Emit<kAdd>(SelectBitsF(LoadBits(bits, i, count), plus, minus), dst + i, count);
  });
}

template <bool kAdd>
void Decode2Bit(const uint8_t* plane0, const uint8_t* plane1, float positive, float negative,
                size_t n, float* dst) {
  const F32x16 plus = SetF(positive), minus = SetF(negative), zero = SetF(0);
  ForLanes(n, [&](size_t i, auto count) {
    // Both bits set means zero.
    const uint32_t high = LoadBits(plane0, i, count), low = LoadBits(plane1, i, count);
    const F32x16 lower = SelectBitsF(low & ~high, minus, zero);
    Emit<kAdd>(SelectBitsF(high & ~low, plus, lower), dst + i, count);
  });
}

constexpr LevelsKernels kLevelsKernels = {
    .encode_sign = EncodeSign,
    .encode_sign_split = EncodeSignSplit,
    .subtract_1bit = Subtract1Bit,
    .encode_1bit_fixed = Encode1BitFixed,
    .encode_2bit_fixed = Encode2BitFixed,
    .decode_1bit = Decode1Bit<false>,
    .add_1bit = Decode1Bit<true>,
    .decode_2bit = Decode2Bit<false>,
    .add_2bit = Decode2Bit<true>,
};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LEVELS_LOOPS_H_
