// SPDX-License-Identifier: Apache-2.0
#include "compress/format/rows.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/format/decode.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/format/rows_test_util.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr PayloadFormat kRows = PayloadFormat::kRows;

// Rows of single elements, rows shorter and longer than a block, rows that begin before the
// partition.
std::vector<RowGrid> Grids() {
  std::vector<RowGrid> grids = {{.elements = 0, .row_elements = 3, .skip = 0}};
  for (const size_t elements : {1, 7, 4096, 4097, 3 * 4096 + 17}) {
    for (const size_t row : {1, 5, 1000, 4096, 20000}) {
      for (const size_t skip : {size_t{0}, size_t{1}, row / 2, row - 1}) {
        if (skip < row) grids.push_back({.elements = elements, .row_elements = row, .skip = skip});
      }
    }
  }
  return grids;
}

std::string Name(const RowGrid& grid) {
  return absl::StrCat(grid.elements, " elements in rows of ", grid.row_elements, ", ", grid.skip,
                      " before");
}

// Returns `dense` with zeros in all rows that are not in `rows`. Does not use the layout.
std::vector<float> Masked(const RowGrid& grid, const std::vector<uint32_t>& rows,
                          std::vector<float> dense) {
  const std::vector<uint8_t> in = InRows(grid, rows);
  for (size_t i = 0; i < dense.size(); ++i) {
    if (in[i] == 0) dense[i] = 0;
  }
  return dense;
}

TEST(Rows, EveryElementIsOfOneRowAndTheLastRowIsTheLast) {
  for (const RowGrid& grid : Grids()) {
    size_t next = 0;
    for (size_t row = 0; row < grid.rows(); ++row) {
      ASSERT_EQ(grid.Begin(row), next) << Name(grid);
      ASSERT_GT(grid.End(row), next) << Name(grid);
      ASSERT_EQ((next + grid.skip) / grid.row_elements, row) << Name(grid);
      next = grid.End(row);
    }
    EXPECT_EQ(next, grid.elements) << Name(grid);
  }
}

TEST(Rows, DecodeToTheRowsSentAndZeroFromAnyBlockOnWithAnyKernels) {
  for (const RowGrid& grid : Grids()) {
    for (const double density : {0.0, 0.3, 1.0}) {
      const std::vector<uint32_t> rows = SomeRows(grid, density, grid.elements + grid.skip);
      const std::vector<float> dense = AwkwardFloats(grid.elements, grid.row_elements);
      const std::vector<std::byte> payload = RowsPayload(grid, rows, dense);
      ASSERT_TRUE(ValidatePayload(kRows, payload, grid.elements).ok())
          << Name(grid) << ValidatePayload(kRows, payload, grid.elements);
      ASSERT_EQ(GridOfRows(payload), grid);
      const std::vector<float> expected = Masked(grid, rows, dense);
      const std::vector<uint8_t> in = InRows(grid, rows);
      ASSERT_EQ(ElementsInRows(payload), static_cast<size_t>(std::ranges::count(in, 1)));
      for (size_t first = 0; first < grid.elements; first += kBlockElements) {
        for (const size_t n :
             {std::min(kBlockElements, grid.elements - first), grid.elements - first}) {
          const std::vector<float> wanted(expected.begin() + first, expected.begin() + first + n);
          std::vector<uint8_t> marks(n, 0);
          const bool any = MarkRows(payload, first, marks);
          EXPECT_TRUE(std::equal(marks.begin(), marks.end(), in.begin() + first)) << Name(grid);
          EXPECT_EQ(any, std::ranges::count(marks, 1) > 0) << Name(grid);
          for (const Kernels* kernels : AllKernels()) {
            if (!kernels->runs_here()) continue;
            std::vector<float> got(n, 7.0f), sum(n, 1.0f), wanted_sum(n, 1.0f);
            DecodeWith(*kernels, kRows, payload, grid.elements, first, got);
            ASSERT_EQ(Difference(got, wanted), "") << Name(grid) << " from " << first;
            DecodeAddWith(*kernels, kRows, payload, grid.elements, first, sum);
            for (size_t i = 0; i < n; ++i) wanted_sum[i] += wanted[i];
            ASSERT_EQ(Difference(sum, wanted_sum), "") << Name(grid) << " from " << first;
          }
        }
      }
    }
  }
}

std::vector<std::byte> Bytes(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

TEST(Rows, TheHeadersExampleIsTrue) {
  const std::string example(
      "\xBA\0\0\0\x02\0\0\0\x05\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"
      "\0\0\0\0\x02\0\0\0\0\0\0\x3f\0\0\0\x40\0\0\x80\x40",
      52);
  const RowGrid grid = {.elements = 5, .row_elements = 2, .skip = 1};
  EXPECT_EQ(RowsPayload(grid, {0, 2}, {0.5f, 0, 0, 2, 4}), Bytes(example));
  std::vector<float> out(5);
  Decode(kRows, Bytes(example), 5, 0, out);
  EXPECT_EQ(out, (std::vector<float>{0.5f, 0, 0, 2, 4}));
}

TEST(Rows, ARowHasTheElementsThatOneIndexOfTheFirstDimensionNames) {
  EXPECT_EQ(ElementsOfRow(std::vector<int64_t>{7, 3, 4}), 12u);
  EXPECT_EQ(ElementsOfRow(std::vector<int64_t>{7}), 1u);
  EXPECT_EQ(ElementsOfRow({}), 1u);
  EXPECT_EQ(ElementsOfRow(std::vector<int64_t>{7, 0}), 1u);
  EXPECT_EQ(RowGrid::At(/*offset=*/25, /*elements=*/4, /*row_elements=*/12),
            (RowGrid{.elements = 4, .row_elements = 12, .skip = 1}));
}

// A valid payload of rows 0, 2 and 3. Each test overwrites one field.
class BadRows : public ::testing::Test {
 protected:
  static constexpr RowGrid kGrid = {.elements = 10, .row_elements = 3, .skip = 1};

  template <typename T>
  std::string Refusal(size_t offset, T value) {
    std::vector<std::byte> payload = valid_;
    std::memcpy(payload.data() + offset, &value, sizeof value);
    return Refusal(payload, absl::StatusCode::kInvalidArgument);
  }
  std::string Refusal(const std::vector<std::byte>& payload, absl::StatusCode code) {
    const absl::Status status = ValidatePayload(kRows, payload, kGrid.elements);
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  const std::vector<std::byte> valid_ =
      RowsPayload(kGrid, {0, 2, 3}, std::vector<float>(kGrid.elements, 1.0f));
};

TEST_F(BadRows, FieldsThatAreNotTrueAreRefusedByName) {
  ASSERT_TRUE(ValidatePayload(kRows, valid_, kGrid.elements).ok());
  EXPECT_THAT(Refusal(0, uint8_t{0xB8}), HasSubstr("magic byte: expected 186, got 184"));
  EXPECT_THAT(Refusal(2, uint8_t{1}), HasSubstr("bytes 1 to 3: expected 0"));
  EXPECT_THAT(Refusal(4, uint32_t{5}), HasSubstr("rows: expected at most 4, got 5"));
  EXPECT_THAT(Refusal(8, uint64_t{11}), HasSubstr("elements: expected 10, got 11"));
  EXPECT_THAT(Refusal(16, uint64_t{0}), HasSubstr("elements of a row: expected 1 to"));
  EXPECT_THAT(Refusal(16, ~uint64_t{0}), HasSubstr("elements of a row: expected 1 to"));
  EXPECT_THAT(Refusal(24, uint64_t{3}), HasSubstr("skipped elements: expected less than 3, got 3"));
  EXPECT_THAT(Refusal(24, ~uint64_t{0}), HasSubstr("skipped elements"));
}

TEST_F(BadRows, RowNumbersMustRiseAndLieInThePartition) {
  EXPECT_THAT(Refusal(36, uint32_t{0}), HasSubstr("row number 1: expected rising ones under 4"));
  EXPECT_THAT(Refusal(40, uint32_t{4}), HasSubstr("row number 2: expected rising ones under 4"));
  EXPECT_THAT(Refusal(40, ~uint32_t{0}), HasSubstr("got 4294967295"));
}

TEST_F(BadRows, ValuesMustBeFinite) {
  EXPECT_THAT(Refusal(44, std::numeric_limits<float>::quiet_NaN()), HasSubstr("finite"));
  EXPECT_THAT(Refusal(valid_.size() - 4, std::numeric_limits<float>::infinity()),
              HasSubstr("finite"));
}

TEST_F(BadRows, EveryOtherLengthIsRefused) {
  for (size_t size = 0; size < valid_.size(); ++size) {
    Refusal({valid_.begin(), valid_.begin() + static_cast<int64_t>(size)},
            absl::StatusCode::kDataLoss);
  }
  std::vector<std::byte> longer = valid_;
  longer.push_back(std::byte{0});
  EXPECT_THAT(Refusal(longer, absl::StatusCode::kDataLoss), HasSubstr("expected 72 bytes, got 73"));
}

}  // namespace
}  // namespace slimps
