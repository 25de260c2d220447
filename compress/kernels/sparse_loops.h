// The kernels of sparse.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_SPARSE_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_SPARSE_LOOPS_H_

#include "compress/kernels/lanes.h"
#include "compress/kernels/sparse.h"

namespace slimps {
namespace {

constexpr SparseKernels kSparseKernels = {};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_SPARSE_LOOPS_H_
