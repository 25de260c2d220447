// Kernels that choose which elements a sparse codec sends. Conventions: kernels.h.
#ifndef SLIMPS_COMPRESS_KERNELS_SELECT_H_
#define SLIMPS_COMPRESS_KERNELS_SELECT_H_

namespace slimps {

struct SelectKernels {};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_SELECT_H_
