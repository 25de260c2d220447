// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/reference_loops.h"
#include "tools/bench/codec/reference_sets.h"

namespace slimps {

constexpr References kAvx2References = MakeReferences("avx2");

}  // namespace slimps
