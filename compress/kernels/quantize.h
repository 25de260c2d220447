// Kernels of four and eight bits per element and of stochastic rounding. Conventions: kernels.h.
#ifndef SLIMPS_COMPRESS_KERNELS_QUANTIZE_H_
#define SLIMPS_COMPRESS_KERNELS_QUANTIZE_H_

namespace slimps {

struct QuantizeKernels {};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_QUANTIZE_H_
