// SPDX-License-Identifier: Apache-2.0
// The loops of references.h. Each references_*.cc compiles them for its instruction set.
#ifndef SLIMPS_TOOLS_BENCH_CODEC_REFERENCE_LOOPS_H_
#define SLIMPS_TOOLS_BENCH_CODEC_REFERENCE_LOOPS_H_

#include <cstddef>
#include <string_view>

#include "tools/bench/codec/references.h"

namespace slimps {
namespace {

void Add(const float* __restrict s, float* __restrict d, size_t n) {
  for (size_t i = 0; i < n; ++i) d[i] += s[i];
}

void Multiply(float c, float* d, size_t n) {
  for (size_t i = 0; i < n; ++i) d[i] *= c;
}

// Keeps enough partial sums to hide an addition's latency, side by side so that the compiler can
// use vectors.
float Sum(const float* s, size_t n) {
  constexpr size_t kPartial = 64;
  float partial[kPartial] = {};
  size_t i = 0;
  for (; n - i >= kPartial; i += kPartial) {
    for (size_t j = 0; j < kPartial; ++j) partial[j] += s[i + j];
  }
  float sum = 0;
  for (; i < n; ++i) sum += s[i];
  for (const float part : partial) sum += part;
  return sum;
}

constexpr References MakeReferences(std::string_view name) {
  return {.name = name, .add = Add, .multiply = Multiply, .sum = Sum};
}

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CODEC_REFERENCE_LOOPS_H_
