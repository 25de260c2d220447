// The kernels of sum.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_SUM_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_SUM_LOOPS_H_

#include "compress/kernels/lanes.h"
#include "compress/kernels/sum.h"

namespace slimps {
namespace {

constexpr SumKernels kSumKernels = {};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_SUM_LOOPS_H_
