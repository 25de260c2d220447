// Row-sparse tensors on a worker's side: rows summed by their number, cut into what each partition gets, and rows that
// are pulled put together again. A row is what one index of the first dimension names; a tensor without dimensions is one
// row.
//
//   SLIMPS_ASSIGN_OR_RETURN(const SummedRows sums, SumByRow(tensor, {7, 2, 7}, values, /*scale=*/1));   // rows 2, 7
//   SLIMPS_ASSIGN_OR_RETURN(std::vector<Payload> payloads, MakeRowPayloads(tensor, sums));   // one for each partition
//
// Partitions are cut by elements and may cut rows; each gets the parts of rows that lie in it. Pure; thread-safe.
#ifndef SLIMPS_WORKER_ROW_SPARSE_H_
#define SLIMPS_WORKER_ROW_SPARSE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/format/rows.h"
#include "proto/base/buffer.h"
#include "worker/key_table.h"

namespace slimps {

struct SummedRows {
  std::vector<int64_t> rows;  // rising
  std::vector<float> values;  // one row after another
};

// How many rows there are, and how many elements each has; 0 of a tensor without elements.
size_t RowCount(const TensorPlan& tensor);
size_t RowElements(const TensorPlan& tensor);

// The rows of equal number added up in their order, times `scale`. InvalidArgument, naming key, row, expected and got: a row
// out of range, values not as many as the rows need, a value or sum that is not finite.
[[nodiscard]] absl::StatusOr<SummedRows> SumByRow(const TensorPlan& tensor,
                                                  std::span<const int64_t> rows,
                                                  std::span<const float> values, float scale);

// Payloads of format rows, one for each partition, of no rows where none falls on it. Throws std::bad_alloc.
// InvalidArgument: one exceeds what a message may carry.
[[nodiscard]] absl::StatusOr<std::vector<Payload>> MakeRowPayloads(const TensorPlan& tensor,
                                                                   const SummedRows& sums);

// `rows` rising, each once. InvalidArgument, naming key and row: out of range.
[[nodiscard]] absl::StatusOr<std::vector<int64_t>> UniqueRows(const TensorPlan& tensor,
                                                              std::span<const int64_t> rows);

// Some rows of one partition, as one pull asks for them.
struct RowRequest {
  size_t partition = 0;
  std::vector<uint32_t> rows;  // counted from the first with a part in the partition
  size_t elements = 0;         // of their parts

  std::string RowBytes() const;  // as PullItem.rows has them
};

// What to ask for, so that all of `rows` (rising) come; without rows, every partition for none. No request is longer than
// the wire allows, nor its answer than `most_elements`, but for a row that is longer itself.
std::vector<RowRequest> PlanRowRequests(const TensorPlan& tensor, std::span<const int64_t> rows,
                                        size_t most_elements = size_t{1} << 20);
// Writes what came for `request` where it belongs in `values`, which has all of `rows`, one after another. REQUIRES:
// parts.size() == request.elements * sizeof(float); the request is one for these rows.
void PlaceRowParts(const TensorPlan& tensor, const RowRequest& request,
                   std::span<const std::byte> parts, std::span<const int64_t> rows,
                   std::span<float> values);

}  // namespace slimps

#endif  // SLIMPS_WORKER_ROW_SPARSE_H_
