// SPDX-License-Identifier: Apache-2.0
// The plain loops that codecs are compared with: they show what memory allows. There is one set per
// instruction set, as good as the compiler makes it. Thread-safe: pure functions.
#ifndef SLIMPS_TOOLS_BENCH_CODEC_REFERENCES_H_
#define SLIMPS_TOOLS_BENCH_CODEC_REFERENCES_H_

#include <cstddef>
#include <string_view>

namespace slimps {

struct References {
  std::string_view name;                            // equals Kernels::name
  void (*add)(const float* s, float* d, size_t n);  // d += s: reads 8 bytes per element, writes 4
  void (*multiply)(float c, float* d, size_t n);    // d *= c: reads 4, writes 4
  float (*sum)(const float* s, size_t n);           // reads 4
};

// REQUIRES: `name` is the name of one of AllKernels().
const References& FindReferences(std::string_view name);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CODEC_REFERENCES_H_
