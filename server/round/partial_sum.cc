// SPDX-License-Identifier: Apache-2.0
#include "server/round/partial_sum.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/format/lanes.h"
#include "compress/format/rows.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Returns how many views come before the run at the end that later payloads may extend.
size_t ClosedViews(std::span<const PayloadView> views) {
  size_t closed = 0;
  while (closed < views.size()) {
    const size_t run = LanesRun(views.subspan(closed));
    if (run > 0 && closed + run == views.size()) break;
    closed += std::max<size_t>(run, 1);
  }
  return closed;
}

// Checks that a sum of lanes has the size that it says. It need not be a valid payload: its numbers
// may be too large for one (LanesSumIsFinite).
absl::Status CheckLanesSum(std::span<const std::byte> sum, size_t elements) {
  if (sum.size() >= kLanesHeaderBytes + kCodeLevels && HasLanes(sum)) {
    const LanesLayout layout = LanesLayoutOf(sum);
    const bool summed = layout.bits == 8 || layout.bits == 16;
    if (summed && layout.elements == elements && layout.PayloadBytes() == sum.size()) {
      return absl::OkStatus();
    }
  }
  return BadImage(
      absl::StrCat("a sum of integers for ", elements, " elements in ", sum.size(), " bytes"));
}

AlignedBuffer LanesOf(std::span<const PayloadView> run) {
  if (run.empty()) return AlignedBuffer();
  AlignedBuffer sum(LanesSumBytes(run));
  BuildLanesSum(BestKernels(), run, sum.bytes());
  return sum;
}

}  // namespace

void PartialSum::AppendViews(std::vector<PayloadView>* views) const {
  if (format_ != PayloadFormat::kAbsent) {
    views->push_back({.format = format_, .bytes = buffer_.bytes().first(bytes_)});
  }
  if (lanes_.size() > 0) {
    views->push_back({.format = PayloadFormat::kRotated, .bytes = lanes_.bytes()});
  }
}

void PartialSum::Add(std::span<const Contribution> contributions) {
  std::vector<PayloadView> views;
  AppendViews(&views);
  bool dense = false;
  for (const Contribution& one : contributions) {
    if (one.format == PayloadFormat::kAbsent) continue;
    views.push_back({.format = one.format, .bytes = one.payload.bytes()});
  }
  for (const PayloadView& one : views) dense |= one.format != PayloadFormat::kRows;
  if (dense) {
    // What later contributions may extend is not decoded yet.
    const size_t closed = ClosedViews(views);
    const bool kept = closed == 1 && format_ == PayloadFormat::kRawF32;  // summed before
    AlignedBuffer run = LanesOf(std::span(views).subspan(closed));
    if (closed > 0 && !kept) AddDense(std::span(views).first(closed));
    lanes_ = std::move(run);
  } else if (!views.empty()) {
    AddRows(views);
  }
  contributors_ += static_cast<uint32_t>(contributions.size());
}

void PartialSum::AddDense(std::span<const PayloadView> views) {
  AlignedBuffer fresh;
  const bool in_place = format_ == PayloadFormat::kRawF32;
  if (!in_place) fresh = AlignedBuffer::OfFloats(elements_);
  const std::span<float> sum = in_place ? buffer_.floats() : fresh.floats();
  // Each block is summed apart, because the sum so far, in place, is the first of the payloads.
  alignas(kBufferAlignment) std::array<float, kBlockElements> block;
  for (size_t first = 0; first < elements_; first += kBlockElements) {
    const size_t length = std::min(kBlockElements, elements_ - first);
    SumPayloads(views, elements_, first, std::span<float>(block).first(length));
    std::copy_n(block.begin(), length, sum.begin() + static_cast<std::ptrdiff_t>(first));
  }
  if (!in_place) buffer_ = std::move(fresh);
  format_ = PayloadFormat::kRawF32;
  bytes_ = dense_bytes();
}

void PartialSum::AddRows(std::span<const PayloadView> views) {
  std::vector<uint32_t> rows;
  for (const PayloadView& one : views) {
    const std::vector<uint32_t> more = RowsSent(one.bytes);
    const auto middle = static_cast<std::ptrdiff_t>(rows.size());
    rows.insert(rows.end(), more.begin(), more.end());
    std::inplace_merge(rows.begin(), rows.begin() + middle, rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  }
  const RowGrid grid = GridOfRows(views[0].bytes);
  const size_t bytes = RowsPayloadBytes(grid, rows);
  AlignedBuffer merged(bytes);
  size_t at = BuildRowsHeader(grid, rows, merged.bytes());
  const auto values = merged.bytes().subspan(at);
  const std::span<float> sums(reinterpret_cast<float*>(values.data()),
                              values.size() / sizeof(float));
  std::ranges::fill(sums, 0.0f);
  size_t next = 0;
  for (const uint32_t row : rows) {
    const size_t begin = grid.Begin(row), count = grid.End(row) - begin;
    for (const PayloadView& one : views) {
      DecodeAddRows(BestKernels(), one.bytes, begin, sums.subspan(next, count));
    }
    next += count;
  }
  buffer_ = std::move(merged);
  format_ = PayloadFormat::kRows;
  bytes_ = bytes;
}

void PartialSum::Clear() {
  contributors_ = 0;
  format_ = PayloadFormat::kAbsent;
  bytes_ = 0;
  buffer_ = AlignedBuffer();
  lanes_ = AlignedBuffer();
}

void PartialSum::Save(saved::PartialSum* fields, PartitionImage* image) const {
  fields->set_contributors(contributors_);
  fields->set_format(static_cast<wire::Format>(format_));
  fields->set_part(image->AddCopy(buffer_.bytes().first(bytes_)));
  fields->set_lanes_part(image->AddCopy(lanes_.bytes()));
}

absl::Status PartialSum::Restore(const saved::PartialSum& fields, const PartitionImage& image) {
  contributors_ = fields.contributors();
  SLIMPS_ASSIGN_OR_RETURN(format_, RestoreFormat(fields.format()));
  if (format_ != PayloadFormat::kAbsent) {
    SLIMPS_ASSIGN_OR_RETURN(const Payload sum, image.PayloadOf(format_, fields.part(), elements_));
    bytes_ = sum.size();
    buffer_ = AlignedBuffer(bytes_);
    std::ranges::copy(sum.bytes(), buffer_.bytes().begin());
  }
  if (fields.lanes_part() == 0) return absl::OkStatus();
  SLIMPS_ASSIGN_OR_RETURN(const Payload lanes, image.Part(fields.lanes_part()));
  SLIMPS_RETURN_IF_ERROR(CheckLanesSum(lanes.bytes(), elements_));
  lanes_ = AlignedBuffer(lanes.size());
  std::ranges::copy(lanes.bytes(), lanes_.bytes().begin());
  return absl::OkStatus();
}

}  // namespace slimps
