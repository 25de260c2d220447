// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX2. It uses nothing from elsewhere that could be emitted out of line: the
// linker might keep that copy, and then other code would run it on CPUs without AVX2.
#include <cpuid.h>

#include "compress/kernels/kernel_sets.h"

// kernel_set.h makes the set from the lanes included before it: the order matters.
// clang-format off
#include "compress/kernels/lanes/lanes_avx2.h"
#include "compress/kernels/loops/kernel_set.h"
// clang-format on

namespace slimps {
namespace {

bool RunsHere() {
  __builtin_cpu_init();
  // Not every compiler's __builtin_cpu_supports knows "f16c". It is bit 29 of ECX of CPUID leaf 1.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1u << 29)) != 0;
  return has_f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("popcnt");
}

}  // namespace

constinit const Kernels kAvx2Kernels = MakeKernelSet("avx2", RunsHere);

}  // namespace slimps
