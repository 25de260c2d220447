// SPDX-License-Identifier: Apache-2.0
// NestedRun: the k elements with the largest |x|, chosen among those that a payload has. The
// payload has at least k of the largest, in fp32, so the result is RankedRun's, ties included: both
// payloads prefer the lower index. It reads the payload's entries and not the gradient.
//
//   return NestedRun(kernels(), input, payload, workspace, k, values()).Run();
//
// Source: multi-level compression (Tyagi and Swany, GraVAC, section IV-C).
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_NESTED_RUN_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_NESTED_RUN_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec/sparse/select/ranked_run.h"

namespace slimps {

// Owned by one encoding.
class NestedRun final : public RankedRun {
 public:
  // REQUIRES: input.finer.payload is a valid sparse payload of this x in fp32, of its k or more
  // largest elements; there is no residual.
  NestedRun(const Kernels& kernels, const EncodeInput& input, std::span<std::byte> payload,
            EncodeWorkspace& workspace, size_t k, SparseValues values)
      : RankedRun(kernels, input, payload, workspace,
                  {.rank = k, .room = input.finer.stats.elements_sent}, values) {}

  EncodeStats Run() override;

 private:
  float GuessFirstFloor() override { return 0; }  // all of the payload's entries are candidates
  Candidates CollectFirst(size_t block, float floor, uint32_t* index, float* value) override;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_NESTED_RUN_H_
