// SPDX-License-Identifier: Apache-2.0
// How the rows of a tensor lie in one of its partitions. A tensor is seen as a matrix: the first
// dimension counts rows, and a row has the elements of all other dimensions. Partitions are cut by
// elements, so the first and the last row may be cut.
//
//   rows of 5, a partition of 11 elements that begins at element 3 of its first row (skip = 3):
//
//     . . . 0 1
//     2 3 4 5 6
//     7 8 9 10 .
//
// Plain data; pure functions.
#ifndef SLIMPS_COMPRESS_FORMAT_ROW_GRID_H_
#define SLIMPS_COMPRESS_FORMAT_ROW_GRID_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace slimps {

inline constexpr uint64_t kLongestRow = uint64_t{1} << 32;  // elements

// Returns the elements of one row of a tensor: the product of all dimensions but the first. A
// tensor without dimensions is one row of one element. An empty row counts as 1 element, since none
// of its elements could lie elsewhere.
inline size_t ElementsOfRow(std::span<const int64_t> shape) {
  size_t elements = 1;
  for (size_t i = 1; i < shape.size(); ++i) elements *= static_cast<size_t>(shape[i]);
  return std::max<size_t>(elements, 1);
}

struct RowGrid {
  size_t elements = 0;      // in the partition
  size_t row_elements = 1;  // in a whole row; at least 1
  // Elements of the first row that lie before the partition. Less than row_elements.
  size_t skip = 0;

  // Returns the grid of elements [offset, offset + elements) of a tensor.
  static RowGrid At(size_t offset, size_t elements, size_t row_elements) {
    return {.elements = elements, .row_elements = row_elements, .skip = offset % row_elements};
  }

  // Returns how many rows have a part in the partition.
  size_t rows() const {
    return elements == 0 ? 0 : (skip + elements + row_elements - 1) / row_elements;
  }

  // Return where the row's part begins and ends in the partition. REQUIRES: row < rows().
  size_t Begin(size_t row) const { return row == 0 ? 0 : row * row_elements - skip; }
  size_t End(size_t row) const { return std::min(elements, (row + 1) * row_elements - skip); }

  friend bool operator==(const RowGrid&, const RowGrid&) = default;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_ROW_GRID_H_
