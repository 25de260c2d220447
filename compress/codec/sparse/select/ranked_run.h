// SPDX-License-Identifier: Apache-2.0
// RankedRun: sends exactly the k largest keys. Of equal keys it sends those with the lower index.
//
//   return RankedRun(kernels(), input, payload, workspace, {.rank = k}, values()).Run();
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_RANKED_RUN_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_RANKED_RUN_H_

#include <cstddef>
#include <span>

#include "compress/codec/sparse/select/selection_run.h"

namespace slimps {

// Owned by one encoding.
class RankedRun : public SelectionRun {
 public:
  // k is goal.rank. By sign, it sends fewer than k if fewer elements have that sign. By magnitude,
  // it sends zeros too.
  // REQUIRES: k is at most the number of elements, and 0 only if that number is 0; the goal has no
  // fixed floor.
  RankedRun(const Kernels& kernels, const EncodeInput& input, std::span<std::byte> payload,
            EncodeWorkspace& workspace, const SelectionGoal& goal, SparseValues values)
      : SelectionRun(kernels, input, payload, workspace, goal, values),
        by_(goal.by),
        k_(goal.rank) {}

 protected:
  Selection Choose(const Listed& listed) override;

 private:
  const SelectBy by_;
  const size_t k_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_RANKED_RUN_H_
