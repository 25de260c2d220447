// SPDX-License-Identifier: Apache-2.0
// Rows of a partition (rows.h): the check of pushed ones, and a copy of those that a pull names.
// Pure functions.
//
//   SLIMPS_ASSIGN_OR_RETURN(const std::vector<uint32_t> rows,
//                           ParsePulledRows(item.rows(), spec.grid()));
//   const WireValue value = CopyRows(spec, version, rows, versions);
#ifndef SLIMPS_SERVER_ROUND_PARTITION_ROWS_H_
#define SLIMPS_SERVER_ROUND_PARTITION_ROWS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/format/rows.h"
#include "server/round/partition_spec.h"
#include "server/round/versioned_weights.h"

namespace slimps {

// Parses PullItem.rows.
// InvalidArgument: not a whole number of rows, not rising, or beyond the partition's rows.
[[nodiscard]] absl::StatusOr<std::vector<uint32_t>> ParsePulledRows(const std::string& bytes,
                                                                    const RowGrid& grid);

// Returns OK if the payload is no rows, or rows of the partition's grid.
// REQUIRES: ValidatePayload was OK.
// InvalidArgument: rows of another grid.
[[nodiscard]] absl::Status CheckPushedRows(const ClaimedPayload& claimed, const RowGrid& expected);

// Returns true if a push or pull of so many elements is one of the whole partition or, where the
// partition is an auxiliary key, of its first rows.
bool IsWholeOrFirstRows(const PartitionSpec& spec, size_t elements);

// Turns a push of the first rows, all their elements, into one in format "rows"; one of nothing
// stays as it is. Throws std::bad_alloc; `claimed` is then as it was.
// REQUIRES: elements < spec.elements, IsWholeOrFirstRows and ValidatePayload are OK with them.
// InvalidArgument: another format than RAW_F32.
[[nodiscard]] absl::Status MakeFirstRows(const PartitionSpec& spec, size_t elements,
                                         ClaimedPayload* claimed);

// Cuts a value of an auxiliary key down to its first elements.
// InvalidArgument: the value is not in fp32, so it has no first elements.
[[nodiscard]] absl::StatusOr<WireValue> FirstOf(const PartitionSpec& spec, size_t elements,
                                                WireValue value);

// Returns a copy of `rows` of version `wanted`, one after another, as workers see them.
// REQUIRES: versions->Holds(wanted); rows are rising and below spec.grid().rows().
WireValue CopyRows(const PartitionSpec& spec, uint64_t wanted, std::span<const uint32_t> rows,
                   VersionedWeights* versions);

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_PARTITION_ROWS_H_
