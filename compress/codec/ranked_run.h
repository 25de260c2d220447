// RankedRun: sends the k largest keys, exactly; of equals, those with the lower index.
#ifndef SLIMPS_COMPRESS_CODEC_RANKED_RUN_H_
#define SLIMPS_COMPRESS_CODEC_RANKED_RUN_H_

#include <cstddef>
#include <span>

#include "compress/codec/selection_run.h"

namespace slimps {

// Owned by one encoding; Blocks from several threads, as EncodeRun says.
class RankedRun : public SelectionRun {
 public:
  // By sign, fewer than k are sent where fewer have that sign; by magnitude, zeros are sent too. REQUIRES: k is at most
  // the number of elements, and 0 only if that is.
  RankedRun(const Kernels& kernels, const EncodeInput& input, std::span<std::byte> payload,
            EncodeWorkspace& workspace, SelectBy by, size_t k, SparseValues values)
      : RankedRun(kernels, input, payload, workspace, by, k, values, Unprepared()) {
    Prepare();
  }

 protected:
  // For those with another SampleInput, which call Prepare themselves.
  struct Unprepared {};
  RankedRun(const Kernels& kernels, const EncodeInput& input, std::span<std::byte> payload,
            EncodeWorkspace& workspace, SelectBy by, size_t k, SparseValues values, Unprepared)
      : SelectionRun(kernels, input, payload, workspace, {.by = by, .rank = k}, values),
        by_(by),
        k_(k) {}

  Selection Choose(const Listed& listed) override;

 private:
  const SelectBy by_;
  const size_t k_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_RANKED_RUN_H_
