// Kernels of AdaComp and its baselines. Conventions: kernels.h.
#ifndef SLIMPS_COMPRESS_KERNELS_BINS_H_
#define SLIMPS_COMPRESS_KERNELS_BINS_H_

namespace slimps {

struct BinKernels {};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_BINS_H_
