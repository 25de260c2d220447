// SPDX-License-Identifier: Apache-2.0
// The sets that references.cc chooses from. Each is in a file compiled for its instruction set.
#ifndef SLIMPS_TOOLS_BENCH_CODEC_REFERENCE_SETS_H_
#define SLIMPS_TOOLS_BENCH_CODEC_REFERENCE_SETS_H_

#include "tools/bench/codec/references.h"

namespace slimps {

extern const References kScalarReferences;
extern const References kAvx2References;
extern const References kAvx512References;

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CODEC_REFERENCE_SETS_H_
