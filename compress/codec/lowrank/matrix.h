// SPDX-License-Identifier: Apache-2.0
// When codecs of low rank take a partition or a tensor for a matrix. One rule for all of them.
//
//   if (!IsMatrixWorthwhile(grid, rank)) SendAsItIs();
//
// Pure; thread-safe.
#ifndef SLIMPS_COMPRESS_CODEC_LOWRANK_MATRIX_H_
#define SLIMPS_COMPRESS_CODEC_LOWRANK_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/format/row_grid.h"

namespace slimps {

// True if the factors of rank `rank` take at most half as many numbers as the matrix. A tensor of
// one dimension has rows of one element: that is never worthwhile.
inline bool IsMatrixWorthwhile(const RowGrid& grid, size_t rank) {
  // Compared by division: a rank times the sizes could wrap.
  return grid.elements / 2 / (grid.rows() + grid.row_elements) >= rank && grid.rows() > 1;
}

// Returns the grid of a whole tensor. REQUIRES: it has a dimension.
inline RowGrid WholeGrid(std::span<const int64_t> shape) {
  const size_t row = ElementsOfRow(shape);
  return {.elements = static_cast<size_t>(shape[0]) * row, .row_elements = row};
}

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_LOWRANK_MATRIX_H_
