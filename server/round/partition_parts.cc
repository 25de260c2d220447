// SPDX-License-Identifier: Apache-2.0
// The members of Partition for parts that travel on their own: rows, and the optimizer's state.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/hash.h"
#include "proto/base/status_macros.h"
#include "proto/limits.h"
#include "server/round/partition.h"

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

absl::Status Partition::CheckRows(const ClaimedPayload& claimed) const {
  if (claimed.format != PayloadFormat::kRows) return absl::OkStatus();
  const RowGrid expected = spec_.grid(), got = GridOfRows(claimed.payload.bytes());
  if (got == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rows payload: expected rows of ", expected.row_elements, " elements, ",
                   expected.skip, " of the first before the partition, got rows of ",
                   got.row_elements, ", ", got.skip, " of the first before it"));
}

Partition::Extent Partition::ExtentOfRound() const {
  if (optimizer_->spec().kind() == wire::OptimizerSpec::NONE) return Extent::kAll;
  Extent extent = Extent::kNothing;
  for (const PayloadView& view : views_) {
    if (view.format == PayloadFormat::kAbsent) continue;
    if (view.format != PayloadFormat::kRows || spec_.combine != Combine::kSum) return Extent::kAll;
    extent = Extent::kRows;
  }
  return extent;
}

WireValue Partition::ShareRows(uint64_t wanted, std::span<const uint32_t> rows) {
  const RowGrid grid = spec_.grid();
  AlignedBuffer values = AlignedBuffer::OfFloats(ElementsOfRows(grid, rows), BufferUse::kPayload);
  WireValue value{.version = wanted};
  size_t at = 0;
  for (const uint32_t row : rows) {
    const size_t begin = grid.Begin(row), count = grid.End(row) - begin;
    weights_.CopySeenPart(wanted, begin, values.floats().subspan(at, count));
    at += count;
  }
  if (at == 0) return value;
  if (spec_.hashing == PayloadHashing::kXxh3) value.hash = HashBytes(values.bytes());
  value.payload = Payload::Adopt(std::move(values), at * sizeof(float));
  return value;
}

WireValue Partition::ShareState(wire::OptimizerState* state) const {
  const size_t tensor = state->tensor(), tensors = optimizer_->state_tensors();
  state->set_kind(optimizer_->spec().kind());
  state->set_tensors(static_cast<uint32_t>(tensors));
  state->set_updates(updates_);
  WireValue value{.version = version(), .format = PayloadFormat::kAbsent};
  if (tensor == 0 || tensor > tensors || spec_.elements == 0) return value;
  AlignedBuffer copy = AlignedBuffer::OfFloats(spec_.elements, BufferUse::kPayload);
  std::ranges::copy(state_[tensor - 1].floats(), copy.floats().begin());
  if (spec_.hashing == PayloadHashing::kXxh3) value.hash = HashBytes(copy.bytes());
  value.format = PayloadFormat::kRawF32;
  value.payload = Payload::Adopt(std::move(copy), spec_.elements * sizeof(float));
  return value;
}

absl::Status Partition::PutState(const wire::OptimizerState& state, const ClaimedPayload& value) {
  const auto kind = optimizer_->spec().kind();
  const size_t tensors = optimizer_->state_tensors();
  if (state.kind() != kind || state.tensors() != tensors) {
    return Annotate(absl::FailedPreconditionError(
        absl::StrCat("optimizer state: expected that of ", wire::OptimizerSpec::Kind_Name(kind),
                     " with ", tensors, " tensors, got ",
                     wire::OptimizerSpec::Kind_Name(state.kind()), " with ", state.tensors())));
  }
  if (state.tensor() == 0 || state.tensor() > tensors || value.format != PayloadFormat::kRawF32) {
    return Annotate(absl::InvalidArgumentError(
        absl::StrCat("optimizer state: expected tensor 1 to ", tensors, " in raw fp32, got tensor ",
                     state.tensor(), " in ", std::string(FormatName(value.format)))));
  }
  if (state.load() == 0 || state.updates() > kMostUpdates) {
    return Annotate(absl::InvalidArgumentError(
        absl::StrCat("optimizer state: expected loads numbered from 1 and at most ", kMostUpdates,
                     " updates, got load ", state.load(), " and ", state.updates())));
  }
  const std::span<float> mine = state_[state.tensor() - 1].floats();
  const absl::Status valid = ValidatePayload(value.format, value.payload.bytes(), mine.size());
  if (!valid.ok()) return Annotate(valid);
  uint64_t& newest = loads_[state.tensor() - 1];
  if (state.load() <= newest) return absl::OkStatus();
  newest = state.load();
  for (size_t first = 0; first < mine.size(); first += kBlockElements) {
    Decode(value.format, value.payload.bytes(), mine.size(), first,
           mine.subspan(first, std::min(kBlockElements, mine.size() - first)));
  }
  updates_ = state.updates();
  return absl::OkStatus();
}

}  // namespace slimps
