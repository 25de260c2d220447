// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/bench/gpu/host_kernels.h"

#include "tools/bench/gpu/levels_kernels.cu"

namespace slimps {
namespace {

static_assert(kHostKernelThreads == device::kThreads);

template <typename... Arguments>
void Launch(uint32_t blocks, void (*kernel)(Arguments...), Arguments... arguments) {
  for (uint32_t block = 0; block < blocks; ++block) {
    device::host_block = block;
    kernel(arguments...);
  }
}

}  // namespace

void Encode1BitOnHost(uint32_t blocks, const float* gradient, float* residual, float grad_scale,
                      uint32_t elements, uint8_t* payload) {
  Launch(blocks, device::slimps_encode_1bit, gradient, residual, grad_scale, elements, payload);
}

void Encode2BitOnHost(uint32_t blocks, const float* gradient, float* residual, float grad_scale,
                      float threshold, uint32_t elements, uint8_t* payload) {
  Launch(blocks, device::slimps_encode_2bit, gradient, residual, grad_scale, threshold, elements,
         payload);
}

}  // namespace slimps
