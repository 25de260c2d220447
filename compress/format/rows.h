// SPDX-License-Identifier: Apache-2.0
// Payload format "rows": some rows of a row-sparse tensor, each with all its elements. The other
// rows are 0. A row is what one index of the first dimension names. Partitions are cut by elements,
// so they may cut rows. A payload holds the parts of rows that lie in its partition. It counts rows
// from the first that has a part there.
//
//   byte  0      magic 0xBA
//         1..3   0
//         4..7   rows sent, uint32
//         8..15  elements of the partition, uint64
//         16..23 elements of a whole row, uint64, 1 to 2^32
//         24..31 skip, uint64: elements of the first row that lie before the partition, fewer than
//                a row has
//         32     row numbers, uint32 each, rising
//         then   the rows' parts, fp32, one after another
//
// Everything is little-endian. Row r has the elements from max(0, r * row - skip) to below
// min(elements, (r + 1) * row - skip).
//
// Worked example, 52 bytes: a partition of 5 elements 0.5, 0, 0, 2, 4 of a tensor with rows of 2
// elements. The partition begins in the middle of a row. Rows 0 and 2 are sent:
//   BA 00 00 00  02 00 00 00  05 00 00 00 00 00 00 00  02 00 00 00 00 00 00 00
//   01 00 00 00 00 00 00 00 | 00 00 00 00  02 00 00 00 | 00 00 00 3F  00 00 00 40  00 00 80 40
#ifndef SLIMPS_COMPRESS_FORMAT_ROWS_H_
#define SLIMPS_COMPRESS_FORMAT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "compress/format/format.h"
#include "compress/format/row_grid.h"
#include "compress/kernels/kernels.h"

namespace slimps {

inline constexpr uint8_t kRowsMagic = 0xBA;
inline constexpr size_t kRowsHeaderBytes = 32;

// Return the elements, and the payload's bytes, of the parts of all `rows`. REQUIRES: the row
// numbers rise and are below grid.rows().
size_t ElementsOfRows(const RowGrid& grid, std::span<const uint32_t> rows);
size_t RowsPayloadBytes(const RowGrid& grid, std::span<const uint32_t> rows);

// Writes the header and the row numbers. Returns the offset of the values, which the caller writes.
// REQUIRES: the row numbers rise and are below grid.rows(); `payload` has RowsPayloadBytes.
size_t BuildRowsHeader(const RowGrid& grid, std::span<const uint32_t> rows,
                       std::span<std::byte> payload);

// Checks all that ValidatePayload promises for this layout:
// - the header's fields and the length
// - row numbers rise and lie in the partition
// - values are finite
[[nodiscard]] absl::Status ValidateRows(std::span<const std::byte> payload, size_t elements);

// Returns where the payload's rows lie. REQUIRES, here and below: ValidateRows was OK.
RowGrid GridOfRows(std::span<const std::byte> payload);

// Returns the numbers of the rows sent. They rise.
std::vector<uint32_t> RowsSent(std::span<const std::byte> payload);

// Returns how many values the payload has: the elements of all parts sent.
size_t ElementsInRows(std::span<const std::byte> payload);

// Sets touched[i] = 1 where element first + i belongs to a row sent. Leaves the others as they are.
// Returns true if it set any.
bool MarkRows(std::span<const std::byte> payload, size_t first, std::span<uint8_t> touched);

// Like Decode and DecodeAdd of format.h. DecodeAddRows takes chosen kernels.
void DecodeRows(std::span<const std::byte> payload, size_t first, std::span<float> dst);
void DecodeAddRows(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                   std::span<float> dst);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_ROWS_H_
