// SPDX-License-Identifier: Apache-2.0
// Row-sparse tensors on a worker's side: sums rows of equal number, cuts them into payloads for the
// partitions, and assembles pulled rows. A row is what one index of the first dimension names. A
// tensor without dimensions is one row.
//
//   // Sums for rows 2 and 7, then one payload for each partition.
//   SLIMPS_ASSIGN_OR_RETURN(const SummedRows sums,
//                           SumByRow(tensor, {7, 2, 7}, values, /*scale=*/1));
//   SLIMPS_ASSIGN_OR_RETURN(std::vector<Payload> payloads, MakeRowPayloads(tensor, sums));
//
// Partitions are cut by elements, so a cut may fall inside a row. Each partition gets the parts of
// rows that lie in it. Pure; thread-safe.
#ifndef SLIMPS_WORKER_TENSOR_ROW_SPARSE_H_
#define SLIMPS_WORKER_TENSOR_ROW_SPARSE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/format/rows.h"
#include "proto/base/buffer.h"
#include "worker/tensor/key_table.h"

namespace slimps {

struct SummedRows {
  std::vector<int64_t> rows;  // rising
  std::vector<float> values;  // one row after another
};

// Return the number of rows, and the number of elements in each.
size_t RowCount(const TensorPlan& tensor);
size_t RowElements(const TensorPlan& tensor);

// Adds up the rows of equal number, in the order given, and multiplies the sums by `scale`.
// InvalidArgument: a row is out of range, the number of values does not match the rows, or a value
// or sum is not finite. The message names key, row, expected and got.
[[nodiscard]] absl::StatusOr<SummedRows> SumByRow(const TensorPlan& tensor,
                                                  std::span<const int64_t> rows,
                                                  std::span<const float> values, float scale);

// Returns one payload of format rows for each partition. A partition without any of the rows gets a
// payload of no rows. Throws std::bad_alloc.
// InvalidArgument: a payload exceeds what a message may carry.
[[nodiscard]] absl::StatusOr<std::vector<Payload>> MakeRowPayloads(const TensorPlan& tensor,
                                                                   const SummedRows& sums);

// Returns `rows` rising, each once.
// InvalidArgument: a row is out of range; the message names key and row.
[[nodiscard]] absl::StatusOr<std::vector<int64_t>> UniqueRows(const TensorPlan& tensor,
                                                              std::span<const int64_t> rows);

// Some rows of one partition, as one pull asks for them.
struct RowRequest {
  size_t partition = 0;
  // Counted from the first row with a part in the partition.
  std::vector<uint32_t> rows;
  size_t elements = 0;  // of the rows' parts in this partition

  std::string RowBytes() const;  // the bytes of PullItem.rows
};

// Returns the requests that together fetch all of `rows` (rising). Without rows, returns one
// request for no rows per partition. No request is longer than the wire allows. No answer is longer
// than `max_elements`, unless a single row is.
std::vector<RowRequest> PlanRowRequests(const TensorPlan& tensor, std::span<const int64_t> rows,
                                        size_t max_elements = size_t{1} << 20);

// Writes the answer to `request` into its places in `values`, which holds all of `rows`, one after
// another.
// REQUIRES: parts.size() == request.elements * sizeof(float), and the request was planned for these
// rows.
void PlaceRowParts(const TensorPlan& tensor, const RowRequest& request,
                   std::span<const std::byte> parts, std::span<const int64_t> rows,
                   std::span<float> values);

}  // namespace slimps

#endif  // SLIMPS_WORKER_TENSOR_ROW_SPARSE_H_
