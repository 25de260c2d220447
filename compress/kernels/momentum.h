// Kernels of momentum correction and its kin. Conventions: kernels.h.
#ifndef SLIMPS_COMPRESS_KERNELS_MOMENTUM_H_
#define SLIMPS_COMPRESS_KERNELS_MOMENTUM_H_

namespace slimps {

struct MomentumKernels {};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_MOMENTUM_H_
