// SPDX-License-Identifier: Apache-2.0
// The encoders of quantize.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_QUANTIZE_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_QUANTIZE_LOOPS_H_

#include "compress/kernels/loops/dequantize_loops.h"
#include "compress/kernels/loops/input_loops.h"
#include "compress/kernels/loops/levels_loops.h"
#include "compress/kernels/loops/xoshiro_loops.h"
#include "compress/kernels/quantize.h"

namespace slimps {
namespace {

// With kExact payloads may depend on the sum of squares.
template <bool kExact, bool kResidual>
InputNorms Measure(const float* gradient, const float* residual, float grad_scale, size_t n) {
  const F32x16 scale = SetF(grad_scale);
  F32x16 input2 = SetF(0), largest = SetF(0);
  ForLanes(n, [&](size_t i, auto count) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    if constexpr (kExact) {
      AddSquare(input2, x);
    } else {
      CountSquare(input2, x);
    }
    largest = MaxF(AbsF(x), largest);
  });
  return {.input2 = FoldSum(input2), .largest = FoldMax(largest)};
}

template <bool kResidual>
BlockSums Sign(const float* gradient, float* residual, float grad_scale, size_t n, uint8_t* bits) {
  const F32x16 scale = SetF(grad_scale), plus = SetF(1), minus = SetF(-1);
  F32x16 input2 = SetF(0), error2 = SetF(0);
  StoreSigns(n, kSignClear, bits, [&](size_t i, auto count) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    // An element past the end is not sent: its error must be 0, as its input is.
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

// What x is rounded to: a signed level, and what that level decodes to.
struct Rounded {
  I32x16 level;
  F32x16 decoded;
};

struct LinearRounding {
  F32x16 inverse, scale;

  explicit LinearRounding(const Rounding& r) : inverse(SetF(r.inverse)), scale(SetF(r.scale)) {}

  Rounded operator()(F32x16 x, I32x16 random) const {
    const I32x16 steps = ToNearestInt(MulF(x, inverse));
    const I32x16 level = ShiftRightSignedI<16>(AddI(steps, random));
    return {level, MulF(ToFloat(level), scale)};
  }
};

// Like LinearRounding with one level: gives -1, 0 or 1. Larger numbers are clamped.
struct TernaryRounding {
  F32x16 inverse, most, least;

  explicit TernaryRounding(const Rounding& r)
      : inverse(SetF(r.inverse)), most(SetF(65536)), least(SetF(-65536)) {}

  I32x16 operator()(F32x16 x, I32x16 random) const {
    const I32x16 steps = ToNearestInt(MinF(MaxF(MulF(x, inverse), least), most));
    return ShiftRightSignedI<16>(AddI(steps, random));
  }
};

struct NaturalRounding {
  F32x16 inverse, scale;
  I32x16 exponent_of_0;

  explicit NaturalRounding(const Rounding& r)
      : inverse(SetF(r.inverse)), scale(SetF(r.scale)), exponent_of_0(SetI(127 - r.levels)) {}

  Rounded operator()(F32x16 x, I32x16 random) const {
    const F32x16 steps = MulF(AbsF(x), inverse);
    const I32x16 below = ShiftRightI<16>(AddI(ToNearestInt(steps), random));
    const I32x16 mantissa = OrI(ShiftLeftI<7>(random), SetI(64));
    const I32x16 above = SubI(ShiftRightI<23>(AddI(AsI(steps), mantissa)), SetI(127 + 15));
    const I32x16 magnitude = SelectI(GeF(steps, SetF(65536)), above, below);
    const I32x16 sign = AndI(AsI(x), SetI(0x80000000));
    const I32x16 power = ShiftLeftI<23>(AddI(magnitude, exponent_of_0));
    const F32x16 unit = KeepF(GtI(magnitude, SetI(0)), AsF(OrI(power, sign)));
    return {NegateI(GtI(SetI(0), AsI(x)), magnitude), MulF(unit, scale)};
  }
};

// The two widths of a level on the wire. The code is level + 8 or level + 128.
struct NibbleLevels {
  static void StorePair(I32x16 low, I32x16 high, uint8_t* out, size_t i) {
    StoreNibblesI8(AddI8(PackI8(low, high), 8), out + i / 2);
  }
  template <typename Count>
  static void Store(I32x16 level, uint8_t* out, size_t i, Count count) {
    const uint64_t packed = PackNibbles(AddI(level, SetI(8))) & NibbleMask(count);
    std::memcpy(out + i / 2, &packed, (count.size() + 1) / 2);
  }
};
struct ByteLevels {
  static void StorePair(I32x16 low, I32x16 high, uint8_t* out, size_t i) {
    StoreI8(AddI8(PackI8(low, high), 128), out + i);
  }
  template <typename Count>
  static void Store(I32x16 level, uint8_t* out, size_t i, Count count) {
    StoreBytes(AddI(level, SetI(128)), out + i, count);
  }
};

template <typename Round, typename Wire, bool kResidual>
BlockSums Quantize(const float* gradient, float* residual, const Rounding& rounding, size_t n,
                   uint8_t* out) {
  const F32x16 scale = SetF(rounding.grad_scale);
  const Round round(rounding);
  F32x16 decoded2 = SetF(0), error2 = SetF(0);
  const auto level_of = [&](size_t i, auto count, I32x16 random) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    const Rounded rounded = round(x, random);
    const F32x16 error = SubF(x, rounded.decoded);
    CountSquare(decoded2, rounded.decoded);
    CountSquare(error2, error);
    if constexpr (kResidual) StoreF(error, residual + i, count);
    return rounded.level;
  };
  ForRandomLanes(
      rounding.random, n,
      [&](size_t i, I32x16 first, I32x16 second) {
        const I32x16 low = level_of(i, AllLanes(), first);
        Wire::StorePair(low, level_of(i + kLanes, AllLanes(), second), out, i);
      },
      [&](size_t i, auto count, I32x16 random) {
        Wire::Store(level_of(i, count, random), out, i, count);
      });
  return {
      .decoded2 = FoldSum(decoded2), .error2 = FoldSum(error2), .sent = static_cast<uint32_t>(n)};
}

template <bool kResidual>
BlockSums Ternary(const float* gradient, float* residual, const Rounding& rounding, size_t n,
                  uint8_t* plane0, size_t plane_bytes) {
  uint8_t* const plane1 = plane0 + plane_bytes;
  const F32x16 grad_scale = SetF(rounding.grad_scale), scale = SetF(rounding.scale);
  const TernaryRounding round(rounding);
  F32x16 error2 = SetF(0);
  const auto level_of = [&](size_t i, auto count, I32x16 random) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, grad_scale, i, count);
    const I32x16 level = round(x, random);
    const F32x16 error = SubProductF(x, ToFloat(level), scale);
    CountSquare(error2, error);
    if constexpr (kResidual) StoreF(error, residual + i, count);
    return level;
  };
  ForRandomLanes(
      rounding.random, n,
      [&](size_t i, I32x16 first, I32x16 second) {
        const I32x16 low = level_of(i, AllLanes(), first);
        const I8x32 levels = PackI8(low, level_of(i + kLanes, AllLanes(), second));
        const uint32_t plus = SignBits(NegateI8(levels)), minus = SignBits(levels);
        std::memcpy(plane0 + i / 8, &plus, sizeof plus);
        std::memcpy(plane1 + i / 8, &minus, sizeof minus);
      },
      [&](size_t i, auto count, I32x16 random) {
        const I32x16 level = level_of(i, count, random);
        StoreBits(SignBits(AsF(SubI(SetI(0), level))), plane0, i, count);
        StoreBits(SignBits(AsF(level)), plane1, i, count);
      });
  const uint32_t sent = CountBits(plane0, n) + CountBits(plane1, n);
  // If the square overflowed and none is sent, the product would be NaN.
  const float square = sent == 0 ? 0.0f : rounding.scale * rounding.scale;
  return {.decoded2 = square * static_cast<float>(sent), .error2 = FoldSum(error2), .sent = sent};
}

constexpr QuantizeKernels kQuantizeKernels = {
    .measure = ByResidual<Measure<true, false>, Measure<true, true>>,
    .measure_largest = ByResidual<Measure<false, false>, Measure<false, true>>,
    .sign = ByResidual<Sign<false>, Sign<true>>,
    .start_random = StartRandom,
    .linear_4bit = ByResidual<Quantize<LinearRounding, NibbleLevels, false>,
                              Quantize<LinearRounding, NibbleLevels, true>>,
    .linear_8bit = ByResidual<Quantize<LinearRounding, ByteLevels, false>,
                              Quantize<LinearRounding, ByteLevels, true>>,
    .natural_4bit = ByResidual<Quantize<NaturalRounding, NibbleLevels, false>,
                               Quantize<NaturalRounding, NibbleLevels, true>>,
    .natural_8bit = ByResidual<Quantize<NaturalRounding, ByteLevels, false>,
                               Quantize<NaturalRounding, ByteLevels, true>>,
    .ternary = ByResidual<Ternary<false>, Ternary<true>>,
    .decode_linear_4bit = DecodeLinearNibbles<false>,
    .add_linear_4bit = DecodeLinearNibbles<true>,
    .decode_linear_8bit = DecodeLinearBytes<false>,
    .add_linear_8bit = DecodeLinearBytes<true>,
    .decode_natural_4bit = DecodeNaturalNibbles<false>,
    .add_natural_4bit = DecodeNaturalNibbles<true>,
    .decode_natural_8bit = DecodeNaturalBytes<false>,
    .add_natural_8bit = DecodeNaturalBytes<true>,
    .levels_within_4bit = NibblesWithin,
    .levels_within_8bit = BytesWithin,
};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_QUANTIZE_LOOPS_H_
