// SPDX-License-Identifier: Apache-2.0
// Payload format "low rank": a partition of a matrix as the product of two thin ones, U V^T. Row i
// of U belongs to row i of the partition (row_grid.h), row j of V to column j of the whole matrix.
// Partitions may cut rows. A payload holds the whole row of U of a cut row; what lies outside the
// partition is not decoded.
//
//   byte  0      magic 0xBB
//         1..3   0
//         4..7   rank r, uint32, at most 1024 and at most the elements of a row
//         8..15  elements of the partition, uint64
//         16..23 elements of a whole row, uint64, 1 to 2^32: the rows of V
//         24..31 skip, uint64: elements of the first row that lie before the partition, fewer than
//                a row has
//         32     U, fp32: row after row, r numbers each
//         then   V, fp32: column after column
//
// Everything is little-endian. The numbers are finite, and so small that r * largest |U| * largest
// |V| is below 2^127: so nothing decodes to infinity. The element in row i and column j decodes to
//
//   ((0 + U[i,0] V[j,0]) + U[i,1] V[j,1]) + ...       each product and each sum rounded to fp32
//
// Worked example, 52 bytes: the 4 elements 2, 3, -1, -2 of a matrix with rows of 3 elements. The
// partition begins in column 1, and its last row lacks the last element. U = (1, -1) and
// V = (1, 2, 3):
//   BB 00 00 00  01 00 00 00  04 00 00 00 00 00 00 00  03 00 00 00 00 00 00 00
//   01 00 00 00 00 00 00 00 | 00 00 80 3F  00 00 80 BF | 00 00 80 3F  00 00 00 40  00 00 40 40
//
// Exact size in bytes: 32 + 4 r (rows + elements of a row).
#ifndef SLIMPS_COMPRESS_FORMAT_LOW_RANK_H_
#define SLIMPS_COMPRESS_FORMAT_LOW_RANK_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "compress/format/format.h"
#include "compress/format/row_grid.h"
#include "compress/kernels/kernels.h"

namespace slimps {

inline constexpr uint8_t kLowRankMagic = 0xBB;
inline constexpr size_t kMaxRank = 1024;  // bounds the work that one payload asks for
inline constexpr size_t kLowRankHeaderBytes = 32;

// The header's fields, and where everything lies as a result.
struct LowRankLayout {
  RowGrid grid;
  size_t rank = 0;

  static constexpr size_t UOffset() { return kLowRankHeaderBytes; }
  size_t VOffset() const { return UOffset() + 4 * rank * grid.rows(); }
  size_t PayloadBytes() const { return VOffset() + 4 * rank * grid.row_elements; }

  friend bool operator==(const LowRankLayout&, const LowRankLayout&) = default;
};

// Writes the 32 header bytes.
// REQUIRES: payload.size() >= kLowRankHeaderBytes; rank <= kMaxRank; rank <= grid.row_elements;
// grid.row_elements <= kLongestRow.
void BuildLowRankHeader(const LowRankLayout& layout, std::span<std::byte> payload);

// Checks all that ValidatePayload promises for this format:
// - the header's fields and the length
// - everything decodes to finite numbers
[[nodiscard]] absl::Status ValidateLowRank(std::span<const std::byte> payload, size_t elements);

// Returns the header's fields. REQUIRES, here and below: ValidateLowRank was OK.
LowRankLayout LayoutOfLowRank(std::span<const std::byte> payload);

// Like Decode and DecodeAdd of format.h, with chosen kernels.
void DecodeLowRank(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                   std::span<float> dst);
void DecodeAddLowRank(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                      std::span<float> dst);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_LOW_RANK_H_
