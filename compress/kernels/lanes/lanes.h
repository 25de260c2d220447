// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes of fp32 or uint32: the one vocabulary in which all kernels are written. Each
// instruction set has its own definition of the same functions. A kernel (NAME_loops.h) is written
// once:
//
//   lanes_scalar.h    plain loops: what every function means
//   lanes_avx2.h      two vectors of 8
//   lanes_avx512.h    one vector of 16
//
//   float* p; F32x16 scale = SetF(s);
//   ForLanes(n, [&](size_t i, auto count) {                    // count: 16 lanes, or what is left
//     StoreF(MulF(LoadF(p + i, count), scale), p + i, count);  // lanes past n read as 0
//   });                                                        // and are not written
//
// All sets give the same bits, for three reasons:
// - Products and sums are rounded one by one. Only AddSquareF, AddProductF and SubProductF fuse a
//   multiplication and an addition, and they do so in every set.
// - Element i of a block is in lane i % 16.
// - A sum over lanes is folded in the order 8 + 8, 4 + 4, 2 + 2, 1 + 1.
//
// A set's source file includes its lanes_*.h before any NAME_loops.h. Everything has internal
// linkage, so that code compiled for a newer CPU can never be linked into another set.
//
// What a set defines (F32x16; I32x16, unsigned; Mask16):
//
//   SetF(x) LoadF(p, count) StoreF(x, p, count) AddF SubF MulF DivF MinF MaxF AbsF SqrtF
//   Rounded once, and the same as rounding twice where the product is exact:
//     AddSquareF(sum, x)       sum + x * x, for statistics only
//     AddProductF(x, a, b)     x + a * b
//     SubProductF(x, a, b)     x - a * b
//   GeF GtF LeF LtF            false for NaN
//   NotLeF                     true for NaN
//   SelectF(mask, yes, no)     KeepF(mask, x): x or +0
//   SelectBitsF(bits, yes, no) like SelectF, by bit i for lane i
//   SelectNegativeF(x, yes, no)
//                              by x's sign bit
//   SignBits(x)                bit i is the sign bit of lane i; it is set for -0 too
//   SignBits(x, y)             32 bits, y's above x's
//   Bits32                     LoadBits32(p): 4 bytes; AndNotB(a, b): a and not b
//   SelectHalfF<h>(bits, yes, no)
//                              by bit 16 * h + i for lane i; yes and no each have one value in all
//                              lanes
//   StreamF(x, p)              StoreF past the caches; p is 64-byte aligned
//   EndStream()                call it after the last StreamF
//   SetI(x) LoadI(p, count) StoreI(x, p, count) AddI SubI MulI AndI OrI XorI MaxI (unsigned)
//   EqI GtI (signed) SelectI(mask, yes, no) ShiftLeftI<k> ShiftRightI<k> ShiftRightSignedI<k>
//   ShiftRightEachI(x, counts)
//   NegateI(mask, x)           -x in the mask's lanes, x in the others
//   Iota()                     0 .. 15
//   I64x8                      eight 64-bit lanes, of which only the lower halves count
//     EvenW(i) OddW(i)         the even and the odd lanes of an I32x16; JoinW(even, odd): back
//     SetW(x) XorW
//     MulW(x, factor)          the product of the halves, all 64 bits
//     HighW(x)                 the upper half
//   AsI(f) AsF(i)              the same bits
//   ToFloat(i)                 signed
//   ToNearestInt(f)            ties to even; 2^31 where out of range
//   Bits(mask) MaskOf(bits)    bit i is lane i; LanesI(mask): all ones or zeros
//   CompressI(mask, x, out) CompressF
//                              stores the chosen lanes side by side and returns how many they are;
//                              MAY WRITE ALL 16
//   LookupF(table of 16, i)    i in 0 .. 15
//   LoadF16(p, count) StoreF16(x, p, count) LoadBf16 StoreBf16
//                              round to nearest even, NaN stays NaN; the stores return what a load
//                              would give
//   PackNibbles(i)             16 values of 0 .. 15 as 8 bytes, lane 0 lowest
//   LoadNibbles(p)             those 8 bytes again; LoadSignedNibbles(p): less 8
//   I8x32                      the bytes of two groups of lanes
//     PackI8(x, y)             signed and clamped to a byte's range, x's lanes first
//     SetI8(n) LoadI8(p) RepeatI8(p)
//                              32 times n, 32 bytes, 16 bytes twice
//     AddI8(b, n) AddI8(b, c) NegateI8(b) SignBits(b)
//     LowNibblesI8(b) HighNibblesI8(b) LookupI8(b, i)
//                              b repeats 16 bytes; i in 0 .. 15
//     StoreInterleavedI8(b, c, p)
//                              b's and c's bytes in turn, 64 of them
//     StoreI8(b, p)            32 bytes; StoreNibblesI8(b, p): values of 0 .. 15 as 16 bytes
//   LoadBytes(p, count) StoreBytes(i, p, count)
//                              16 values of 0 .. 255
//   ButterflyF<k>(f)           lane j becomes f[j] + f[j + k] where bit k of j is clear, else f[j -
//                              k] - f[j]; k is 1, 2, 4 or 8
//   kPassGroups                how many groups of lanes a kernel that keeps many should keep: 4 or
//                              16
//   FoldSum(f)                 the sum of all lanes
//   FoldMax(f)                 the largest lane; none may be NaN
//
// MinF and MaxF return the second argument if either is NaN, as the instructions do.
#ifndef SLIMPS_COMPRESS_KERNELS_LANES_LANES_H_
#define SLIMPS_COMPRESS_KERNELS_LANES_LANES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace slimps {
namespace {

constexpr size_t kLanes = 16;

// How many lanes a load or store touches: all, or fewer at the end of an array.
struct AllLanes {
  static constexpr uint32_t bits() { return 0xffff; }
  static constexpr size_t size() { return kLanes; }
};
struct SomeLanes {
  size_t n;  // 1 .. 15
  uint32_t bits() const { return (1u << n) - 1; }
  size_t size() const { return n; }
};

// Calls body(i, AllLanes) for every whole group of lanes, then body(i, SomeLanes) for what is left.
template <typename Body>
inline __attribute__((always_inline)) void ForLanes(size_t n, const Body& body) {
  const size_t whole = n / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) body(i, AllLanes());
  if (whole < n) body(whole, SomeLanes{n - whole});
}

// Prefetches the cache line at p. p need not point to valid memory.
inline void Prefetch(const void* p) { __builtin_prefetch(p); }
// The same, into the second-level cache: for what is read later.
inline void PrefetchForLater(const void* p) { __builtin_prefetch(p, /*rw=*/0, /*locality=*/2); }

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

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LANES_LANES_H_
