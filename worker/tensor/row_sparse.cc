// SPDX-License-Identifier: Apache-2.0
#include "worker/tensor/row_sparse.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/limits.h"

namespace slimps {
namespace {

// A message also carries a header and other fields beside the payload.
constexpr size_t kMaxPayload = kDefaultLimits.max_message_bytes - kDefaultLimits.max_header_bytes;

absl::Status CheckRow(const TensorPlan& tensor, int64_t row, const char* what) {
  const size_t count = RowCount(tensor);
  if (row >= 0 && static_cast<uint64_t>(row) < count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " of key ", tensor.key.typed_name(),
                                                 ": expected rows 0 to below ", count, ", got row ",
                                                 row));
}

absl::Status CheckRowFinite(const TensorPlan& tensor, int64_t row, std::span<const float> values,
                            const char* what) {
  const auto bad = std::ranges::find_if(values, [](float x) { return !std::isfinite(x); });
  if (bad == values.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "push of rows of key ", tensor.key.typed_name(), ": element ", bad - values.begin(),
      " of row ", row, " is ", *bad, what, "; expected finite values; nothing was sent"));
}

// How one partition cuts the tensor's rows.
struct PartitionRows {
  PartitionRows(const TensorPlan& tensor, size_t partition)
      : offset(tensor.partitions[partition].offset),
        row_elements(RowElements(tensor)),
        grid(RowGrid::At(offset, tensor.partitions[partition].elements, row_elements)),
        first(static_cast<int64_t>(offset / row_elements)) {}

  // Returns the range in `rows` (rising) of the rows with a part in the partition.
  std::pair<size_t, size_t> Find(std::span<const int64_t> rows) const {
    const auto begin = std::ranges::lower_bound(rows, first);
    const auto end = std::ranges::lower_bound(rows, first + static_cast<int64_t>(grid.rows()));
    return {static_cast<size_t>(begin - rows.begin()), static_cast<size_t>(end - rows.begin())};
  }
  uint32_t Local(int64_t row) const { return static_cast<uint32_t>(row - first); }
  size_t PartElements(uint32_t local) const { return grid.End(local) - grid.Begin(local); }
  // Returns where the partition's part of the row begins within the row. Only the first row can be
  // cut at its beginning.
  size_t PartBegin(uint32_t local) const { return local == 0 ? grid.skip : 0; }

  const size_t offset, row_elements;
  const RowGrid grid;
  const int64_t first;  // the tensor's number of the partition's first row
};

absl::StatusOr<Payload> MakeRowPayload(const TensorPlan& tensor, size_t partition,
                                       const SummedRows& sums) {
  const PartitionRows here(tensor, partition);
  const auto [begin, end] = here.Find(sums.rows);
  std::vector<uint32_t> rows;
  for (size_t i = begin; i < end; ++i) rows.push_back(here.Local(sums.rows[i]));
  const size_t bytes = RowsPayloadBytes(here.grid, rows);
  if (bytes > kMaxPayload) {
    return absl::InvalidArgumentError(
        absl::StrCat("push of rows of key ", tensor.key.typed_name(), " partition ", partition,
                     ": ", rows.size(), " rows take ", bytes, " bytes, at most ", kMaxPayload,
                     " travel in one message; expected fewer rows, or smaller partitions"));
  }
  AlignedBuffer payload(bytes, BufferUse::kPayload);
  size_t at = BuildRowsHeader(here.grid, rows, payload.bytes());
  for (size_t i = begin; i < end; ++i) {
    const uint32_t local = rows[i - begin];
    const size_t part_bytes = here.PartElements(local) * sizeof(float);
    std::memcpy(payload.bytes().data() + at,
                sums.values.data() + i * here.row_elements + here.PartBegin(local), part_bytes);
    at += part_bytes;
  }
  return Payload::Adopt(std::move(payload), bytes);
}

}  // namespace

size_t RowCount(const TensorPlan& tensor) {
  return tensor.info.shape().empty() ? 1 : static_cast<size_t>(tensor.info.shape(0));
}

size_t RowElements(const TensorPlan& tensor) { return ElementsOfRow(tensor.shape()); }

absl::StatusOr<SummedRows> SumByRow(const TensorPlan& tensor, std::span<const int64_t> rows,
                                    std::span<const float> values, float scale) {
  const size_t length = RowElements(tensor);
  for (const int64_t row : rows) {
    SLIMPS_RETURN_IF_ERROR(CheckRow(tensor, row, "push of rows"));
  }
  if (values.size() % length != 0 || values.size() / length != rows.size()) {
    return absl::InvalidArgumentError(absl::StrCat("push of rows of key ", tensor.key.typed_name(),
                                                   ": expected ", length, " values for each of ",
                                                   rows.size(), " rows, got ", values.size()));
  }
  // The sort is stable: equal rows add up in the order given.
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return rows[i]; });
  SummedRows sums;
  sums.values.reserve(values.size());
  for (const size_t i : order) {
    const std::span<const float> row = values.subspan(i * length, length);
    SLIMPS_RETURN_IF_ERROR(CheckRowFinite(tensor, rows[i], row, ""));
    if (sums.rows.empty() || sums.rows.back() != rows[i]) {
      sums.rows.push_back(rows[i]);
      sums.values.insert(sums.values.end(), row.begin(), row.end());
      continue;
    }
    float* const sum = sums.values.data() + sums.values.size() - length;
    for (size_t j = 0; j < length; ++j) sum[j] += row[j];
  }
  for (size_t i = 0; i < sums.rows.size(); ++i) {
    const std::span<float> row = std::span(sums.values).subspan(i * length, length);
    for (float& x : row) x *= scale;
    SLIMPS_RETURN_IF_ERROR(
        CheckRowFinite(tensor, sums.rows[i], row, ", summed and times the gradient's scale"));
  }
  return sums;
}

absl::StatusOr<std::vector<Payload>> MakeRowPayloads(const TensorPlan& tensor,
                                                     const SummedRows& sums) {
  std::vector<Payload> payloads;
  for (size_t i = 0; i < tensor.partitions.size(); ++i) {
    SLIMPS_ASSIGN_OR_RETURN(Payload payload, MakeRowPayload(tensor, i, sums));
    payloads.push_back(std::move(payload));
  }
  return payloads;
}

absl::StatusOr<std::vector<int64_t>> UniqueRows(const TensorPlan& tensor,
                                                std::span<const int64_t> rows) {
  for (const int64_t row : rows) {
    SLIMPS_RETURN_IF_ERROR(CheckRow(tensor, row, "pull of rows"));
  }
  std::vector<int64_t> unique(rows.begin(), rows.end());
  std::ranges::sort(unique);
  unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
  return unique;
}

std::string RowRequest::RowBytes() const {
  return {reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(uint32_t)};
}

std::vector<RowRequest> PlanRowRequests(const TensorPlan& tensor, std::span<const int64_t> rows,
                                        size_t max_elements) {
  constexpr size_t kMaxRows = kDefaultLimits.max_row_bytes / sizeof(uint32_t);
  std::vector<RowRequest> requests;
  for (size_t partition = 0; partition < tensor.partitions.size(); ++partition) {
    if (rows.empty()) requests.push_back({.partition = partition});
    const PartitionRows here(tensor, partition);
    const auto [begin, end] = here.Find(rows);
    for (size_t i = begin; i < end; ++i) {
      const uint32_t local = here.Local(rows[i]);
      const size_t elements = here.PartElements(local);
      if (i == begin || requests.back().rows.size() == kMaxRows ||
          requests.back().elements + elements > max_elements) {
        requests.push_back({.partition = partition});
      }
      requests.back().rows.push_back(local);
      requests.back().elements += elements;
    }
  }
  return requests;
}

void PlaceRowParts(const TensorPlan& tensor, const RowRequest& request,
                   std::span<const std::byte> parts, std::span<const int64_t> rows,
                   std::span<float> values) {
  if (request.rows.empty()) return;
  const PartitionRows here(tensor, request.partition);
  auto row = static_cast<size_t>(std::ranges::lower_bound(rows, here.first + request.rows.front()) -
                                 rows.begin());
  for (const uint32_t local : request.rows) {
    const size_t count = here.PartElements(local);
    std::memcpy(values.data() + row * here.row_elements + here.PartBegin(local), parts.data(),
                count * sizeof(float));
    parts = parts.subspan(count * sizeof(float));
    ++row;
  }
}

}  // namespace slimps
