// SPDX-License-Identifier: Apache-2.0
#include "server/round/partition_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/hash.h"

namespace slimps {

absl::StatusOr<std::vector<uint32_t>> ParsePulledRows(const std::string& bytes,
                                                      const RowGrid& grid) {
  std::vector<uint32_t> rows(bytes.size() / sizeof(uint32_t));
  if (bytes.size() % sizeof(uint32_t) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows of a pull: expected 4 bytes each, got ", bytes.size(), " in all"));
  }
  if (!rows.empty()) std::memcpy(rows.data(), bytes.data(), bytes.size());
  size_t next = 0;
  for (const uint32_t row : rows) {
    if (row < next || row >= grid.rows()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rows of a pull: expected rising ones under ", grid.rows(), ", got ", row));
    }
    next = row + size_t{1};
  }
  return rows;
}

absl::Status CheckPushedRows(const ClaimedPayload& claimed, const RowGrid& expected) {
  if (claimed.format != PayloadFormat::kRows) return absl::OkStatus();
  const RowGrid got = GridOfRows(claimed.payload.bytes());
  if (got == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rows payload: expected rows of ", expected.row_elements, " elements, ",
                   expected.skip, " of the first before the partition, got rows of ",
                   got.row_elements, ", ", got.skip, " of the first before it"));
}

bool IsWholeOrFirstRows(const PartitionSpec& spec, size_t elements) {
  if (elements == spec.elements) return true;
  return spec.auxiliary && elements > 0 && elements < spec.elements &&
         elements % spec.row_elements == 0;
}

absl::Status MakeFirstRows(const PartitionSpec& spec, size_t elements, ClaimedPayload* claimed) {
  if (claimed->format == PayloadFormat::kAbsent) return absl::OkStatus();
  if (claimed->format != PayloadFormat::kRawF32) {
    return absl::InvalidArgumentError(absl::StrCat("the first rows of an auxiliary key: expected ",
                                                   "RAW_F32, got format ",
                                                   static_cast<int>(claimed->format)));
  }
  std::vector<uint32_t> rows(elements / spec.row_elements);
  std::iota(rows.begin(), rows.end(), 0u);
  const size_t bytes = RowsPayloadBytes(spec.grid(), rows);
  AlignedBuffer payload(bytes, BufferUse::kPrivate);
  const size_t at = BuildRowsHeader(spec.grid(), rows, payload.bytes());
  std::ranges::copy(claimed->payload.bytes(),
                    payload.bytes().begin() + static_cast<std::ptrdiff_t>(at));
  claimed->format = PayloadFormat::kRows;
  claimed->payload = Payload::Adopt(std::move(payload), bytes);
  return absl::OkStatus();
}

absl::StatusOr<WireValue> FirstOf(const PartitionSpec& spec, size_t elements, WireValue value) {
  if (elements >= spec.elements) return value;
  if (value.format != PayloadFormat::kRawF32 || value.base_version.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(DescribePartition(spec.name, spec.index), ": a pull of the first ", elements,
                     " elements: expected a round in RAW_F32, got one in format ",
                     static_cast<int>(value.format)));
  }
  value.payload =
      Payload(value.payload.owner(), value.payload.bytes().first(elements * sizeof(float)));
  if (spec.hashing == PayloadHashing::kXxh3) value.hash = HashBytes(value.payload.bytes());
  return value;
}

WireValue CopyRows(const PartitionSpec& spec, uint64_t wanted, std::span<const uint32_t> rows,
                   VersionedWeights* versions) {
  const RowGrid grid = spec.grid();
  AlignedBuffer values = AlignedBuffer::OfFloats(ElementsOfRows(grid, rows), BufferUse::kPayload);
  WireValue value{.version = wanted};
  size_t at = 0;
  for (const uint32_t row : rows) {
    const size_t begin = grid.Begin(row), count = grid.End(row) - begin;
    versions->CopySeenPart(wanted, begin, values.floats().subspan(at, count));
    at += count;
  }
  if (at == 0) return value;
  if (spec.hashing == PayloadHashing::kXxh3) value.hash = HashBytes(values.bytes());
  value.payload = Payload::Adopt(std::move(values), at * sizeof(float));
  return value;
}

}  // namespace slimps
