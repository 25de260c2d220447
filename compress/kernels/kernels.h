// The inner loops of all formats and codecs, once per instruction set. Every set gives the same bits as "scalar" (see
// lanes.h for why).
//
//   const Kernels& kernels = BestKernels();          // what this CPU can do
//   const Kernels* scalar = FindKernels("scalar");   // forced by name, for tests and benches
//
// In all of them x[i] = gradient[i] * grad_scale + residual[i], or without the sum where `residual` is null. They take
// at most kBlockElements where a sum or bits are involved, allocate nothing, and never touch memory past n. Pointers
// need no alignment beyond their type's. Thread-safe: pure functions.
#ifndef SLIMPS_COMPRESS_KERNELS_KERNELS_H_
#define SLIMPS_COMPRESS_KERNELS_KERNELS_H_

#include <cstddef>
#include <span>
#include <string_view>

#include "compress/kernels/bins.h"
#include "compress/kernels/levels.h"
#include "compress/kernels/momentum.h"
#include "compress/kernels/quantize.h"
#include "compress/kernels/raw.h"
#include "compress/kernels/select.h"
#include "compress/kernels/sparse.h"
#include "compress/kernels/sum.h"
#include "compress/kernels/update.h"

namespace slimps {

struct Kernels {
  std::string_view name;     // "scalar", "avx2", "avx512"
  bool (*runs_here)();       // whether this CPU has what they need
  RawKernels raw;            // fp32, fp16, bf16; finding what cannot be encoded
  LevelsKernels levels;      // one and two bits per element
  QuantizeKernels quantize;  // four and eight bits, stochastic rounding
  SelectKernels select;      // which elements a sparse codec sends
  SparseKernels sparse;      // indices and values
  BinKernels bins;           // AdaComp and its baselines
  MomentumKernels momentum;  // momentum correction and its kin
  SumKernels sum;            // many payloads at once
  UpdateKernels update;      // optimizers
};

// Best last; "scalar" is first and runs everywhere. Some may not run on this CPU.
std::span<const Kernels* const> AllKernels();
const Kernels& BestKernels();
// nullptr: no such name.
const Kernels* FindKernels(std::string_view name);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_KERNELS_H_
