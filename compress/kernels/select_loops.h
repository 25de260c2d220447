// The kernels of select.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_SELECT_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_SELECT_LOOPS_H_

#include "compress/kernels/lanes.h"
#include "compress/kernels/select.h"

namespace slimps {
namespace {

constexpr SelectKernels kSelectKernels = {};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_SELECT_LOOPS_H_
