// SPDX-License-Identifier: Apache-2.0
#include "compress/kernels/kernel_sets.h"

// kernel_set.h makes the set from the lanes included before it: the order matters.
// clang-format off
#include "compress/kernels/lanes/lanes_scalar.h"
#include "compress/kernels/loops/kernel_set.h"
// clang-format on

namespace slimps {

constinit const Kernels kScalarKernels = MakeKernelSet("scalar", [] { return true; });

}  // namespace slimps
