// SPDX-License-Identifier: Apache-2.0
// MatrixRun: one encoding of a partition as a matrix. The first pass collects x, then the payload
// is written, and the second pass counts what the payload leaves out. A partition that is no matrix
// of use travels whole, as one row of rank 1.
//
//   class MyRun final : public MatrixRun {
//     void Factor() override;              // writes layout_.rank and the payload
//     void FinishBlock(size_t block, const BlockInput& in) override;
//   };
//
// Owned by one encoding.
#ifndef SLIMPS_COMPRESS_CODEC_LOWRANK_MATRIX_RUN_H_
#define SLIMPS_COMPRESS_CODEC_LOWRANK_MATRIX_RUN_H_

#include <algorithm>
#include <cstddef>
#include <span>

#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"
#include "compress/codec/lowrank/matrix.h"
#include "compress/format/bytes.h"
#include "compress/format/low_rank.h"
#include "compress/kernels/kernels.h"

namespace slimps {

class MatrixRun {
 public:
  virtual ~MatrixRun() = default;

  // `rank`: of the factors, or the most that there may be.
  MatrixRun(const Kernels& kernels, size_t rank, const EncodeInput& input,
            std::span<std::byte> payload, EncodeWorkspace& workspace)
      : kernels_(kernels),
        input_(input),
        payload_(payload),
        sums_(workspace.Take<BlockSums>(Codec::Blocks(input.gradient.size()))),
        is_matrix_(IsMatrixWorthwhile(input.context.grid, rank)),
        layout_{.grid = is_matrix_ ? input.context.grid : OneRow(input.gradient.size())},
        matrix_(workspace.Take<float>(layout_.grid.rows() * layout_.grid.row_elements)) {
    // Only the first and the last row can be cut: what lies outside the partition counts as 0.
    std::ranges::fill(matrix_.first(layout_.grid.skip), 0.0f);
    std::ranges::fill(matrix_.subspan(layout_.grid.skip + input.gradient.size()), 0.0f);
  }

  virtual EncodeStats Run() {
    for (size_t block = 0; block < sums_.size(); ++block) {
      const BlockInput in(input_, block);
      sums_[block].input2 = kernels_.raw
                                .encode_f32(in.gradient, in.residual, input_.grad_scale,
                                            in.elements, reinterpret_cast<std::byte*>(XOf(block)))
                                .input2;
    }
    if (is_matrix_) {
      Factor();
    } else {
      SendWhole();
    }
    for (size_t block = 0; block < sums_.size(); ++block) {
      FinishBlock(block, BlockInput(input_, block));
    }
    EncodeStats stats = SumOf(sums_);
    stats.payload_bytes = layout_.PayloadBytes();
    return stats;
  }

 protected:
  // Sets the rank, and writes header and factors.
  virtual void Factor() = 0;
  // Counts the block's sums but for input2, and leaves its error in the residual.
  virtual void FinishBlock(size_t block, const BlockInput& in) = 0;

  float* XOf(size_t block) const {
    return matrix_.data() + layout_.grid.skip + block * kBlockElements;
  }

  const Kernels& kernels_;
  const EncodeInput input_;
  const std::span<std::byte> payload_;
  const std::span<BlockSums> sums_;
  const bool is_matrix_;
  LowRankLayout layout_;           // of what the payload has
  const std::span<float> matrix_;  // x, with zeros where the partition cuts rows

 private:
  static RowGrid OneRow(size_t elements) {
    return {.elements = elements, .row_elements = std::max<size_t>(elements, 1)};
  }

  void SendWhole() {
    layout_.rank = layout_.grid.elements == 0 ? 0 : 1;
    BuildLowRankHeader(layout_, payload_);
    if (layout_.rank == 0) return;
    Store(1.0f, payload_, LowRankLayout::UOffset());
    std::ranges::copy(std::as_bytes(matrix_),
                      payload_.begin() + static_cast<std::ptrdiff_t>(layout_.VOffset()));
  }
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_LOWRANK_MATRIX_RUN_H_
