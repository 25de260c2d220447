// SPDX-License-Identifier: Apache-2.0
#include "worker/pull/held_weights.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::optional<uint64_t> kNothing;

// A tensor of two partitions, of three and two elements.
class HeldWeightsTest : public ::testing::Test {
 protected:
  HeldWeightsTest() {
    tensor_.elements = 5;
    tensor_.partitions = {{.server = 0, .offset = 0, .elements = 3},
                          {.server = 1, .offset = 3, .elements = 2}};
    held_.emplace(&tensor_);
    held_->UseMemory(out_);
  }
  absl::Status Weights(size_t partition, uint64_t version, const std::vector<float>& values) {
    return held_->Merge(partition, Answer(version, values.size()), Bytes(values));
  }
  struct ChangeFields {
    size_t partition = 0;
    uint64_t base = 0;
    uint64_t version = 0;
    std::vector<float> values;
  };
  absl::Status Change(const ChangeFields& change) {
    wire::PullReplyItem answer = Answer(change.version, change.values.size());
    answer.set_is_change(true);
    answer.set_base_version(change.base);
    return held_->Merge(change.partition, answer, Bytes(change.values));
  }
  static wire::PullReplyItem Answer(uint64_t version, size_t elements) {
    wire::PullReplyItem answer;
    answer.set_version(version);
    answer.set_elements(elements);
    answer.set_format(wire::RAW_F32);
    return answer;
  }
  static std::span<const std::byte> Bytes(const std::vector<float>& values) {
    return std::as_bytes(std::span(values));
  }

  TensorPlan tensor_{.key = Key("w")};
  std::vector<float> out_ = std::vector<float>(5, -1);
  std::optional<HeldWeights> held_;
};

TEST_F(HeldWeightsTest, EachPartitionHasAVersionOfItsOwn) {
  EXPECT_EQ(held_->version(0), kNothing);
  ASSERT_TRUE(Weights(0, 4, {1, 2, 3}).ok());
  EXPECT_EQ(held_->version(0), 4);
  EXPECT_EQ(held_->version(1), kNothing);
  ASSERT_TRUE(Weights(1, 6, {8, 9}).ok());
  ASSERT_TRUE(Change({.partition = 0, .base = 4, .version = 5, .values = {10, 10, 10}}).ok());
  EXPECT_EQ(held_->version(0), 5);
  EXPECT_EQ(held_->version(1), 6);
  EXPECT_THAT(out_, ElementsAre(11, 12, 13, 8, 9));
}

TEST_F(HeldWeightsTest, AChangeGoesToItsOwnVersionOnlyAndOnce) {
  EXPECT_EQ(Change({.partition = 0, .base = 0, .version = 1, .values = {1, 1, 1}}).code(),
            absl::StatusCode::kFailedPrecondition)
      << "nothing is held, not even version 0";
  ASSERT_TRUE(Weights(0, 4, {1, 2, 3}).ok());
  ASSERT_TRUE(Change({.partition = 0, .base = 4, .version = 5, .values = {1, 1, 1}}).ok());
  const absl::Status again = Change({.partition = 0, .base = 4, .version = 5, .values = {1, 1, 1}});
  EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(again.message()),
              HasSubstr("a change from version 5; got a change from version 4 to 5"));
  EXPECT_FALSE(Change({.partition = 0, .base = 6, .version = 7, .values = {1, 1, 1}}).ok());
  EXPECT_FALSE(Change({.partition = 0, .base = 5, .version = 5, .values = {1, 1, 1}}).ok())
      << "leads nowhere";
  EXPECT_EQ(held_->version(0), 5);
  EXPECT_THAT(std::span(out_).first(3), ElementsAre(2, 3, 4));
}

TEST_F(HeldWeightsTest, WhatIsRefusedLeavesThePartitionAsItWas) {
  ASSERT_TRUE(Weights(1, 4, {1, 2}).ok());
  wire::PullReplyItem answer = Answer(5, 2);
  answer.set_is_change(true);
  answer.set_base_version(4);
  const std::vector<float> values = {1, 1, 1};
  EXPECT_EQ(held_->Merge(1, answer, Bytes(values)).code(), absl::StatusCode::kDataLoss);
  answer.set_elements(3);
  EXPECT_THAT(std::string(held_->Merge(1, answer, Bytes(values)).message()),
              HasSubstr("expected 2 elements, got 3"));
  answer.set_elements(2);
  answer.set_format(wire::LEVELS);
  EXPECT_FALSE(held_->Merge(1, answer, Bytes({1, 1})).ok()) << "no such payload";
  answer.set_format(static_cast<wire::Format>(77));
  EXPECT_FALSE(held_->Merge(1, answer, Bytes({1, 1})).ok()) << "no such format";
  EXPECT_EQ(held_->version(1), 4);
  EXPECT_THAT(out_, ElementsAre(-1, -1, -1, 1, 2));
  EXPECT_TRUE(Change({.partition = 1, .base = 4, .version = 5, .values = {1, 1}}).ok());
}

TEST_F(HeldWeightsTest, OtherMemoryHoldsNothing) {
  ASSERT_TRUE(Weights(0, 4, {1, 2, 3}).ok());
  held_->UseMemory(out_);
  EXPECT_EQ(held_->version(0), 4) << "the same memory";
  std::vector<float> other(5);
  held_->UseMemory(other);
  EXPECT_EQ(held_->version(0), kNothing);
  EXPECT_FALSE(Change({.partition = 0, .base = 4, .version = 5, .values = {1, 1, 1}}).ok());
  ASSERT_TRUE(Weights(0, 5, {4, 5, 6}).ok());
  EXPECT_THAT(other, ElementsAre(4, 5, 6, 0, 0));
  held_->UseOwnMemory();
  EXPECT_EQ(held_->version(0), kNothing);
  ASSERT_TRUE(Weights(0, 5, {7, 8, 9}).ok());
  held_->UseOwnMemory();
  EXPECT_EQ(held_->version(0), 5);
  EXPECT_THAT(held_->values().first(3), ElementsAre(7, 8, 9));
  EXPECT_THAT(other, ElementsAre(4, 5, 6, 0, 0));
}

}  // namespace
}  // namespace slimps
