// The encoders of quantize.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_QUANTIZE_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_QUANTIZE_LOOPS_H_

#include "compress/kernels/dequantize_loops.h"
#include "compress/kernels/input_loops.h"
#include "compress/kernels/levels_loops.h"
#include "compress/kernels/philox_loops.h"
#include "compress/kernels/quantize.h"

namespace slimps {
namespace {

template <bool kResidual>
InputNorms MeasureBlock(const float* gradient, const float* residual, float grad_scale, size_t n) {
  const F32x16 scale = SetF(grad_scale);
  F32x16 input2 = SetF(0), largest = SetF(0);
  ForLanes(n, [&](size_t i, auto count) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    AddSquare(input2, x);
    largest = MaxF(AbsF(x), largest);
  });
  return {.input2 = FoldSum(input2), .largest = FoldMax(largest)};
}

inline InputNorms Measure(const float* gradient, const float* residual, float grad_scale,
                          size_t n) {
  return residual == nullptr ? MeasureBlock<false>(gradient, nullptr, grad_scale, n)
                             : MeasureBlock<true>(gradient, residual, grad_scale, n);
}

template <bool kResidual>
BlockSums SignBlock(const float* gradient, float* residual, float grad_scale, size_t n,
                    uint8_t* bits) {
  const F32x16 scale = SetF(grad_scale), plus = SetF(1), minus = SetF(-1);
  F32x16 input2 = SetF(0), error2 = SetF(0);
  StoreSigns(n, kSignClear, bits, [&](size_t i, auto count) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    // What lies past the end is not sent: its error must be 0, as the input is.
    const F32x16 error = KeepCount(SubF(x, SelectNegativeF(x, minus, plus)), count);
    CountSquare(input2, x);
    CountSquare(error2, error);
    if constexpr (kResidual) StoreF(error, residual + i, count);
    return x;
  });
  return {.input2 = FoldSum(input2),
          .decoded2 = static_cast<float>(n),
          .error2 = FoldSum(error2),
          .sent = static_cast<uint32_t>(n)};
}

inline BlockSums Sign(const float* gradient, float* residual, float grad_scale, size_t n,
                      uint8_t* bits) {
  return residual == nullptr ? SignBlock<false>(gradient, nullptr, grad_scale, n, bits)
                             : SignBlock<true>(gradient, residual, grad_scale, n, bits);
}

// What x is rounded to: the level's magnitude, and with x's sign the level and what it decodes to.
struct Rounded {
  I32x16 level;
  F32x16 decoded;
};

struct LinearRounding {
  F32x16 inverse, scale;
  I32x16 levels;

  explicit LinearRounding(const Rounding& r)
      : inverse(SetF(r.inverse)), scale(SetF(r.scale)), levels(SetI(r.levels)) {}

  Rounded operator()(F32x16 x, I32x16 word) const {
    const F32x16 ratio = MulF(AbsF(x), inverse);
    const I32x16 below = ToInt(ratio);
    const Mask16 up = LtF(UniformOf(word), SubF(ratio, ToFloat(below)));
    const I32x16 magnitude = MinI(IncrementI(up, below), levels);
    const I32x16 level = NegateI(GtI(SetI(0), AsI(x)), magnitude);
    return {level, MulF(ToFloat(level), scale)};
  }
};

struct NaturalRounding {
  F32x16 inverse, scale;
  I32x16 levels;

  explicit NaturalRounding(const Rounding& r)
      : inverse(SetF(r.inverse)), scale(SetF(r.scale)), levels(SetI(r.levels)) {}

  Rounded operator()(F32x16 x, I32x16 word) const {
    const F32x16 ratio = MulF(AbsF(x), inverse);
    const I32x16 carried = ShiftRightI<23>(AddI(AsI(ratio), ShiftRightI<9>(word)));
    const I32x16 above = SubI(carried, SetI(126));
    const I32x16 below = IncrementI(LtF(UniformOf(word), ratio), SetI(0));
    const I32x16 chosen = SelectI(GeF(ratio, SetF(1)), above, below);
    const I32x16 level = NegateI(GtI(SetI(0), AsI(x)), MinI(chosen, levels));
    return {level, MulF(NaturalUnits(level, levels), scale)};
  }
};

struct NibbleLevels {
  template <typename Count>
  static void Store(I32x16 level, uint8_t* out, size_t i, Count count) {
    StoreNibbles(AddI(level, SetI(8)), out + i / 2, count);
  }
};
struct ByteLevels {
  template <typename Count>
  static void Store(I32x16 level, uint8_t* out, size_t i, Count count) {
    StoreBytes(AddI(level, SetI(128)), out + i, count);
  }
};

// body(i, count, word) for every group of lanes, with the random words of its elements.
template <typename Body>
inline __attribute__((always_inline)) void ForRandomLanes(const Rounding& rounding, size_t n,
                                                          const Body& body) {
  const PhiloxLanes philox(rounding.random);
  size_t i = 0;
  for (; n - i >= kPhiloxElements; i += kPhiloxElements) {
    const PhiloxWords words = philox(rounding.first + static_cast<uint32_t>(i));
    for (size_t g = 0; g < 4; ++g) body(i + g * kLanes, AllLanes(), words.word[g]);
  }
  if (i == n) return;
  const PhiloxWords words = philox(rounding.first + static_cast<uint32_t>(i));
  for (size_t g = 0; g < 4 && i < n; ++g, i += kLanes) {
    if (n - i >= kLanes) {
      body(i, AllLanes(), words.word[g]);
    } else {
      body(i, SomeLanes{n - i}, words.word[g]);
      return;
    }
  }
}

template <typename Round, typename Wire, bool kResidual>
BlockSums QuantizeBlock(const float* gradient, float* residual, const Rounding& rounding, size_t n,
                        uint8_t* out) {
  const F32x16 scale = SetF(rounding.grad_scale);
  const Round round(rounding);
  F32x16 decoded2 = SetF(0), error2 = SetF(0);
  ForRandomLanes(rounding, n, [&](size_t i, auto count, I32x16 word) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    const Rounded rounded = round(x, word);
    Wire::Store(rounded.level, out, i, count);
    const F32x16 error = SubF(x, rounded.decoded);
    AddSquare(decoded2, rounded.decoded);
    AddSquare(error2, error);
    if constexpr (kResidual) StoreF(error, residual + i, count);
  });
  return {
      .decoded2 = FoldSum(decoded2), .error2 = FoldSum(error2), .sent = static_cast<uint32_t>(n)};
}

template <typename Round, typename Wire>
BlockSums Quantize(const float* gradient, float* residual, const Rounding& rounding, size_t n,
                   uint8_t* out) {
  return residual == nullptr
             ? QuantizeBlock<Round, Wire, false>(gradient, nullptr, rounding, n, out)
             : QuantizeBlock<Round, Wire, true>(gradient, residual, rounding, n, out);
}

template <bool kResidual>
BlockSums TernaryBlock(const float* gradient, float* residual, const Rounding& rounding, size_t n,
                       uint8_t* plane0, uint8_t* plane1) {
  const F32x16 grad_scale = SetF(rounding.grad_scale), inverse = SetF(rounding.inverse);
  const F32x16 plus = SetF(rounding.scale), zero = SetF(0);
  const I32x16 sign = SetI(0x80000000);
  F32x16 error2 = zero;
  uint32_t sent = 0;
  ForRandomLanes(rounding, n, [&](size_t i, auto count, I32x16 word) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, grad_scale, i, count);
    const Mask16 chosen = LtF(UniformOf(word), MulF(AbsF(x), inverse));
    const uint32_t any = Bits(chosen), positive = any & Bits(GtF(x, zero));
    sent += static_cast<uint32_t>(__builtin_popcount(any));
    StoreBits(positive, plane0, i, count);
    StoreBits(any & ~positive, plane1, i, count);
    const F32x16 decoded = KeepF(chosen, AsF(OrI(AndI(AsI(x), sign), AsI(plus))));
    const F32x16 error = SubF(x, decoded);
    AddSquare(error2, error);
    if constexpr (kResidual) StoreF(error, residual + i, count);
  });
  return {.decoded2 = rounding.scale * rounding.scale * static_cast<float>(sent),
          .error2 = FoldSum(error2),
          .sent = sent};
}

inline BlockSums Ternary(const float* gradient, float* residual, const Rounding& rounding, size_t n,
                         uint8_t* out, size_t plane_bytes) {
  return residual == nullptr
             ? TernaryBlock<false>(gradient, nullptr, rounding, n, out, out + plane_bytes)
             : TernaryBlock<true>(gradient, residual, rounding, n, out, out + plane_bytes);
}

constexpr QuantizeKernels kQuantizeKernels = {
    .measure = Measure,
    .sign = Sign,
    .linear_4bit = Quantize<LinearRounding, NibbleLevels>,
    .linear_8bit = Quantize<LinearRounding, ByteLevels>,
    .natural_4bit = Quantize<NaturalRounding, NibbleLevels>,
    .natural_8bit = Quantize<NaturalRounding, ByteLevels>,
    .ternary = Ternary,
    .decode_linear_4bit = DecodeNibbles<LinearTable, false>,
    .add_linear_4bit = DecodeNibbles<LinearTable, true>,
    .decode_linear_8bit = DecodeLinearBytes<false>,
    .add_linear_8bit = DecodeLinearBytes<true>,
    .decode_natural_4bit = DecodeNibbles<NaturalTable, false>,
    .add_natural_4bit = DecodeNibbles<NaturalTable, true>,
    .decode_natural_8bit = DecodeNaturalBytes<false>,
    .add_natural_8bit = DecodeNaturalBytes<true>,
    .levels_within_4bit = NibblesWithin,
    .levels_within_8bit = BytesWithin,
};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_QUANTIZE_LOOPS_H_
