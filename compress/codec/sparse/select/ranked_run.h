// SPDX-License-Identifier: Apache-2.0
// RankedRun: sends exactly the k largest keys. Of equal keys it sends those with the lower index.
//
//   return std::make_unique<RankedRun>(kernels(), input, payload, workspace, SelectBy::kMagnitude,
//                                      k(input.gradient.size()), values());
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_RANKED_RUN_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_RANKED_RUN_H_

#include <cstddef>
#include <span>

#include "compress/codec/sparse/select/selection_run.h"

namespace slimps {

// Owned by one encoding. Several threads may call Blocks at the same time, see EncodeRun.
class RankedRun : public SelectionRun {
 public:
  // By sign, it sends fewer than k if fewer elements have that sign. By magnitude, it sends zeros
  // too.
  // REQUIRES: k is at most the number of elements, and 0 only if that number is 0.
  RankedRun(const Kernels& kernels, const EncodeInput& input, std::span<std::byte> payload,
            EncodeWorkspace& workspace, SelectBy by, size_t k, SparseValues values)
      : RankedRun(kernels, input, payload, workspace, {.by = by, .rank = k}, values) {
    Prepare();
  }

 protected:
  // For derived classes with another SampleInput: they call Prepare themselves. Without it the
  // floor is 0, and CollectFirst must list all elements that may be sent.
  RankedRun(const Kernels& kernels, const EncodeInput& input, std::span<std::byte> payload,
            EncodeWorkspace& workspace, const SelectionGoal& goal, SparseValues values)
      : SelectionRun(kernels, input, payload, workspace, goal, values),
        by_(goal.by),
        k_(goal.rank) {}

  Selection Choose(const Listed& listed) override;

 private:
  const SelectBy by_;
  const size_t k_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_RANKED_RUN_H_
