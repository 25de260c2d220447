// SPDX-License-Identifier: Apache-2.0
// The kernels of raw.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_RAW_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_RAW_LOOPS_H_

#include "compress/kernels/loops/input_loops.h"
#include "compress/kernels/raw.h"

namespace slimps {
namespace {

template <bool kResidual>
size_t FindUnencodable(const float* gradient, const float* residual, float grad_scale, float limit,
                       size_t n) {
  const F32x16 scale = SetF(grad_scale), bound = SetF(limit);
  const auto bad = [&](size_t i, auto count) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    return Bits(NotLeF(AbsF(x), bound)) & count.bits();
  };
  size_t i = 0;
  for (; n - i >= kLanes; i += kLanes) {
    if (const uint32_t bits = bad(i, AllLanes()); bits != 0) {
      return i + static_cast<size_t>(__builtin_ctz(bits));
    }
  }
  if (i == n) return n;
  const uint32_t bits = bad(i, SomeLanes{n - i});
  return bits == 0 ? n : i + static_cast<size_t>(__builtin_ctz(bits));
}

// Calls use(x, i, count) for all lanes x and returns the largest |x|, as RawKernels::largest.
template <typename Use>
float LargestOf(const float* from, size_t n, Use use) {
  // As integers, magnitudes have the order of the numbers, and NaN lies above infinity.
  const I32x16 magnitude = SetI(0x7fffffff);
  I32x16 largest = SetI(0);
  ForLanes(n, [&](size_t i, auto count) {
    const F32x16 x = LoadF(from + i, count);
    largest = MaxI(largest, AndI(AsI(x), magnitude));
    use(x, i, count);
  });
  uint32_t lanes[kLanes], most = 0;
  StoreI(largest, lanes, AllLanes());
  for (const uint32_t lane : lanes) most = lane > most ? lane : most;
  return FloatOf(most > 0x7f800000 ? 0x7f800000 : most);
}

inline float Largest(const float* from, size_t n) {
  return LargestOf(from, n, [](F32x16, size_t, auto) {});
}

inline float CopyBounded(const float* from, float* to, size_t n) {
  return LargestOf(from, n, [to](F32x16 x, size_t i, auto count) { StoreF(x, to + i, count); });
}

struct F32Wire {
  static constexpr size_t kBytes = 4;
  template <typename Count>
  static F32x16 Store(F32x16 x, std::byte* p, Count count) {
    StoreF(x, reinterpret_cast<float*>(p), count);
    return x;
  }
  template <typename Count>
  static F32x16 Load(const std::byte* p, Count count) {
    return LoadF(reinterpret_cast<const float*>(p), count);
  }
};
struct F16Wire {
  static constexpr size_t kBytes = 2;
  template <typename Count>
  static F32x16 Store(F32x16 x, std::byte* p, Count count) {
    return StoreF16(x, p, count);
  }
  template <typename Count>
  static F32x16 Load(const std::byte* p, Count count) {
    return LoadF16(p, count);
  }
};
struct Bf16Wire {
  static constexpr size_t kBytes = 2;
  template <typename Count>
  static F32x16 Store(F32x16 x, std::byte* p, Count count) {
    return StoreBf16(x, p, count);
  }
  template <typename Count>
  static F32x16 Load(const std::byte* p, Count count) {
    return LoadBf16(p, count);
  }
};

template <typename Wire, bool kResidual>
BlockSums EncodeRaw(const float* gradient, float* residual, float grad_scale, size_t n,
                    std::byte* out) {
  const F32x16 scale = SetF(grad_scale);
  F32x16 input2 = SetF(0), decoded2 = SetF(0), error2 = SetF(0);
  ForLanes(n, [&](size_t i, auto count) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    const F32x16 decoded = Wire::Store(x, out + i * Wire::kBytes, count);
    const F32x16 error = SubF(x, decoded);
    CountSquare(input2, x);
    CountSquare(decoded2, decoded);
    CountSquare(error2, error);
    if constexpr (kResidual) StoreF(error, residual + i, count);
  });
  return {.input2 = FoldSum(input2),
          .decoded2 = FoldSum(decoded2),
          .error2 = FoldSum(error2),
          .sent = static_cast<uint32_t>(n)};
}

template <typename Wire, bool kAdd>
void DecodeRaw(const std::byte* in, size_t n, float* dst) {
  ForLanes(n, [&](size_t i, auto count) {
    Emit<kAdd>(Wire::Load(in + i * Wire::kBytes, count), dst + i, count);
  });
}

constexpr RawKernels kRawKernels = {
    .find_unencodable = ByResidual<FindUnencodable<false>, FindUnencodable<true>>,
    .largest = Largest,
    .copy_bounded = CopyBounded,
    .encode_f32 = ByResidual<EncodeRaw<F32Wire, false>, EncodeRaw<F32Wire, true>>,
    .encode_f16 = ByResidual<EncodeRaw<F16Wire, false>, EncodeRaw<F16Wire, true>>,
    .encode_bf16 = ByResidual<EncodeRaw<Bf16Wire, false>, EncodeRaw<Bf16Wire, true>>,
    .decode_f16 = DecodeRaw<F16Wire, false>,
    .decode_bf16 = DecodeRaw<Bf16Wire, false>,
    .add_f32 = DecodeRaw<F32Wire, true>,
    .add_f16 = DecodeRaw<F16Wire, true>,
    .add_bf16 = DecodeRaw<Bf16Wire, true>,
};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_RAW_LOOPS_H_
