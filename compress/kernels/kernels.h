// SPDX-License-Identifier: Apache-2.0
// The inner loops of all formats and codecs, once for each instruction set. Every set gives the
// same bits as "scalar" (lanes.h says why).
//
//   const Kernels& kernels = BestKernels();          // the best that this CPU runs
//   const Kernels* scalar = FindKernels("scalar");   // forced by name, for tests and benches
//
// Conventions of all kernels: x[i] = gradient[i] * grad_scale + residual[i]. Where `residual` is
// null, x[i] = gradient[i] * grad_scale. Kernels that make a sum or bits take at most
// kBlockElements. Kernels allocate nothing and never touch memory past n. Pointers need no
// alignment beyond their type's. Thread-safe: pure functions.
#ifndef SLIMPS_COMPRESS_KERNELS_KERNELS_H_
#define SLIMPS_COMPRESS_KERNELS_KERNELS_H_

#include <cstddef>
#include <span>
#include <string_view>

#include "compress/kernels/bins.h"
#include "compress/kernels/factors.h"
#include "compress/kernels/levels.h"
#include "compress/kernels/lowrank.h"
#include "compress/kernels/momentum.h"
#include "compress/kernels/quantize.h"
#include "compress/kernels/raw.h"
#include "compress/kernels/rotate.h"
#include "compress/kernels/select.h"
#include "compress/kernels/sparse.h"
#include "compress/kernels/sum.h"
#include "compress/kernels/update.h"
#include "compress/kernels/wire_lanes.h"

namespace slimps {

struct Kernels {
  std::string_view name;       // "scalar", "avx2", "avx512"
  bool (*runs_here)();         // true if this CPU has the instructions that the set needs
  RawKernels raw;              // fp32, fp16, bf16; finding numbers that cannot be encoded
  LevelsKernels levels;        // one and two bits per element
  QuantizeKernels quantize;    // four and eight bits, stochastic rounding
  SelectKernels select;        // which elements a sparse codec sends
  SparseKernels sparse;        // indices and values
  BinKernels bins;             // AdaComp and its baselines
  FactorKernels factors;       // products of thin matrices
  MomentumKernels momentum;    // momentum correction and related methods
  LowRankKernels lowrank;      // products with low-rank factors
  RotateKernels rotate;        // the randomised Hadamard transform
  SumKernels sum;              // many payloads at once
  UpdateKernels update;        // optimizers
  WireLaneKernels wire_lanes;  // integers that are added up without being decoded
};

// Returns all sets, the best last. "scalar" is first and runs everywhere. Others may not run on
// this CPU.
std::span<const Kernels* const> AllKernels();

// Returns the best set that this CPU runs.
const Kernels& BestKernels();

// Returns the set of this name. nullptr: there is none.
const Kernels* FindKernels(std::string_view name);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_KERNELS_H_
