// SPDX-License-Identifier: Apache-2.0
// Partitions of auxiliary keys: what a round combines to, and who contributed.
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/round/aggregate.h"
#include "server/round/partition.h"
#include "server/round/partition_rows.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PartitionSpec Spec(Combine combine, size_t elements, size_t row_elements, uint32_t workers) {
  PartitionSpec spec;
  spec.key = Key("w").id();
  spec.name = "s:w";
  spec.elements = elements;
  spec.row_elements = row_elements;
  spec.num_workers = workers;
  spec.combine = combine;
  spec.auxiliary = true;
  return spec;
}

std::unique_ptr<Partition> Make(const PartitionSpec& spec,
                                const wire::OptimizerSpec& optimizer = SgdSpec(0.5)) {
  return Partition::Create(spec, Raw(std::vector<float>(spec.elements, 7)),
                           MakeOptimizer(optimizer))
      .value();
}

void ApplyAll(Partition& partition) {
  while (partition.HasCompleteRound()) partition.ApplyNextRound();
}

std::vector<float> Pulled(Partition& partition, uint64_t version) {
  return Floats(partition.Share(version).payload);
}

TEST(AuxiliaryPartition, AVersionIsItsRoundsSumAndNoOptimizerStepsIt) {
  auto partition = Make(Spec(Combine::kSum, 2, 1, 2));
  partition->SetOptimizer(MakeOptimizer(SgdSpec(0.25, /*momentum=*/0.9)));
  for (const float scale : {1.0f, 10.0f}) {
    const uint64_t round = partition->version() + 1;
    ASSERT_TRUE(partition->Push(round, 1, 2, Raw({3 * scale, 4 * scale})).ok());
    ASSERT_TRUE(partition->Push(round, 0, 2, Raw({1 * scale, 2 * scale})).ok());
    ApplyAll(*partition);
  }
  EXPECT_THAT(Pulled(*partition, 1), ElementsAre(4, 6));
  EXPECT_THAT(Pulled(*partition, 2), ElementsAre(40, 60));
  wire::OptimizerState state;
  state.set_tensor(1);
  EXPECT_TRUE(partition->ShareState(&state).payload.empty());
}

TEST(AuxiliaryPartition, AMaximumIsTakenOfEachElementAndOfZero) {
  auto partition = Make(Spec(Combine::kMaximum, 3, 1, 3));
  ASSERT_TRUE(partition->Push(1, 0, 3, Raw({1, 5, -2})).ok());
  ASSERT_TRUE(partition->Push(1, 1, 3, {}).ok());
  ASSERT_TRUE(partition->Push(1, 2, 3, Raw({3, 4, -1})).ok());
  ApplyAll(*partition);
  EXPECT_THAT(Pulled(*partition, 1), ElementsAre(3, 5, 0));
}

TEST(AuxiliaryPartition, AMaximumIsTheSameWhereMuchWaits) {
  PartitionSpec spec = Spec(Combine::kMaximum, 3, 1, 4);
  spec.waiting = std::make_shared<WaitingBytes>(/*most=*/12);
  auto partition = Make(spec);
  for (uint32_t worker = 0; worker < 4; ++worker) {
    const auto value = static_cast<float>(worker + 1);
    ASSERT_TRUE(partition->Push(1, worker, 3, Raw({value, 5 - value, 1})).ok()) << worker;
  }
  ApplyAll(*partition);
  EXPECT_THAT(Pulled(*partition, 1), ElementsAre(4, 4, 1));
  EXPECT_EQ(spec.waiting->bytes(), 0);
}

TEST(AuxiliaryPartition, AMaximumOfANanIsNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Payload with = RawPayload({nan}), without = RawPayload({2});
  for (const bool first : {true, false}) {
    const PayloadView a{PayloadFormat::kRawF32, (first ? with : without).bytes()};
    const PayloadView b{PayloadFormat::kRawF32, (first ? without : with).bytes()};
    float out = 0;
    CombineRound({.payloads = std::vector<PayloadView>{a, b}, .combine = Combine::kMaximum},
                 {&out, 1});
    EXPECT_TRUE(std::isnan(out));
  }
}

TEST(AuxiliaryPartition, ASumsRowsAreMadeOrthonormal) {
  auto partition = Make(Spec(Combine::kOrthogonalise, 4, 2, 2));
  ASSERT_TRUE(partition->Push(1, 0, 4, Raw({1, 4, 1, 0})).ok());
  ASSERT_TRUE(partition->Push(1, 1, 4, Raw({2, 0, 1, 1})).ok());
  ApplyAll(*partition);
  EXPECT_THAT(Pulled(*partition, 1),
              ElementsAre(FloatEq(0.6f), FloatEq(0.8f), FloatEq(0.8f), FloatEq(-0.6f)));
}

TEST(AuxiliaryPartition, FirstRowsAreCombinedAsIfThereWereNoOthers) {
  for (const size_t most : {size_t{1} << 20, size_t{4}}) {  // the second sums what waits
    PartitionSpec spec = Spec(Combine::kOrthogonalise, 6, 2, 3);
    spec.waiting = std::make_shared<WaitingBytes>(most);
    auto partition = Make(spec);
    ASSERT_TRUE(partition->Push(1, 0, 2, Raw({1, 4})).ok());
    ASSERT_TRUE(partition->Push(1, 1, 2, Raw({2, 0})).ok());
    ASSERT_TRUE(partition->Push(1, 2, 2, {}).ok());  // ABSENT
    ApplyAll(*partition);
    const WireValue value = FirstOf(partition->spec(), 2, partition->Share(1)).value();
    EXPECT_THAT(Floats(value.payload), ElementsAre(FloatEq(0.6f), FloatEq(0.8f)));
    EXPECT_EQ(value.hash, HashBytes(value.payload.bytes()));
    EXPECT_THAT(value.contributors, ElementsAre(0, 1));
    EXPECT_THAT(Pulled(*partition, 1), ElementsAre(FloatEq(0.6f), FloatEq(0.8f), 0, 0, 0, 0));
    // The next round may need another number of rows.
    ASSERT_TRUE(partition->Push(2, 0, 4, Raw({0, 2, 5, 1})).ok());
    ASSERT_TRUE(partition->Push(2, 1, 6, {}).ok());
    ASSERT_TRUE(partition->Push(2, 2, 6, {}).ok());
    ApplyAll(*partition);
    EXPECT_THAT(Pulled(*partition, 2), ElementsAre(0, 1, 1, 0, 0, 0));
  }
}

TEST(AuxiliaryPartition, OnlyWholeFirstRowsAreTaken) {
  auto partition = Make(Spec(Combine::kOrthogonalise, 6, 2, 1));
  EXPECT_EQ(FirstOf(partition->spec(), 2, {.format = PayloadFormat::kRows}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(partition->Push(1, 0, 3, Raw({1, 2, 3})).ok());
  EXPECT_FALSE(partition->Push(1, 0, 8, Raw({1, 2, 3, 4, 5, 6, 7, 8})).ok());
  EXPECT_FALSE(partition->Push(1, 0, 0, {}).ok());
  PartitionSpec tensor = Spec(Combine::kSum, 6, 2, 1);
  tensor.auxiliary = false;
  EXPECT_FALSE(Make(tensor)->Push(1, 0, 2, Raw({1, 2})).ok());
  ASSERT_TRUE(partition->Push(1, 0, 2, Raw({1, 2})).ok());
}

TEST(AuxiliaryPartition, ThePullNamesWhoContributed) {
  auto partition = Make(Spec(Combine::kSum, 1, 1, 4));
  ASSERT_TRUE(partition->Leave(1, 1).ok());
  ASSERT_TRUE(partition->Push(1, 0, 1, Raw({1})).ok());
  ASSERT_TRUE(partition->Push(1, 2, 1, {}).ok());  // ABSENT
  ASSERT_TRUE(partition->Push(1, 3, 1, Raw({1})).ok());
  ApplyAll(*partition);
  for (const uint32_t worker : {0u, 2u, 3u}) {
    ASSERT_TRUE(partition->Push(2, worker, 1, {}).ok());
  }
  ApplyAll(*partition);
  EXPECT_THAT(partition->Share(1).contributors, ElementsAre(0, 3));
  EXPECT_THAT(partition->Share(2).contributors, IsEmpty());
  EXPECT_THAT(Pulled(*partition, 2), ElementsAre(0));
}

TEST(AuxiliaryPartition, ContributorsOfAPrefixThatWasSummedAreNamedToo) {
  PartitionSpec spec = Spec(Combine::kSum, 1, 1, 3);
  spec.waiting = std::make_shared<WaitingBytes>(/*most=*/4);
  auto partition = Make(spec);
  for (const uint32_t worker : {0u, 1u, 2u}) {
    ASSERT_TRUE(partition->Push(1, worker, 1, Raw({1})).ok());
  }
  ApplyAll(*partition);
  EXPECT_THAT(partition->Share(1).contributors, ElementsAre(0, 1, 2));
  EXPECT_THAT(Pulled(*partition, 1), ElementsAre(3));
}

TEST(AuxiliaryPartition, APushThatAsksForCompressedPullsIsRefused) {
  auto partition = Make(Spec(Combine::kSum, 1, 1, 1));
  ChangeCodecs codecs(nullptr);
  const absl::Status refused =
      partition->Push(1, 0, 1, Raw({1}), codecs.Find("1bit").value()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("an auxiliary key is pulled as it is"));
}

}  // namespace
}  // namespace slimps
