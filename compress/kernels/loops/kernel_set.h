// SPDX-License-Identifier: Apache-2.0
// Makes a set of all kernels from the lanes that were included before this file. Each kernels_*.cc
// includes it once.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_KERNEL_SET_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_KERNEL_SET_H_

#include "compress/kernels/kernels.h"
#include "compress/kernels/loops/bins_loops.h"
#include "compress/kernels/loops/factors_loops.h"
#include "compress/kernels/loops/levels_loops.h"
#include "compress/kernels/loops/lowrank_loops.h"
#include "compress/kernels/loops/momentum_loops.h"
#include "compress/kernels/loops/quantize_loops.h"
#include "compress/kernels/loops/raw_loops.h"
#include "compress/kernels/loops/rotate_loops.h"
#include "compress/kernels/loops/select_loops.h"
#include "compress/kernels/loops/sparse_loops.h"
#include "compress/kernels/loops/sum_loops.h"
#include "compress/kernels/loops/update_loops.h"
#include "compress/kernels/loops/wire_lanes_loops.h"

namespace slimps {
namespace {

constexpr Kernels MakeKernelSet(std::string_view name, bool (*runs_here)()) {
  return {.name = name,
          .runs_here = runs_here,
          .raw = kRawKernels,
          .levels = kLevelsKernels,
          .quantize = kQuantizeKernels,
          .select = kSelectKernels,
          .sparse = kSparseKernels,
          .bins = kBinKernels,
          .factors = kFactorKernels,
          .momentum = kMomentumKernels,
          .lowrank = kLowRankKernels,
          .rotate = kRotateKernels,
          .sum = kSumKernels,
          .update = kUpdateKernels,
          .wire_lanes = kWireLaneKernels};
}

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_KERNEL_SET_H_
