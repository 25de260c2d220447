// SPDX-License-Identifier: Apache-2.0
#include "compress/format/low_rank.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compress/format/bytes.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// One less than fp32's largest exponent: sums of products are rounded, and may exceed the exact
// ones.
constexpr double kDecodedBound = 0x1p127;

// Calls use(begin, factor, values, count) for the part of each row that lies in [first, first +
// count). `begin` counts from `first`, `factor` is the row's row of U, and `values` are V's values
// from the part's first column on.
template <typename Use>
void ForParts(std::span<const std::byte> payload, size_t first, size_t count, const Use& use) {
  const LowRankLayout layout = LayoutOfLowRank(payload);
  const RowGrid& grid = layout.grid;
  const std::byte* const u = payload.data() + LowRankLayout::UOffset();
  const std::byte* const v = payload.data() + layout.VOffset();
  size_t row = (first + grid.skip) / grid.row_elements;
  size_t column = (first + grid.skip) % grid.row_elements;
  for (size_t done = 0; done < count; ++row, column = 0) {
    const size_t part = std::min(count - done, grid.row_elements - column);
    use(done, u + 4 * layout.rank * row, v + 4 * column, part);
    done += part;
  }
}

void DecodeBy(ExpandFactors expand, std::span<const std::byte> payload, size_t first,
              std::span<float> dst) {
  const LowRankLayout layout = LayoutOfLowRank(payload);
  ForParts(payload, first, dst.size(),
           [&](size_t begin, const std::byte* u, const std::byte* v, size_t count) {
             expand(u, v, layout.rank, layout.grid.row_elements, count, dst.data() + begin);
           });
}

absl::Status CheckHeader(std::span<const std::byte> payload, size_t elements) {
  if (payload.size() < kLowRankHeaderBytes) {
    return absl::DataLossError(absl::StrCat("low-rank payload: expected at least ",
                                            kLowRankHeaderBytes, " bytes, got ", payload.size()));
  }
  if (const auto magic = Load<uint8_t>(payload, 0); magic != kLowRankMagic) {
    return Malformed("low-rank", "magic byte", absl::StrCat(kLowRankMagic), absl::StrCat(magic));
  }
  if (const auto flags = Load<uint32_t>(payload, 0) >> 8; flags != 0) {
    return Malformed("low-rank", "bytes 1 to 3", "0", absl::StrCat(flags));
  }
  const LowRankLayout layout = LayoutOfLowRank(payload);
  const RowGrid& grid = layout.grid;
  if (grid.elements != elements) {
    return Malformed("low-rank", "elements", absl::StrCat(elements), absl::StrCat(grid.elements));
  }
  if (grid.row_elements == 0 || grid.row_elements > kLongestRow) {
    return Malformed("low-rank", "elements of a row", absl::StrCat("1 to ", kLongestRow),
                     absl::StrCat(grid.row_elements));
  }
  if (grid.skip >= grid.row_elements) {
    return Malformed("low-rank", "skipped elements", absl::StrCat("less than ", grid.row_elements),
                     absl::StrCat(grid.skip));
  }
  if (const size_t limit = std::min(kMaxRank, grid.row_elements); layout.rank > limit) {
    return Malformed("low-rank", "rank", absl::StrCat("at most ", limit),
                     absl::StrCat(layout.rank));
  }
  return absl::OkStatus();
}

absl::Status CheckLength(const LowRankLayout& layout, size_t payload_bytes) {
  // Divides: the declared rank times the sizes could wrap.
  const size_t each = 4 * (layout.grid.rows() + layout.grid.row_elements);
  const size_t got = payload_bytes - kLowRankHeaderBytes;
  if (got % each == 0 && got / each == layout.rank) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("low-rank payload of rank ", layout.rank, ": expected ",
                                          each, " bytes for each of them and ", kLowRankHeaderBytes,
                                          ", got ", payload_bytes, " bytes in all"));
}

// Returns the largest magnitude of the floats in `bytes`; infinity if one is infinite or NaN.
float Largest(std::span<const std::byte> bytes) {
  // Copied in pieces, since a payload need not be aligned for floats.
  std::array<float, kBlockElements> values;
  float largest = 0;
  while (!bytes.empty()) {
    const size_t count = std::min(values.size(), bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), count * sizeof(float));
    largest = std::max(largest, BestKernels().raw.largest(values.data(), count));
    bytes = bytes.subspan(count * sizeof(float));
  }
  return largest;
}

}  // namespace

void BuildLowRankHeader(const LowRankLayout& layout, std::span<std::byte> payload) {
  Store(uint32_t{kLowRankMagic}, payload, 0);
  Store(static_cast<uint32_t>(layout.rank), payload, 4);
  Store(uint64_t{layout.grid.elements}, payload, 8);
  Store(uint64_t{layout.grid.row_elements}, payload, 16);
  Store(uint64_t{layout.grid.skip}, payload, 24);
}

LowRankLayout LayoutOfLowRank(std::span<const std::byte> payload) {
  return {.grid = {.elements = Load<uint64_t>(payload, 8),
                   .row_elements = Load<uint64_t>(payload, 16),
                   .skip = Load<uint64_t>(payload, 24)},
          .rank = Load<uint32_t>(payload, 4)};
}

absl::Status ValidateLowRank(std::span<const std::byte> payload, size_t elements) {
  SLIMPS_RETURN_IF_ERROR(CheckHeader(payload, elements));
  const LowRankLayout layout = LayoutOfLowRank(payload);
  SLIMPS_RETURN_IF_ERROR(CheckLength(layout, payload.size()));
  const double u = static_cast<double>(Largest(
      payload.subspan(LowRankLayout::UOffset(), layout.VOffset() - LowRankLayout::UOffset())));
  const double v = static_cast<double>(Largest(payload.subspan(layout.VOffset())));
  // Infinity times 0 is NaN, which is not below the bound either.
  if (layout.rank == 0 || static_cast<double>(layout.rank) * u * v < kDecodedBound) {
    return absl::OkStatus();
  }
  return Malformed("low-rank", "factors", "products that sum to less than 2^127",
                   absl::StrCat("numbers up to ", u, " and ", v, " at rank ", layout.rank));
}

void DecodeLowRank(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                   std::span<float> dst) {
  DecodeBy(kernels.factors.decode, payload, first, dst);
}

void DecodeAddLowRank(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                      std::span<float> dst) {
  DecodeBy(kernels.factors.add, payload, first, dst);
}

}  // namespace slimps
