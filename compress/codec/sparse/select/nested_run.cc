// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/select/nested_run.h"

#include "compress/format/sparse.h"

namespace slimps {

Candidates NestedRun::CollectFirst(size_t block, float /*floor*/, uint32_t* index, float* value) {
  const size_t count = ReadSparseBlock(kernels(), input().finer.payload, block, index, value);
  return {.count = static_cast<uint32_t>(count)};
}

EncodeStats NestedRun::Run() {
  // The run has seen the payload's entries alone. What the payload lacks is its own error.
  EncodeStats stats = RankedRun::Run();
  stats.input_norm2 = input().finer.stats.input_norm2;
  stats.error_norm2 += input().finer.stats.error_norm2;
  return stats;
}

}  // namespace slimps
