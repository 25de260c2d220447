// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512. It uses nothing from elsewhere that could be emitted out of line: the
// linker might keep that copy, and then other code would run it on CPUs without AVX-512.
#include "compress/kernels/kernel_sets.h"

// kernel_set.h makes the set from the lanes included before it: the order matters.
// clang-format off
#include "compress/kernels/lanes/lanes_avx512.h"
#include "compress/kernels/loops/kernel_set.h"
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
