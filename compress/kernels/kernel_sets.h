// SPDX-License-Identifier: Apache-2.0
// The sets that kernels.cc chooses from. A new set adds one line here and one there.
#ifndef SLIMPS_COMPRESS_KERNELS_KERNEL_SETS_H_
#define SLIMPS_COMPRESS_KERNELS_KERNEL_SETS_H_

#include "compress/kernels/kernels.h"

namespace slimps {

extern const Kernels kScalarKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_KERNEL_SETS_H_
