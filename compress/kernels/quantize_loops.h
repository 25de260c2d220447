// The kernels of quantize.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_QUANTIZE_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_QUANTIZE_LOOPS_H_

#include "compress/kernels/lanes.h"
#include "compress/kernels/quantize.h"

namespace slimps {
namespace {

constexpr QuantizeKernels kQuantizeKernels = {};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_QUANTIZE_LOOPS_H_
