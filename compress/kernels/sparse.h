// Kernels of the sparse format: indices and values. Conventions: kernels.h.
#ifndef SLIMPS_COMPRESS_KERNELS_SPARSE_H_
#define SLIMPS_COMPRESS_KERNELS_SPARSE_H_

namespace slimps {

struct SparseKernels {};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_SPARSE_H_
