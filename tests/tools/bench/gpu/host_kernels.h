// SPDX-License-Identifier: Apache-2.0
// The kernels of tools/bench/gpu/levels_kernels.cu, computed by the host, with a grid of `blocks`.
#ifndef SLIMPS_TESTS_TOOLS_BENCH_GPU_HOST_KERNELS_H_
#define SLIMPS_TESTS_TOOLS_BENCH_GPU_HOST_KERNELS_H_

#include <cstdint>

namespace slimps {

inline constexpr uint32_t kHostKernelThreads = 512;  // of a block on a GPU

void Encode1BitOnHost(uint32_t blocks, const float* gradient, float* residual, float grad_scale,
                      uint32_t elements, uint8_t* payload);

void Encode2BitOnHost(uint32_t blocks, const float* gradient, float* residual, float grad_scale,
                      float threshold, uint32_t elements, uint8_t* payload);

}  // namespace slimps

#endif  // SLIMPS_TESTS_TOOLS_BENCH_GPU_HOST_KERNELS_H_
