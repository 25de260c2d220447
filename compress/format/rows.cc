// SPDX-License-Identifier: Apache-2.0
#include "compress/format/rows.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compress/format/bytes.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Finds the parts of a payload. REQUIRES: the payload has a header.
class Reader final {
 public:
  explicit Reader(std::span<const std::byte> payload)
      : payload_(payload),
        count_(Load<uint32_t>(payload, 4)),
        grid_{.elements = Load<uint64_t>(payload, 8),
              .row_elements = Load<uint64_t>(payload, 16),
              .skip = Load<uint64_t>(payload, 24)} {}

  size_t count() const { return count_; }
  const RowGrid& grid() const { return grid_; }
  size_t Row(size_t i) const { return Load<uint32_t>(payload_, kRowsHeaderBytes + 4 * i); }
  size_t ValuesOffset() const { return kRowsHeaderBytes + 4 * count_; }

  // Returns the values of the i-th row sent. Of the rows before it only row 0 can be cut: it lacks
  // `skip` elements.
  const std::byte* Values(size_t i) const {
    const size_t short_of = i > 0 && Row(0) == 0 ? grid_.skip : 0;
    return payload_.data() + ValuesOffset() + 4 * (i * grid_.row_elements - short_of);
  }

  // Returns the index among the rows sent of the first whose number is `row` or higher.
  size_t Find(size_t row) const {
    size_t low = 0, high = count_;
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (Row(middle) < row) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

 private:
  const std::span<const std::byte> payload_;
  const size_t count_;
  const RowGrid grid_;
};

// Calls use(begin, values, count) for the part of each row sent that lies in [first, first +
// count). `begin` counts from `first`.
template <typename Use>
void ForParts(std::span<const std::byte> payload, size_t first, size_t count, const Use& use) {
  if (count == 0) return;
  const Reader reader(payload);
  const RowGrid& grid = reader.grid();
  const size_t last = first + count;
  for (size_t i = reader.Find((first + grid.skip) / grid.row_elements); i < reader.count(); ++i) {
    const size_t row = reader.Row(i), begin = grid.Begin(row);
    if (begin >= last) return;
    const size_t from = std::max(begin, first), to = std::min(grid.End(row), last);
    use(from - first, reader.Values(i) + 4 * (from - begin), to - from);
  }
}

absl::Status CheckHeader(std::span<const std::byte> payload, size_t elements) {
  if (payload.size() < kRowsHeaderBytes) {
    return absl::DataLossError(absl::StrCat("rows payload: expected at least ", kRowsHeaderBytes,
                                            " bytes, got ", payload.size()));
  }
  if (const auto magic = Load<uint8_t>(payload, 0); magic != kRowsMagic) {
    return Malformed("rows", "magic byte", absl::StrCat(kRowsMagic), absl::StrCat(magic));
  }
  if (const auto flags = Load<uint32_t>(payload, 0) >> 8; flags != 0) {
    return Malformed("rows", "bytes 1 to 3", "0", absl::StrCat(flags));
  }
  const Reader reader(payload);
  const RowGrid& grid = reader.grid();
  if (grid.elements != elements) {
    return Malformed("rows", "elements", absl::StrCat(elements), absl::StrCat(grid.elements));
  }
  if (grid.row_elements == 0 || grid.row_elements > kLongestRow) {
    return Malformed("rows", "elements of a row", absl::StrCat("1 to ", kLongestRow),
                     absl::StrCat(grid.row_elements));
  }
  if (grid.skip >= grid.row_elements) {
    return Malformed("rows", "skipped elements", absl::StrCat("less than ", grid.row_elements),
                     absl::StrCat(grid.skip));
  }
  if (reader.count() > grid.rows()) {
    return Malformed("rows", "rows", absl::StrCat("at most ", grid.rows()),
                     absl::StrCat(reader.count()));
  }
  return absl::OkStatus();
}

absl::Status CheckLength(std::span<const std::byte> payload, size_t expected) {
  if (payload.size() == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("rows payload of ", Reader(payload).count(),
                                          " rows: expected ", expected, " bytes, got ",
                                          payload.size()));
}

absl::Status CheckRowNumbers(const Reader& reader) {
  size_t next = 0;
  for (size_t i = 0; i < reader.count(); ++i) {
    const size_t row = reader.Row(i);
    if (row < next || row >= reader.grid().rows()) {
      return Malformed("rows", absl::StrCat("row number ", i),
                       absl::StrCat("rising ones under ", reader.grid().rows()), absl::StrCat(row));
    }
    next = row + 1;
  }
  return absl::OkStatus();
}

absl::Status CheckValues(std::span<const std::byte> bytes) {
  // Copied in pieces, since a payload need not be aligned for floats.
  std::array<float, kBlockElements> values;
  while (!bytes.empty()) {
    const size_t count = std::min(values.size(), bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), count * sizeof(float));
    if (!BestKernels().sparse.finite(values.data(), count)) {
      return Malformed("rows", "values", "finite numbers", "NaN or infinity");
    }
    bytes = bytes.subspan(count * sizeof(float));
  }
  return absl::OkStatus();
}

}  // namespace

size_t ElementsOfRows(const RowGrid& grid, std::span<const uint32_t> rows) {
  if (rows.empty()) return 0;
  // Only the first and the last row of a partition can be cut.
  const size_t whole = rows.size() * grid.row_elements;
  const size_t past_end = (rows.back() + size_t{1}) * grid.row_elements - grid.skip;
  return whole - (rows.front() == 0 ? grid.skip : 0) -
         (past_end > grid.elements ? past_end - grid.elements : 0);
}

size_t RowsPayloadBytes(const RowGrid& grid, std::span<const uint32_t> rows) {
  return kRowsHeaderBytes + 4 * rows.size() + 4 * ElementsOfRows(grid, rows);
}

size_t BuildRowsHeader(const RowGrid& grid, std::span<const uint32_t> rows,
                       std::span<std::byte> payload) {
  Store(uint32_t{kRowsMagic}, payload, 0);
  Store(static_cast<uint32_t>(rows.size()), payload, 4);
  Store(uint64_t{grid.elements}, payload, 8);
  Store(uint64_t{grid.row_elements}, payload, 16);
  Store(uint64_t{grid.skip}, payload, 24);
  if (!rows.empty()) {
    std::memcpy(payload.data() + kRowsHeaderBytes, rows.data(), rows.size_bytes());
  }
  return kRowsHeaderBytes + rows.size_bytes();
}

absl::Status ValidateRows(std::span<const std::byte> payload, size_t elements) {
  SLIMPS_RETURN_IF_ERROR(CheckHeader(payload, elements));
  const Reader reader(payload);
  if (payload.size() < reader.ValuesOffset()) {
    return CheckLength(payload, reader.ValuesOffset());
  }
  // Row numbers decide how long the values are, so they are checked first.
  SLIMPS_RETURN_IF_ERROR(CheckRowNumbers(reader));
  size_t values = 0;
  for (size_t i = 0; i < reader.count(); ++i) {
    values += reader.grid().End(reader.Row(i)) - reader.grid().Begin(reader.Row(i));
  }
  const size_t expected = reader.ValuesOffset() + 4 * values;
  SLIMPS_RETURN_IF_ERROR(CheckLength(payload, expected));
  return CheckValues(payload.subspan(reader.ValuesOffset()));
}

RowGrid GridOfRows(std::span<const std::byte> payload) { return Reader(payload).grid(); }

std::vector<uint32_t> RowsSent(std::span<const std::byte> payload) {
  std::vector<uint32_t> rows(Reader(payload).count());
  if (!rows.empty()) {
    std::memcpy(rows.data(), payload.data() + kRowsHeaderBytes, rows.size() * sizeof(uint32_t));
  }
  return rows;
}

size_t ElementsInRows(std::span<const std::byte> payload) {
  return (payload.size() - Reader(payload).ValuesOffset()) / sizeof(float);
}

bool MarkRows(std::span<const std::byte> payload, size_t first, std::span<uint8_t> touched) {
  bool any = false;
  ForParts(payload, first, touched.size(), [&](size_t begin, const std::byte*, size_t count) {
    std::fill_n(touched.data() + begin, count, uint8_t{1});
    any = true;
  });
  return any;
}

void DecodeRows(std::span<const std::byte> payload, size_t first, std::span<float> dst) {
  std::ranges::fill(dst, 0.0f);
  ForParts(payload, first, dst.size(), [&](size_t begin, const std::byte* values, size_t count) {
    std::memcpy(dst.data() + begin, values, count * sizeof(float));
  });
}

void DecodeAddRows(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                   std::span<float> dst) {
  ForParts(payload, first, dst.size(), [&](size_t begin, const std::byte* values, size_t count) {
    kernels.raw.add_f32(values, count, dst.data() + begin);
  });
}

}  // namespace slimps
