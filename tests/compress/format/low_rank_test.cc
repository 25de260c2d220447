// SPDX-License-Identifier: Apache-2.0
#include "compress/format/low_rank.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/format/decode.h"
#include "compress/format/sum.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/format/low_rank_test_util.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr PayloadFormat kLowRank = PayloadFormat::kLowRank;

// Rows shorter and longer than a block, rows that the partition cuts, ranks from none on.
std::vector<LowRankLayout> Layouts() {
  std::vector<LowRankLayout> layouts;
  for (const size_t elements : {0, 1, 7, 4096, 4097, 3 * 4096 + 17}) {
    for (const size_t row : {1, 5, 37, 1000, 4096, 20000}) {
      for (const size_t skip : {size_t{0}, row / 2, row - 1}) {
        for (const size_t rank : {0, 1, 3, 5}) {
          if (rank > row) continue;
          layouts.push_back(
              {.grid = {.elements = elements, .row_elements = row, .skip = skip}, .rank = rank});
        }
      }
    }
  }
  return layouts;
}

std::string Name(const LowRankLayout& layout) {
  return absl::StrCat(layout.grid.elements, " elements in rows of ", layout.grid.row_elements, ", ",
                      layout.grid.skip, " before, rank ", layout.rank);
}

TEST(LowRank, DecodesToTheProductFromAnyBlockOnWithAnyKernels) {
  for (const LowRankLayout& layout : Layouts()) {
    const size_t n = layout.grid.elements;
    const std::vector<float> u = RandomFloats(layout.rank * layout.grid.rows(), n);
    const std::vector<float> v = RandomFloats(layout.rank * layout.grid.row_elements, n + 1);
    const std::vector<std::byte> payload = LowRankPayload(layout, u, v);
    ASSERT_TRUE(ValidatePayload(kLowRank, payload, n).ok())
        << Name(layout) << ValidatePayload(kLowRank, payload, n);
    ASSERT_EQ(LayoutOfLowRank(payload), layout);
    const std::vector<float> expected = Expanded(layout, u, v);
    for (size_t first = 0; first < n; first += kBlockElements) {
      for (const size_t count : {std::min(kBlockElements, n - first), n - first}) {
        const std::vector<float> wanted(expected.begin() + static_cast<long>(first),
                                        expected.begin() + static_cast<long>(first + count));
        for (const Kernels* kernels : AllKernels()) {
          if (!kernels->runs_here()) continue;
          std::vector<float> got(count, 7.0f), sum(count, 1.0f), wanted_sum(count, 1.0f);
          DecodeWith(*kernels, kLowRank, payload, n, first, got);
          ASSERT_EQ(Difference(got, wanted), "") << Name(layout) << " from " << first;
          DecodeAddWith(*kernels, kLowRank, payload, n, first, sum);
          for (size_t i = 0; i < count; ++i) wanted_sum[i] += wanted[i];
          ASSERT_EQ(Difference(sum, wanted_sum), "") << Name(layout) << " from " << first;
        }
      }
    }
  }
}

TEST(LowRank, PayloadsOfSeveralRanksAddUpWithOtherFormats) {
  const LowRankLayout one = {.grid = {.elements = 6000, .row_elements = 75, .skip = 20}, .rank = 1};
  LowRankLayout two = one;
  two.rank = 4;
  std::vector<std::vector<std::byte>> payloads;
  std::vector<float> expected(6000, 0.0f);
  for (const LowRankLayout& layout : {one, two}) {
    const std::vector<float> u = RandomFloats(layout.rank * layout.grid.rows(), layout.rank);
    const std::vector<float> v = RandomFloats(layout.rank * 75, layout.rank + 1);
    payloads.push_back(LowRankPayload(layout, u, v));
    const std::vector<float> dense = Expanded(layout, u, v);
    for (size_t i = 0; i < dense.size(); ++i) expected[i] += dense[i];
  }
  const std::vector<float> raw = RandomFloats(6000, 9);
  for (size_t i = 0; i < raw.size(); ++i) expected[i] += raw[i];
  const std::vector<PayloadView> views = {{kLowRank, payloads[0]},
                                          {kLowRank, payloads[1]},
                                          {PayloadFormat::kRawF32, std::as_bytes(std::span(raw))}};
  std::vector<float> sum(6000);
  SumPayloads(views, 6000, 0, sum);
  EXPECT_EQ(Difference(sum, expected), "");
}

TEST(LowRank, TheHeadersExampleIsTrue) {
  const std::vector<std::byte> example = BytesFromHex(
      "BB000000 01000000 0400000000000000 0300000000000000 0100000000000000"
      "0000803F 000080BF 0000803F 00000040 00004040");
  ASSERT_EQ(example.size(), 52u);
  const LowRankLayout layout = {.grid = {.elements = 4, .row_elements = 3, .skip = 1}, .rank = 1};
  EXPECT_EQ(LowRankPayload(layout, {1, -1}, {1, 2, 3}), example);
  ASSERT_TRUE(ValidatePayload(kLowRank, example, 4).ok());
  std::vector<float> out(4);
  Decode(kLowRank, example, 4, 0, out);
  EXPECT_EQ(out, (std::vector<float>{2, 3, -1, -2}));
}

// A valid payload of rank 2: 4 rows, of which the first and the last are cut. Each test overwrites
// one field.
class BadLowRank : public ::testing::Test {
 protected:
  static constexpr LowRankLayout kLayout = {.grid = {.elements = 10, .row_elements = 3, .skip = 1},
                                            .rank = 2};

  template <typename T>
  std::string Refusal(size_t offset, T value,
                      absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    std::vector<std::byte> payload = valid_;
    std::memcpy(payload.data() + offset, &value, sizeof value);
    return Refusal(payload, code);
  }
  std::string Refusal(const std::vector<std::byte>& payload, absl::StatusCode code) {
    const absl::Status status = ValidatePayload(kLowRank, payload, kLayout.grid.elements);
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  const std::vector<std::byte> valid_ =
      LowRankPayload(kLayout, std::vector<float>(8, 1.0f), std::vector<float>(6, 2.0f));
};

TEST_F(BadLowRank, FieldsThatAreNotTrueAreRefusedByName) {
  ASSERT_TRUE(ValidatePayload(kLowRank, valid_, kLayout.grid.elements).ok());
  EXPECT_THAT(Refusal(0, uint8_t{0xBA}), HasSubstr("magic byte: expected 187, got 186"));
  EXPECT_THAT(Refusal(2, uint8_t{1}), HasSubstr("bytes 1 to 3: expected 0"));
  EXPECT_THAT(Refusal(4, uint32_t{4}), HasSubstr("rank: expected at most 3, got 4"));
  EXPECT_THAT(Refusal(8, uint64_t{11}), HasSubstr("elements: expected 10, got 11"));
  EXPECT_THAT(Refusal(16, uint64_t{0}), HasSubstr("elements of a row: expected 1 to"));
  EXPECT_THAT(Refusal(16, ~uint64_t{0}), HasSubstr("elements of a row: expected 1 to"));
  EXPECT_THAT(Refusal(24, uint64_t{3}), HasSubstr("skipped elements: expected less than 3, got 3"));
  EXPECT_THAT(Refusal(24, ~uint64_t{0}), HasSubstr("skipped elements"));
}

TEST_F(BadLowRank, SizesThatDisagreeWithTheLengthAreRefused) {
  constexpr absl::StatusCode kLength = absl::StatusCode::kDataLoss;
  EXPECT_THAT(Refusal(4, uint32_t{3}, kLength), HasSubstr("rank 3: expected 28 bytes for each"));
  EXPECT_THAT(Refusal(4, uint32_t{0}, kLength), HasSubstr("rank 0"));
  Refusal(16, uint64_t{5}, kLength);
  Refusal(16, uint64_t{1} << 32, kLength);
  for (size_t size = 0; size < valid_.size(); ++size) {
    Refusal({valid_.begin(), valid_.begin() + static_cast<int64_t>(size)}, kLength);
  }
  std::vector<std::byte> longer = valid_;
  longer.push_back(std::byte{0});
  EXPECT_THAT(Refusal(longer, kLength), HasSubstr("got 89 bytes in all"));
}

TEST_F(BadLowRank, AHugeRankIsRefused) {
  // 2^32 elements of a row: any rank fits a row.
  std::vector<std::byte> payload = valid_;
  const uint64_t row = uint64_t{1} << 32;
  std::memcpy(payload.data() + 16, &row, sizeof row);
  for (const uint32_t rank : {uint32_t{1025}, ~uint32_t{0}}) {
    std::memcpy(payload.data() + 4, &rank, sizeof rank);
    EXPECT_THAT(Refusal(payload, absl::StatusCode::kInvalidArgument),
                HasSubstr("rank: expected at most 1024, got"));
  }
  const uint32_t taken = 1024;
  std::memcpy(payload.data() + 4, &taken, sizeof taken);
  Refusal(payload, absl::StatusCode::kDataLoss);
}

TEST_F(BadLowRank, FactorsMustDecodeToFiniteNumbers) {
  constexpr size_t kU = 32, kV = 32 + 8 * 4;
  for (const size_t at : {kU, kV, valid_.size() - 4}) {
    EXPECT_THAT(Refusal(at, std::numeric_limits<float>::quiet_NaN()), HasSubstr("factors"));
    EXPECT_THAT(Refusal(at, -std::numeric_limits<float>::infinity()), HasSubstr("factors"));
  }
  EXPECT_THAT(Refusal(kU, 0x1p125f), HasSubstr("less than 2^127")) << "2 * 2^125 * 2";
  std::vector<std::byte> payload = valid_;
  const float large = 0x1.fffffep124f;
  std::memcpy(payload.data() + kU, &large, sizeof large);
  EXPECT_TRUE(ValidatePayload(kLowRank, payload, kLayout.grid.elements).ok());
  std::vector<float> out(10);
  Decode(kLowRank, payload, 10, 0, out);
  EXPECT_TRUE(std::ranges::all_of(out, [](float x) { return std::isfinite(x); }));
}

}  // namespace
}  // namespace slimps
