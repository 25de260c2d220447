// The kernels of momentum.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_MOMENTUM_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_MOMENTUM_LOOPS_H_

#include "compress/kernels/lanes.h"
#include "compress/kernels/momentum.h"

namespace slimps {
namespace {

constexpr MomentumKernels kMomentumKernels = {};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_MOMENTUM_LOOPS_H_
