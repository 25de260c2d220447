// What memory allows: the plain loops that codecs are measured against, once per instruction set, as good as the
// compiler makes them. Thread-safe: pure functions.
#ifndef SLIMPS_TOOLS_BENCH_REFERENCES_H_
#define SLIMPS_TOOLS_BENCH_REFERENCES_H_

#include <cstddef>
#include <string_view>

namespace slimps {

struct References {
  std::string_view name;                            // of the set, as Kernels::name
  void (*add)(const float* s, float* d, size_t n);  // d += s: reads 8 bytes an element, writes 4
  void (*multiply)(float c, float* d, size_t n);    // d *= c: reads 4, writes 4
  float (*sum)(const float* s, size_t n);           // reads 4
};

// REQUIRES: a name of AllKernels().
const References& FindReferences(std::string_view name);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_REFERENCES_H_
