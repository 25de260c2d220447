// SPDX-License-Identifier: Apache-2.0
#include "compress/format/lanes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "compress/format/bytes.h"
#include "proto/base/hash.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr size_t kHashOffset = 28;

const uint8_t* BytesAt(std::span<const std::byte> payload, size_t offset) {
  return reinterpret_cast<const uint8_t*>(payload.data()) + offset;
}

std::span<const std::byte> ScalesOf(std::span<const std::byte> payload, const LanesLayout& layout) {
  return payload.subspan(layout.ScaleOffset(0), layout.blocks() * sizeof(float));
}

absl::Status Check(std::string_view field, bool ok, const std::string& expected,
                   const std::string& got) {
  return ok ? absl::OkStatus() : Malformed("lanes", field, expected, got);
}

absl::Status CheckHeader(const LanesLayout& layout, size_t elements) {
  SLIMPS_RETURN_IF_ERROR(Check("bits per element",
                               layout.bits == 4 || layout.bits == 8 || layout.bits == 16,
                               "4, 8 or 16", absl::StrCat(layout.bits)));
  const uint32_t least = layout.bits == 4 ? kCodeLevels - 1 : 1;
  const uint32_t most = layout.bits == 4 ? kMaxGranularity : layout.bits == 8 ? 255 : kMaxLane;
  SLIMPS_RETURN_IF_ERROR(Check("largest level", layout.largest >= least && layout.largest <= most,
                               absl::StrCat(least, " to ", most), absl::StrCat(layout.largest)));
  return Check("elements", layout.elements == elements, absl::StrCat(elements),
               absl::StrCat(layout.elements));
}

absl::Status CheckTable(const LanesLayout& layout) {
  if (layout.bits != 4) return absl::OkStatus();
  const LevelTable& table = layout.table;
  const bool rises = std::ranges::adjacent_find(table, std::greater_equal<>()) == table.end();
  return Check("table", rises && table.front() == 0 && table.back() == layout.largest,
               absl::StrCat("rising levels from 0 to ", layout.largest),
               absl::StrCat(table.front(), " to ", table.back(), rises ? "" : ", not rising"));
}

// True if levels up to `largest` decode to finite numbers.
bool IsFiniteScale(float scale, uint32_t largest) {
  return std::isfinite(scale * static_cast<float>(largest) * (kBlockElements * 1.00001f));
}

absl::Status CheckScales(std::span<const std::byte> payload, const LanesLayout& layout) {
  for (size_t block = 0; block < layout.blocks(); ++block) {
    const auto scale = Load<float>(payload, layout.ScaleOffset(block));
    SLIMPS_RETURN_IF_ERROR(Check(absl::StrCat("scale of block ", block),
                                 IsFiniteScale(scale, layout.largest) && !std::signbit(scale),
                                 "+0 or more, finite times all levels", absl::StrCat(scale)));
  }
  const uint64_t hash = HashBytes(ScalesOf(payload, layout));
  const auto got = Load<uint64_t>(payload, kHashOffset);
  return Check("hash of the scales", hash == got, absl::StrCat(hash), absl::StrCat(got));
}

absl::Status CheckLanes(std::span<const std::byte> payload, const LanesLayout& layout) {
  if (layout.bits == 4) return absl::OkStatus();  // every code has a level
  uint32_t largest = 0;
  const size_t count = RotatedLength(layout.elements);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t lane = layout.bits == 8 ? Load<uint8_t>(payload, layout.BlockOffset(0) + i)
                                           : Load<uint16_t>(payload, layout.BlockOffset(0) + 2 * i);
    largest = std::max(largest, lane);
  }
  return Check("lanes", largest <= layout.largest, absl::StrCat("at most ", layout.largest),
               absl::StrCat(largest));
}

void ForBlocks(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
               std::span<float> dst, decltype(RotateKernels::restore) back) {
  for (size_t done = 0; done < dst.size(); done += kBlockElements) {
    const std::span<float> part = dst.subspan(done, std::min(kBlockElements, dst.size() - done));
    LaneSum sum(kernels, part.size(), (first + done) / kBlockElements);
    sum.Add(payload);
    sum.Restore(back, part);
  }
}

}  // namespace

LanesLayout LanesLayoutOf(std::span<const std::byte> payload) {
  LanesLayout layout = {.bits = Load<uint8_t>(payload, 1),
                        .largest = Load<uint16_t>(payload, 2),
                        .elements = Load<uint32_t>(payload, 4),
                        .stream = RotationOf(payload)};
  if (layout.bits == 4) layout.table = Load<LevelTable>(payload, kLanesHeaderBytes);
  return layout;
}

void BuildLanesHeader(const LanesLayout& layout, std::span<std::byte> payload) {
  BuildRotatedHeader(layout.elements, layout.stream, payload);
  Store(kLanesMagic, payload, 0);
  Store(layout.bits, payload, 1);
  Store(static_cast<uint16_t>(layout.largest), payload, 2);
  Store(HashBytes(ScalesOf(payload, layout)), payload, kHashOffset);
  if (layout.bits == 4) Store(layout.table, payload, kLanesHeaderBytes);
}

absl::Status ValidateLanes(std::span<const std::byte> payload, size_t elements) {
  if (payload.size() < kLanesHeaderBytes + kCodeLevels) {
    // Shorter ones exist only for no elements, of which nobody makes lanes.
    return absl::DataLossError(absl::StrCat("lanes payload: expected at least ",
                                            kLanesHeaderBytes + kCodeLevels, " bytes, got ",
                                            payload.size()));
  }
  const LanesLayout layout = LanesLayoutOf(payload);
  SLIMPS_RETURN_IF_ERROR(CheckHeader(layout, elements));
  if (payload.size() != layout.PayloadBytes()) {
    return absl::DataLossError(absl::StrCat("lanes payload of ", elements, " elements: expected ",
                                            layout.PayloadBytes(), " bytes, got ", payload.size()));
  }
  SLIMPS_RETURN_IF_ERROR(CheckTable(layout));
  SLIMPS_RETURN_IF_ERROR(CheckScales(payload, layout));
  return CheckLanes(payload, layout);
}

uint32_t LargestLane(std::span<const std::byte> payload) { return Load<uint16_t>(payload, 2); }

bool HaveOneScale(std::span<const std::byte> a, std::span<const std::byte> b) {
  // Elements, stream and hash lie side by side.
  return std::memcmp(a.data() + 4, b.data() + 4, kLanesHeaderBytes - 4) == 0;
}

LaneSum::LaneSum(const Kernels& kernels, size_t elements, size_t block)
    : kernels_(kernels), block_(block), length_(RotatedElements(elements)) {
  std::fill_n(lanes_.begin(), length_, 0u);
}

void LaneSum::Add(std::span<const std::byte> payload) {
  const auto bits = Load<uint8_t>(payload, 1);
  const uint32_t largest = LargestLane(payload);
  // Only the offsets are needed of the layout, not its table.
  const size_t at =
      LanesLayout{.bits = bits, .elements = Load<uint32_t>(payload, 4)}.BlockOffset(block_);
  largest_ += largest;
  last_ = payload;
  if (bits == 8) return kernels_.wire_lanes.add_bytes(BytesAt(payload, at), length_, lanes_.data());
  if (bits == 16) {
    return kernels_.wire_lanes.add_words(BytesAt(payload, at), length_, lanes_.data());
  }
  const uint8_t* const table = BytesAt(payload, kLanesHeaderBytes);
  const bool other = waiting_ > 0 && std::memcmp(table, table_, kCodeLevels) != 0;
  if (other || waiting_ == kMaxTerms || waiting_largest_ + largest > 255) Flush();
  table_ = table;
  terms_[waiting_++] = BytesAt(payload, at);
  waiting_largest_ += largest;
}

void LaneSum::Flush() {
  kernels_.wire_lanes.add_codes(terms_.data(), waiting_, table_, length_, lanes_.data());
  waiting_ = 0;
  waiting_largest_ = 0;
}

std::span<const uint32_t> LaneSum::Sums() {
  if (waiting_ > 0) Flush();
  return std::span<const uint32_t>(lanes_).first(length_);
}

void LaneSum::Restore(decltype(RotateKernels::restore) back, std::span<float> dst) {
  alignas(64) std::array<float, kBlockElements> rotated;
  const PhiloxStream stream = RotationOf(last_);
  const auto scale = Load<float>(last_, LanesLayoutOf(last_).ScaleOffset(block_));
  kernels_.wire_lanes.to_floats(Sums().data(), largest_, scale, length_, rotated.data());
  back(rotated.data(), dst.size(),
       {stream.key0, stream.key1, stream.round, stream.worker, stream.partition},
       static_cast<uint32_t>(block_), dst.data());
}

namespace {

// The layout of the payloads' sum.
LanesLayout SumLayout(std::span<const PayloadView> payloads) {
  LanesLayout layout = LanesLayoutOf(payloads[0].bytes);
  layout.largest = 0;
  for (const PayloadView& one : payloads) layout.largest += LargestLane(one.bytes);
  layout.bits = LanesLayout::BitsOf(layout.largest);
  return layout;
}

}  // namespace

size_t LanesSumBytes(std::span<const PayloadView> payloads) {
  return SumLayout(payloads).PayloadBytes();
}

bool LanesSumIsFinite(std::span<const PayloadView> payloads) {
  const std::span<const std::byte> first = payloads[0].bytes;
  const LanesLayout layout = LanesLayoutOf(first);
  const uint32_t largest = SumLayout(payloads).largest;
  for (size_t block = 0; block < layout.blocks(); ++block) {
    if (!IsFiniteScale(Load<float>(first, layout.ScaleOffset(block)), largest)) return false;
  }
  return true;
}

void BuildLanesSum(const Kernels& kernels, std::span<const PayloadView> payloads,
                   std::span<std::byte> out) {
  const std::span<const std::byte> first = payloads[0].bytes;
  const LanesLayout layout = SumLayout(payloads);
  std::ranges::copy(ScalesOf(first, LanesLayoutOf(first)), out.begin() + layout.ScaleOffset(0));
  BuildLanesHeader(layout, out);
  for (size_t block = 0; block < layout.blocks(); ++block) {
    const size_t begin = block * kBlockElements;
    LaneSum sum(kernels, std::min(kBlockElements, layout.elements - begin), block);
    for (const PayloadView& one : payloads) sum.Add(one.bytes);
    const size_t at = layout.BlockOffset(block);
    const std::span<const uint32_t> lanes = sum.Sums();
    for (size_t i = 0; i < lanes.size(); ++i) {
      if (layout.bits == 8) {
        Store(static_cast<uint8_t>(lanes[i]), out, at + i);
      } else {
        Store(static_cast<uint16_t>(lanes[i]), out, at + 2 * i);
      }
    }
  }
}

void DecodeLanes(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                 std::span<float> dst) {
  ForBlocks(kernels, payload, first, dst, kernels.rotate.restore);
}

void DecodeAddLanes(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                    std::span<float> dst) {
  ForBlocks(kernels, payload, first, dst, kernels.rotate.add);
}

}  // namespace slimps
