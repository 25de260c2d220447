// Compiled for AVX-512: uses nothing from elsewhere that could be emitted out of line.
#include "compress/kernels/kernel_sets.h"

// The set is made of the lanes included before it.
// clang-format off
#include "compress/kernels/lanes_avx512.h"
#include "compress/kernels/kernel_set.h"
// clang-format on

namespace slimps {
namespace {

bool RunsHere() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace

constinit const Kernels kAvx512Kernels = MakeKernelSet("avx512", RunsHere);

}  // namespace slimps
