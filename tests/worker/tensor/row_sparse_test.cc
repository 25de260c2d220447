// SPDX-License-Identifier: Apache-2.0
#include "worker/tensor/row_sparse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "compress/format/format.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TensorPlan Plan(std::vector<int64_t> shape, size_t partition_elements) {
  TensorPlan plan{.key = Key("w"), .elements = 1};
  for (const int64_t extent : shape) {
    plan.info.add_shape(extent);
    plan.elements *= static_cast<size_t>(extent);
  }
  for (size_t offset = 0; offset < plan.elements; offset += partition_elements) {
    plan.partitions.push_back(
        {.offset = offset, .elements = std::min(partition_elements, plan.elements - offset)});
  }
  return plan;
}

template <typename T>
std::string Refusal(const absl::StatusOr<T>& result) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
  return std::string(result.status().message());
}

TEST(SumByRow, RowsAreSortedAndRepeatedOnesAddUpTimesTheScale) {
  const TensorPlan plan = Plan({5, 2}, 100);
  const std::vector<int64_t> rows = {4, 1, 4, 0};
  const auto sums = SumByRow(plan, rows, std::vector<float>{1, 2, 3, 4, 10, 20, 5, 6}, 2);
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_THAT(sums->rows, ElementsAre(0, 1, 4));
  EXPECT_THAT(sums->values, ElementsAre(10, 12, 6, 8, 22, 44));
}

TEST(SumByRow, RepeatedRowsAreAddedInTheOrderGiven) {
  const TensorPlan plan = Plan({2}, 100);
  // 2^24 + 1 + 1 is 2^24 if the ones are added one by one, and 2^24 + 2 if they are added first.
  EXPECT_THAT(
      SumByRow(plan, std::vector<int64_t>{1, 1, 1}, std::vector<float>{0x1p24f, 1, 1}, 1)->values,
      ElementsAre(0x1p24f));
  EXPECT_THAT(
      SumByRow(plan, std::vector<int64_t>{1, 1, 1}, std::vector<float>{1, 1, 0x1p24f}, 1)->values,
      ElementsAre(0x1p24f + 2));
}

TEST(SumByRow, NoRowsAndATensorOfOneElementAreFine) {
  EXPECT_THAT(SumByRow(Plan({5, 2}, 100), {}, {}, 1)->rows, IsEmpty());
  EXPECT_THAT(SumByRow(Plan({}, 100), std::vector<int64_t>{0}, std::vector<float>{3}, 1)->values,
              ElementsAre(3));
}

TEST(SumByRow, WrongRowsLengthsAndValuesAreRefusedByKeyAndRow) {
  const TensorPlan plan = Plan({5, 2}, 100);
  const auto refusal = [&](std::vector<int64_t> rows, std::vector<float> values, float scale = 1) {
    return Refusal(SumByRow(plan, rows, values, scale));
  };
  EXPECT_THAT(refusal({1, 5}, {1, 2, 3, 4}),
              HasSubstr("push of rows of key s:w: expected rows 0 to below 5, got row 5"));
  EXPECT_THAT(refusal({-1}, {1, 2}), HasSubstr("got row -1"));
  EXPECT_THAT(refusal({std::numeric_limits<int64_t>::min()}, {1, 2}), HasSubstr("got row -92"));
  EXPECT_THAT(refusal({1, 2}, {1, 2, 3}),
              HasSubstr("key s:w: expected 2 values for each of 2 rows, got 3"));
  EXPECT_THAT(refusal({1}, {1, 2, 3, 4}), HasSubstr("each of 1 rows, got 4"));
  EXPECT_THAT(refusal({}, {1}), HasSubstr("each of 0 rows, got 1"));
  EXPECT_THAT(refusal({3, 2}, {1, 2, 3, std::nanf("")}),
              HasSubstr("key s:w: element 1 of row 2 is nan; expected finite"));
  EXPECT_THAT(refusal({2, 2}, {3e38f, 0, 3e38f, 0}),
              HasSubstr("element 0 of row 2 is inf, summed"));
  EXPECT_THAT(refusal({2}, {3e38f, 0}, 2), HasSubstr("times the gradient's scale"));
}

// For any cut into partitions, payloads decode to the pushed rows, and requests return the rows as
// they are.
TEST(RowSparse, PushedAndPulledRowsAreTheTensorsWhateverThePartitions) {
  std::mt19937_64 random(1);
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{40}, {17, 3}, {9, 2, 5}, {3, 100}, {1, 64}}) {
    for (const size_t partition_elements : {size_t{1}, size_t{7}, size_t{30}, size_t{1000}}) {
      const TensorPlan plan = Plan(shape, partition_elements);
      const size_t length = RowElements(plan);
      std::vector<int64_t> rows;
      for (size_t row = 0; row < RowCount(plan); ++row) {
        if (random() % 2 == 0) rows.push_back(static_cast<int64_t>(row));
      }
      std::vector<float> values(rows.size() * length), dense(plan.elements, 0.0f);
      std::iota(values.begin(), values.end(), 1.0f);
      for (size_t i = 0; i < values.size(); ++i) {
        dense[static_cast<size_t>(rows[i / length]) * length + i % length] = values[i];
      }
      const auto payloads = MakeRowPayloads(plan, {.rows = rows, .values = values});
      ASSERT_TRUE(payloads.ok()) << payloads.status();
      ASSERT_EQ(payloads->size(), plan.partitions.size());
      std::vector<float> decoded(plan.elements, -1.0f);
      for (size_t i = 0; i < payloads->size(); ++i) {
        const PartitionPlan& partition = plan.partitions[i];
        const auto bytes = (*payloads)[i].bytes();
        ASSERT_TRUE(ValidatePayload(PayloadFormat::kRows, bytes, partition.elements).ok());
        EXPECT_EQ(GridOfRows(bytes), RowGrid::At(partition.offset, partition.elements, length));
        Decode(PayloadFormat::kRows, bytes, partition.elements, 0,
               std::span(decoded).subspan(partition.offset, partition.elements));
      }
      EXPECT_EQ(decoded, dense);

      // The cut of the requests must not matter either.
      for (const size_t max_elements : {size_t{1}, size_t{10}, size_t{1} << 20}) {
        std::vector<float> pulled(values.size(), -1.0f);
        for (const RowRequest& request : PlanRowRequests(plan, rows, max_elements)) {
          const PartitionPlan& partition = plan.partitions[request.partition];
          const RowGrid grid = RowGrid::At(partition.offset, partition.elements, length);
          std::vector<float> parts;
          for (const uint32_t row : request.rows) {
            const float* const here = dense.data() + partition.offset;
            parts.insert(parts.end(), here + grid.Begin(row), here + grid.End(row));
          }
          ASSERT_EQ(parts.size(), request.elements);
          EXPECT_TRUE(request.rows.size() == 1 || request.elements <= max_elements);
          PlaceRowParts(plan, request, std::as_bytes(std::span<const float>(parts)), rows, pulled);
        }
        EXPECT_EQ(pulled, values);
      }
    }
  }
}

TEST(RowSparse, ARequestNamesAtMostAsManyRowsAsTheWireAllows) {
  constexpr size_t kRows = 150000;
  const TensorPlan plan = Plan({kRows}, 1 << 20);
  std::vector<int64_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  const std::vector<RowRequest> requests = PlanRowRequests(plan, rows);
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].RowBytes().size(), size_t{256} << 10);
  EXPECT_EQ(requests[1].rows.front(), 65536u);
  EXPECT_EQ(requests[2].rows.size(), kRows - 2 * 65536u);
}

TEST(RowSparse, WithoutRowsEveryPartitionIsAskedForNone) {
  const std::vector<RowRequest> requests = PlanRowRequests(Plan({10, 2}, 6), {});
  ASSERT_EQ(requests.size(), 4u);
  for (const RowRequest& request : requests) EXPECT_THAT(request.rows, IsEmpty());
}

TEST(RowSparse, APayloadThatNoMessageCarriesIsRefused) {
  const TensorPlan plan = Plan({20 << 20}, 20 << 20);
  SummedRows sums;
  sums.rows.resize(10 << 20);
  std::iota(sums.rows.begin(), sums.rows.end(), 0);
  sums.values.resize(sums.rows.size());
  EXPECT_THAT(
      Refusal(MakeRowPayloads(plan, sums)),
      HasSubstr("key s:w partition 0: 10485760 rows take 83886112 bytes, at most 66060288"));
}

TEST(UniqueRows, AreSortedAndEachOnce) {
  const TensorPlan plan = Plan({5, 2}, 100);
  EXPECT_THAT(*UniqueRows(plan, std::vector<int64_t>{4, 0, 4, 2, 0}), ElementsAre(0, 2, 4));
  EXPECT_THAT(*UniqueRows(plan, {}), IsEmpty());
  EXPECT_THAT(Refusal(UniqueRows(plan, std::vector<int64_t>{0, 5})),
              HasSubstr("pull of rows of key s:w: expected rows 0 to below 5, got row 5"));
}

}  // namespace
}  // namespace slimps
