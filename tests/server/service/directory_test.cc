// SPDX-License-Identifier: Apache-2.0
#include "server/service/directory.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

wire::InitItem MakeInitItem(const std::string& name, uint64_t elements) {
  Message message;
  AddInit(&message, {.name = name, .values = std::vector<float>(elements)});
  return message.header.init().items(0);
}

TEST(Directory, PartitionsGoToTheShardWithLeastBytes) {
  Directory directory(2, {});
  PartitionSpec spec;
  EXPECT_EQ(directory.Declare(MakeInitItem("a", 100), &spec).value(), 0);
  EXPECT_EQ(directory.Declare(MakeInitItem("b", 10), &spec).value(), 1);
  EXPECT_EQ(directory.Declare(MakeInitItem("c", 80), &spec).value(), 1);
  EXPECT_EQ(directory.Declare(MakeInitItem("d", 5), &spec).value(), 1);
  EXPECT_EQ(directory.Declare(MakeInitItem("e", 50), &spec).value(), 1);
  EXPECT_EQ(directory.Declare(MakeInitItem("f", 1), &spec).value(), 0);
  EXPECT_EQ(directory.Declare(MakeInitItem("a", 100), &spec).value(),
            0);  // the same shard as before
  EXPECT_EQ(spec.name, "s:a");
}

TEST(Directory, InitGoesWhereAPullHasReservedItsPlace) {
  Directory directory(2, {});
  PartitionSpec spec;
  const PartitionId id{.key = Key("a").id()};
  EXPECT_EQ(directory.FindShard(id), std::nullopt);
  const size_t shard = directory.Reserve(id, 10).value();
  EXPECT_EQ(directory.Reserve({.key = 1}, 5).value(), 1 - shard);
  EXPECT_EQ(directory.Declare(MakeInitItem("a", 10), &spec).value(), shard);
}

TEST(Directory, LimitsAreKept) {
  Directory directory(1, {.max_partition_elements = 10,
                          .max_partitions = 3,
                          .max_weight_bytes = 60,
                          .max_reserved = 2});
  PartitionSpec spec;
  EXPECT_EQ(directory.Declare(MakeInitItem("a", 11), &spec).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(directory.Declare(MakeInitItem("a", 10), &spec).ok());
  EXPECT_EQ(directory.Declare(MakeInitItem("b", 10), &spec).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(directory.Declare(MakeInitItem("b", 1), &spec).ok());
  EXPECT_TRUE(directory.Declare(MakeInitItem("c", 1), &spec).ok());
  EXPECT_EQ(directory.Declare(MakeInitItem("d", 1), &spec).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(directory.Reserve({.key = 1}, 11).ok());
  EXPECT_TRUE(directory.Reserve({.key = 1}, 1).ok());
  EXPECT_TRUE(directory.Reserve({.key = 2}, 1).ok());
  EXPECT_EQ(directory.Reserve({.key = 3}, 1).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Directory, ItemsThatMakeNoSenseAreRefused) {
  const auto refused = [](const wire::InitItem& item) {
    Directory directory(1, {});
    PartitionSpec spec;
    return directory.Declare(item, &spec).status().code() == absl::StatusCode::kInvalidArgument;
  };
  wire::InitItem item = MakeInitItem("a", 4);
  item.mutable_info()->set_name("s:b");
  EXPECT_TRUE(refused(item));
  item = MakeInitItem("a", 4);
  item.set_offset(1);
  EXPECT_TRUE(refused(item));
  item.set_offset(~uint64_t{0});
  EXPECT_TRUE(refused(item));
  item = MakeInitItem("a", 4);
  item.mutable_info()->add_shape(-1);
  EXPECT_TRUE(refused(item));
  item = MakeInitItem("a", 4);
  for (int i = 0; i < 4; ++i) item.mutable_info()->add_shape(int64_t{1} << 40);
  EXPECT_TRUE(refused(item));
  item = MakeInitItem("a", 4);
  item.mutable_id()->set_partition(1);
  EXPECT_TRUE(refused(item));
  item = MakeInitItem("a", 4);
  item.mutable_info()->set_dtype(static_cast<wire::DType>(9));
  EXPECT_TRUE(refused(item));
  item = MakeInitItem("a", 4);
  item.set_combine(static_cast<wire::Combine>(9));
  EXPECT_TRUE(refused(item));
  EXPECT_FALSE(refused(MakeInitItem("a", 4)));
}

TEST(Directory, AKeyDeclaredOtherwiseIsRefused) {
  Directory directory(1, {});
  PartitionSpec spec;
  ASSERT_TRUE(directory.Declare(MakeInitItem("a", 4), &spec).ok());
  EXPECT_EQ(directory.Declare(MakeInitItem("a", 5), &spec).status().code(),
            absl::StatusCode::kAlreadyExists);
  wire::InitItem half = MakeInitItem("a", 4);
  half.mutable_info()->set_dtype(wire::FLOAT16);
  EXPECT_EQ(directory.Declare(half, &spec).status().code(), absl::StatusCode::kAlreadyExists);
  wire::InitItem majority = MakeInitItem("a", 4);
  majority.set_combine(wire::MAJORITY);
  EXPECT_EQ(directory.Declare(majority, &spec).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST(Directory, TheSpecSaysHowGradientsAreCombined) {
  Directory directory(1, {});
  PartitionSpec spec;
  ASSERT_TRUE(directory.Declare(MakeInitItem("a", 4), &spec).ok());
  EXPECT_EQ(spec.combine, Combine::kSum);
  wire::InitItem item = MakeInitItem("b", 4);
  item.set_combine(wire::MAJORITY);
  ASSERT_TRUE(directory.Declare(item, &spec).ok());
  EXPECT_EQ(spec.combine, Combine::kMajority);
}

wire::InitItem MakeAuxiliary(const std::string& name, int64_t rows, int64_t row,
                             wire::Combine combine) {
  wire::InitItem item = MakeInitItem(name, static_cast<uint64_t>(rows * row));
  item.mutable_info()->clear_shape();
  item.mutable_info()->add_shape(rows);
  item.mutable_info()->add_shape(row);
  item.set_combine(combine);
  item.set_auxiliary(true);
  return item;
}

TEST(Directory, AnAuxiliaryKeyIsDeclaredWithItsCombination) {
  Directory directory(1, {});
  PartitionSpec spec;
  ASSERT_TRUE(directory.Declare(MakeAuxiliary("p", 2, 3, wire::ORTHOGONALISE), &spec).ok());
  EXPECT_TRUE(spec.auxiliary);
  EXPECT_EQ(spec.combine, Combine::kOrthogonalise);
  EXPECT_EQ(spec.row_elements, 3u);
  ASSERT_TRUE(directory.Declare(MakeAuxiliary("m", 1, 3, wire::MAXIMUM), &spec).ok());
  EXPECT_EQ(spec.combine, Combine::kMaximum);
  ASSERT_TRUE(directory.Declare(MakeAuxiliary("q", 2, 3, wire::SUM), &spec).ok());
  EXPECT_EQ(spec.combine, Combine::kSum);
}

TEST(Directory, AnAuxiliaryKeyThatCannotBeIsRefusedInWords) {
  Directory directory(1, {});
  const auto words = [&](const wire::InitItem& item) {
    PartitionSpec spec;
    return std::string(directory.Declare(item, &spec).status().message());
  };
  EXPECT_THAT(words(MakeAuxiliary("a", 3, 2, wire::ORTHOGONALISE)),
              HasSubstr("3 rows of 2 elements cannot be orthonormal, expected at most 2"));
  EXPECT_THAT(words(MakeAuxiliary("a", 2, 2, wire::MAJORITY)),
              HasSubstr("combined by MAJORITY: expected SUM, MAXIMUM or ORTHOGONALISE"));
  wire::InitItem item = MakeAuxiliary("a", 2, 2, wire::SUM);
  item.set_partitions(2);
  EXPECT_THAT(words(item), HasSubstr("an auxiliary key of 2 partitions and type FLOAT32"));
  item = MakeAuxiliary("a", 2, 2, wire::SUM);
  item.mutable_info()->set_dtype(wire::BFLOAT16);
  EXPECT_THAT(words(item), HasSubstr("type BFLOAT16, expected 1 and FLOAT32"));
  item = MakeAuxiliary("a", 2, 2, wire::MAXIMUM);
  item.set_auxiliary(false);
  EXPECT_THAT(words(item), HasSubstr("combined by MAXIMUM: expected SUM or MAJORITY"));
  ASSERT_EQ(words(MakeAuxiliary("a", 2, 2, wire::SUM)), "");
  item = MakeAuxiliary("a", 2, 2, wire::SUM);
  item.set_auxiliary(false);
  EXPECT_THAT(words(item), HasSubstr("combined by SUM as an auxiliary key, now with 4"));
}

TEST(Directory, TheSpecSaysAllThatTheItemDid) {
  Directory directory(1, {});
  Message message;
  AddInit(&message, {.name = "conv",
                     .partition = 1,
                     .partitions = 2,
                     .offset = 6,
                     .values = std::vector<float>(4),
                     .total = 10});
  wire::InitItem item = message.header.init().items(0);
  item.mutable_info()->set_dtype(wire::FLOAT16);
  item.mutable_info()->set_layer(wire::CONVOLUTION);
  PartitionSpec spec;
  ASSERT_TRUE(directory.Declare(item, &spec).ok());
  EXPECT_EQ(spec.key, Key("conv").id());
  EXPECT_EQ(spec.index, 1u);
  EXPECT_EQ(spec.name, "s:conv");
  EXPECT_EQ(spec.offset, 6u);
  EXPECT_EQ(spec.elements, 4u);
  EXPECT_EQ(spec.dtype, wire::FLOAT16);
  EXPECT_EQ(spec.layer, LayerKind::kConvolution);
}

TEST(Directory, ARefusalQuotesWhatWasDeclaredBeforeAndWhatCameNow) {
  Directory directory(1, {.max_partition_elements = 10});
  const auto words = [&](const wire::InitItem& item) {
    PartitionSpec spec;
    return std::string(directory.Declare(item, &spec).status().message());
  };
  ASSERT_EQ(words(MakeInitItem("a", 4)), "");
  EXPECT_THAT(words(MakeInitItem("a", 5)),
              HasSubstr("declared before with 4 elements of FLOAT32 in 1 partitions, combined by "
                        "SUM, now with 5 of FLOAT32 in 1, combined by SUM"));
  EXPECT_THAT(words(MakeInitItem("b", 11)),
              HasSubstr("11 elements, at most 10 are allowed in a partition"));
  wire::InitItem item = MakeInitItem("b", 4);
  item.set_offset(1);
  EXPECT_THAT(words(item), HasSubstr("4 elements from 1 on, but the key has 4"));
  item = MakeInitItem("b", 4);
  item.mutable_id()->set_partition(7);
  EXPECT_THAT(words(item), HasSubstr("the key has 1 partitions"));
  item = MakeInitItem("b", 4);
  item.mutable_info()->set_shape(0, -4);
  EXPECT_THAT(words(item), HasSubstr("a dimension is negative"));
}

TEST(Directory, WhatIsRefusedTakesNoPlace) {
  Directory directory(2, {.max_partitions = 2});
  PartitionSpec spec;
  wire::InitItem bad = MakeInitItem("a", 1000);
  bad.set_combine(static_cast<wire::Combine>(9));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(directory.Declare(bad, &spec).ok());
  EXPECT_EQ(directory.FindShard({.key = Key("a").id()}), std::nullopt);
  EXPECT_EQ(directory.Declare(MakeInitItem("b", 1), &spec).value(), 0u);
  EXPECT_EQ(directory.Declare(MakeInitItem("c", 1), &spec).value(), 1u);
  EXPECT_FALSE(directory.Declare(MakeInitItem("d", 1), &spec).ok());
  EXPECT_TRUE(directory.Declare(MakeInitItem("b", 1), &spec).ok()) << "not a new one";
}

TEST(Directory, AReservedPlaceCountsByWhatInitSays) {
  Directory directory(2, {.max_reserved = 1});
  PartitionSpec spec;
  ASSERT_EQ(directory.Reserve({.key = Key("a").id()}, 1000).value(), 0u);
  EXPECT_EQ(directory.Declare(MakeInitItem("b", 10), &spec).value(), 1u);
  EXPECT_EQ(directory.Declare(MakeInitItem("a", 4), &spec).value(), 0u) << "where it was";
  EXPECT_EQ(directory.Declare(MakeInitItem("c", 1), &spec).value(), 0u)
      << "the shard has 4 elements, not 1000";
  EXPECT_TRUE(directory.Reserve({.key = 1}, 1).ok()) << "the first is reserved no more";
}
}  // namespace
}  // namespace slimps
