// Sixteen lanes of fp32 or uint32: the one vocabulary that kernels are written in. Each instruction set has its own
// definition of the same functions, and a kernel (NAME_loops.h) is written once:
//
//   lanes_scalar.h    plain loops: what every function means
//   lanes_avx2.h      two vectors of 8
//   lanes_avx512.h    one vector of 16
//
//   float* p; F32x16 scale = SetF(s);
//   ForLanes(n, [&](size_t i, auto count) {                      // count: 16 lanes, or what is left at the end
//     StoreF(MulF(LoadF(p + i, count), scale), p + i, count);    // lanes past n read as 0 and are not written
//   });
//
// All sets give the same bits: products and sums are rounded one by one (no fused multiply-add but in AddSquareF,
// AddProductF and SubProductF, where every set has it), element i of a block is in lane i % 16, and a sum over lanes is
// folded 8 + 8, 4 + 4, 2 + 2, 1 + 1. A set's source file includes its lanes_*.h before any NAME_loops.h; everything has
// internal linkage, so that code compiled for a newer CPU can never be linked into another set.
//
// What a set defines (F32x16, I32x16: unsigned, Mask16):
//
//   SetF(x) LoadF(p, count) StoreF(x, p, count) AddF SubF MulF DivF MinF MaxF AbsF SqrtF;
//   Rounded once: AddSquareF(sum, x): sum + x * x, for statistics alone; AddProductF(x, a, b): x + a * b;
//   SubProductF(x, a, b): x - a * b; where a * b is exact, the same as rounding twice
//   GeF GtF LeF LtF (false for NaN) NotLeF (true for NaN); SelectF(mask, yes, no), KeepF(mask, x): x or +0;
//   SelectBitsF(bits, yes, no): SelectF by bit i for lane i; SelectNegativeF(x, yes, no): by x's sign bit;
//   SignBits(x): bit i is the sign bit of lane i, set for -0 too; SignBits(x, y): 32 bits, those of y above
//   Bits32: LoadBits32(p) 4 bytes; AndNotB(a, b): a and not b; SelectHalfF<h>(bits, yes, no): bit 16 * h + i for lane i,
//     where yes and no are each the same in all lanes
//   StreamF(x, p): StoreF past the caches, p 64-byte aligned; EndStream() after the last one
//   SetI(x) LoadI(p, count) StoreI(x, p, count) AddI SubI MulI AndI OrI XorI MaxI (unsigned)
//   EqI GtI (signed) SelectI(mask, yes, no) ShiftLeftI<k> ShiftRightI<k> ShiftRightEachI(x, counts)
//   ShiftRightSignedI<k>; NegateI(mask, x): -x in the mask's lanes, x elsewhere; Iota(): 0 .. 15
//   I64x8, of which only the lower halves count: EvenW(i), OddW(i): those lanes; JoinW(even, odd): back;
//   SetW(x) MulW(x, factor): the product of the halves, all 64 bits; HighW(x): its upper half; XorW
//   AsI(f) AsF(i): the bits; ToFloat(i): signed; ToNearestInt(f): ties to even, out of range 2^31
//   Bits(mask), MaskOf(bits): bit i is lane i; LanesI(mask): all ones or zeros
//   CompressI(mask, x, out), CompressF: the chosen lanes side by side; MAY WRITE ALL 16; returns how many count
//   LookupF(table of 16, i): i in 0 .. 15
//   LoadF16 StoreF16 LoadBf16 StoreBf16 (p, count); to nearest even, NaN stays NaN; the stores return what a load
//   would give
//   PackNibbles(i): 16 values of 0 .. 15 as 8 bytes, lane 0 lowest; LoadNibbles(p): those 8 bytes again;
//   LoadSignedNibbles(p): less 8
//   I8x32, the bytes of two groups: PackI8(x, y): signed, what is out of range at its end, x's lanes first; AddI8(b, n),
//   NegateI8(b); SignBits(b); StoreI8(b, p) 32 bytes; StoreNibblesI8(b, p): values of 0 .. 15 as 16 bytes
//   LoadBytes(p, count), StoreBytes(i, p, count): 16 values of 0 .. 255
//   FoldSum(f): of all lanes; FoldMax(f): the largest, none being NaN
//
// MinF and MaxF return the second argument where either is NaN, as the instructions do.
#ifndef SLIMPS_COMPRESS_KERNELS_LANES_H_
#define SLIMPS_COMPRESS_KERNELS_LANES_H_

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

// body(i, AllLanes) for every whole group of lanes, then body(i, SomeLanes) for what is left.
template <typename Body>
inline __attribute__((always_inline)) void ForLanes(size_t n, const Body& body) {
  const size_t whole = n / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) body(i, AllLanes());
  if (whole < n) body(whole, SomeLanes{n - whole});
}

// The cache line at p, whether or not p is anybody's.
inline void Prefetch(const void* p) { __builtin_prefetch(p); }

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

#endif  // SLIMPS_COMPRESS_KERNELS_LANES_H_
