// SPDX-License-Identifier: Apache-2.0
// The kernels of rotate.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_ROTATE_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_ROTATE_LOOPS_H_

#include "compress/kernels/loops/input_loops.h"
#include "compress/kernels/loops/philox_loops.h"
#include "compress/kernels/rotate.h"

namespace slimps {
namespace {

constexpr size_t kRotatedBlock = 4096;  // kBlockElements

// RotatedElements. The standard library's functions are not used here, because a debug build would
// emit them out of line.
inline size_t RotatedLanes(size_t n) {
  if (n == 0) return 0;
  size_t m = kSmallestRotation;
  while (m < n) m *= 2;
  return m;
}

// The signs of a block's first m elements, one bit each.
class RotationSigns {
 public:
  RotationSigns(const RandomStream& stream, uint32_t block, size_t m) {
    const PhiloxLanes philox(stream);
    for (uint32_t group = 0; 64 * 32 * group < m; ++group) {
      const PhiloxWords words = philox(16 * (2 * block + group));
      for (size_t k = 0; k < 4; ++k)
        StoreI(words.word[k], words_ + 64 * group + 16 * k, AllLanes());
    }
  }

  // Negates those of the elements i .. i + 15 whose bit is set. REQUIRES: i is a multiple of 16.
  inline __attribute__((always_inline)) F32x16 Apply(F32x16 x, size_t i) const {
    uint16_t bits;
    std::memcpy(&bits, reinterpret_cast<const char*>(words_) + i / 8, sizeof bits);
    return AsF(XorI(AsI(x), AsI(SelectBitsF(bits, SetF(-0.0f), SetF(0.0f)))));
  }

 private:
  alignas(64) uint32_t words_[128];
};

// The stages of distance 1 to 8, all within a group of lanes.
inline __attribute__((always_inline)) F32x16 HadamardLanes(F32x16 x) {
  return ButterflyF<8>(ButterflyF<4>(ButterflyF<2>(ButterflyF<1>(x))));
}

// The stages of distance 1 and 2 among four groups of lanes.
inline __attribute__((always_inline)) void FourGroups(F32x16& a, F32x16& b, F32x16& c, F32x16& d) {
  const F32x16 ab = AddF(a, b), a_b = SubF(a, b), cd = AddF(c, d), c_d = SubF(c, d);
  a = AddF(ab, cd);
  b = AddF(a_b, c_d);
  c = SubF(ab, cd);
  d = SubF(a_b, c_d);
}

// The stages of distance `step` and twice `step`.
inline void HadamardPair(size_t m, size_t step, float* x) {
  for (size_t base = 0; base < m; base += 4 * step) {
    for (float* p = x + base; p != x + base + step; p += kLanes) {
      F32x16 a = LoadF(p, AllLanes()), b = LoadF(p + step, AllLanes());
      F32x16 c = LoadF(p + 2 * step, AllLanes()), d = LoadF(p + 3 * step, AllLanes());
      FourGroups(a, b, c, d);
      StoreF(a, p, AllLanes());
      StoreF(b, p + step, AllLanes());
      StoreF(c, p + 2 * step, AllLanes());
      StoreF(d, p + 3 * step, AllLanes());
    }
  }
}

// The stages of distance `step`, 2, 4 and 8 times `step`.
inline void HadamardFour(size_t m, size_t step, float* x) {
  for (size_t base = 0; base < m; base += 16 * step) {
    for (float* p = x + base; p != x + base + step; p += kLanes) {
      F32x16 v[16];
#pragma GCC unroll 16
      for (size_t i = 0; i < 16; ++i) v[i] = LoadF(p + i * step, AllLanes());
#pragma GCC unroll 4
      for (size_t i = 0; i < 16; i += 4) FourGroups(v[i], v[i + 1], v[i + 2], v[i + 3]);
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; ++i) FourGroups(v[i], v[i + 4], v[i + 8], v[i + 12]);
#pragma GCC unroll 16
      for (size_t i = 0; i < 16; ++i) StoreF(v[i], p + i * step, AllLanes());
    }
  }
}

// The stages of distance 16 and more, several in each pass over the block.
inline void HadamardGroups(size_t m, float* x) {
  size_t step = kLanes;
  if (__builtin_ctzll(m / kLanes) % 2 == 1) {  // an odd number of stages
    for (float* p = x; p != x + m; p += 2 * step) {
      const F32x16 a = LoadF(p, AllLanes()), b = LoadF(p + step, AllLanes());
      StoreF(AddF(a, b), p, AllLanes());
      StoreF(SubF(a, b), p + step, AllLanes());
    }
    step *= 2;
  }
  if constexpr (kPassGroups == 16) {
    for (; 16 * step <= m; step *= 16) HadamardFour(m, step, x);
  }
  for (; step < m; step *= 4) HadamardPair(m, step, x);
}

template <bool kResidual>
float Rotate(const float* gradient, float* residual, float grad_scale, size_t n,
             const RandomStream& stream, uint32_t block, float* rotated) {
  const size_t m = RotatedLanes(n);
  if (m == 0) return 0;
  const RotationSigns signs(stream, block, m);
  const F32x16 scale = SetF(grad_scale), share = SetF(1.0f / static_cast<float>(m));
  F32x16 input2 = SetF(0);
  ForLanes(n, [&](size_t i, auto count) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    // The input of the next block: memory would be idle while this one is transformed and encoded.
    PrefetchForLater(gradient + i + kRotatedBlock);
    if constexpr (kResidual) PrefetchForLater(residual + i + kRotatedBlock);
    if constexpr (kResidual) StoreF(x, residual + i, count);
    AddSquare(input2, x);
    StoreF(HadamardLanes(signs.Apply(MulF(x, share), i)), rotated + i, AllLanes());
  });
  for (size_t i = (n + kLanes - 1) / kLanes * kLanes; i < m; i += kLanes) {
    StoreF(SetF(0), rotated + i, AllLanes());
  }
  HadamardGroups(m, rotated);
  return FoldSum(input2);
}

// Calls each(i, count, x) with x of element i on.
template <typename Each>
inline __attribute__((always_inline)) void RotateBack(float* rotated, size_t n,
                                                      const RandomStream& stream, uint32_t block,
                                                      const Each& each) {
  const size_t m = RotatedLanes(n);
  if (m == 0) return;
  const RotationSigns signs(stream, block, m);
  for (float* p = rotated; p != rotated + m; p += kLanes) {
    StoreF(HadamardLanes(LoadF(p, AllLanes())), p, AllLanes());
  }
  HadamardGroups(m, rotated);
  ForLanes(n, [&](size_t i, auto count) {
    each(i, count, signs.Apply(LoadF(rotated + i, AllLanes()), i));
  });
}

template <bool kAdd>
void Restore(float* rotated, size_t n, const RandomStream& stream, uint32_t block, float* dst) {
  RotateBack(rotated, n, stream, block,
             [&](size_t i, auto count, F32x16 x) { Emit<kAdd>(x, dst + i, count); });
}

inline float SubtractRestored(float* rotated, size_t n, const RandomStream& stream, uint32_t block,
                              float* residual) {
  F32x16 error2 = SetF(0);
  RotateBack(rotated, n, stream, block, [&](size_t i, auto count, F32x16 x) {
    const F32x16 error = SubF(LoadF(residual + i, count), x);
    StoreF(error, residual + i, count);
    CountSquare(error2, KeepCount(error, count));
  });
  return FoldSum(error2);
}

constexpr RotateKernels kRotateKernels = {
    .rotate = ByResidual<Rotate<false>, Rotate<true>>,
    .restore = Restore<false>,
    .add = Restore<true>,
    .subtract = SubtractRestored,
};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_ROTATE_LOOPS_H_
