#include "compress/kernels/kernel_sets.h"

// The set is made of the lanes included before it.
// clang-format off
#include "compress/kernels/lanes_scalar.h"
#include "compress/kernels/kernel_set.h"
// clang-format on

namespace slimps {

constinit const Kernels kScalarKernels = MakeKernelSet("scalar", [] { return true; });

}  // namespace slimps
