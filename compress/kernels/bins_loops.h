// The kernels of bins.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_BINS_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_BINS_LOOPS_H_

#include "compress/kernels/bins.h"
#include "compress/kernels/lanes.h"

namespace slimps {
namespace {

constexpr BinKernels kBinKernels = {};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_BINS_LOOPS_H_
