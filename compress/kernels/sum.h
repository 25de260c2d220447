// Kernels that add up many payloads at once. Conventions: kernels.h.
#ifndef SLIMPS_COMPRESS_KERNELS_SUM_H_
#define SLIMPS_COMPRESS_KERNELS_SUM_H_

namespace slimps {

struct SumKernels {};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_SUM_H_
