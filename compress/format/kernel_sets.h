// Where kernels.cc finds the sets. A new set adds a line here and one there.
#ifndef SLIMPS_COMPRESS_FORMAT_KERNEL_SETS_H_
#define SLIMPS_COMPRESS_FORMAT_KERNEL_SETS_H_

#include "compress/format/kernels.h"

namespace slimps {

extern const Kernels kScalarKernels;
extern const Kernels kAvx2Kernels;

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_KERNEL_SETS_H_
