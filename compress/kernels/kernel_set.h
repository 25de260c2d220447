// SPDX-License-Identifier: Apache-2.0
// Makes a set of all kernels from the lanes that were included before this file. Each kernels_*.cc
// includes it once.
#ifndef SLIMPS_COMPRESS_KERNELS_KERNEL_SET_H_
#define SLIMPS_COMPRESS_KERNELS_KERNEL_SET_H_

#include "compress/kernels/bins_loops.h"
#include "compress/kernels/kernels.h"
#include "compress/kernels/levels_loops.h"
#include "compress/kernels/momentum_loops.h"
#include "compress/kernels/quantize_loops.h"
#include "compress/kernels/raw_loops.h"
#include "compress/kernels/select_loops.h"
#include "compress/kernels/sparse_loops.h"
#include "compress/kernels/sum_loops.h"
#include "compress/kernels/update_loops.h"

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
          .momentum = kMomentumKernels,
          .sum = kSumKernels,
          .update = kUpdateKernels};
}

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_KERNEL_SET_H_
