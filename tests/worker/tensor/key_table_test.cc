// SPDX-License-Identifier: Apache-2.0
#include "worker/tensor/key_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

namespace slimps {
namespace {

wire::KeyInfo Info(const Key& key, std::vector<int64_t> shape) {
  wire::KeyInfo info;
  info.set_key(key.id());
  info.set_name(key.typed_name());
  for (int64_t extent : shape) info.add_shape(extent);
  return info;
}

wire::KeyPlace Place(std::vector<std::pair<uint32_t, uint64_t>> server_and_elements) {
  wire::KeyPlace place;
  uint64_t offset = 0;
  for (const auto& [server, elements] : server_and_elements) {
    wire::PartitionPlace& partition = *place.add_partitions();
    partition.set_server(server);
    partition.set_offset(offset);
    partition.set_elements(elements);
    offset += elements;
  }
  return place;
}

TensorPlan PlanOf(const Key& key) {
  return *MakeTensorPlan(key, Info(key, {4}), Place({{0, 4}}), 1);
}

TEST(TensorPlan, PlacementThatCoversEveryElementIsTaken) {
  const Key key("w");
  const auto plan = MakeTensorPlan(key, Info(key, {3, 4}), Place({{0, 8}, {1, 4}}), 2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->elements, 12u);
  EXPECT_EQ(plan->bytes(), 48u);
  ASSERT_EQ(plan->partitions.size(), 2u);
  EXPECT_EQ(plan->partitions[1].offset, 8u);
  EXPECT_EQ(plan->partitions[1].server, 1u);
}

TEST(TensorPlan, PlacementWithAHoleOrTooLongOrOnAnUnknownServerIsRefused) {
  const Key key("w");
  const wire::KeyInfo info = Info(key, {12});
  EXPECT_EQ(MakeTensorPlan(key, info, Place({{0, 8}}), 2).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(MakeTensorPlan(key, info, Place({{0, 8}, {1, 5}}), 2).ok());
  EXPECT_FALSE(MakeTensorPlan(key, info, Place({{0, 8}, {2, 4}}), 2).ok());
  wire::KeyPlace hole = Place({{0, 8}, {1, 4}});
  hole.mutable_partitions(1)->set_offset(9);
  const absl::Status status = MakeTensorPlan(key, info, hole, 2).status();
  EXPECT_NE(status.message().find("s:w partition 1"), std::string::npos) << status;
}

TEST(KeyTable, KeyIsFoundByItsTypedName) {
  KeyTable keys;
  keys.Add({PlanOf(5)});
  ASSERT_TRUE(keys.Find(5).ok());
  EXPECT_EQ((*keys.Find(5))->key.typed_name(), "i:5");
  EXPECT_EQ(keys.Find(6).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(keys.Find("5").status().code(), absl::StatusCode::kNotFound);
}

TEST(KeyTable, KnownKeysRepeatedKeysAndKeysOfTwoKindsAreRefused) {
  KeyTable keys;
  const auto check = [&keys](std::vector<Key> names) {
    std::vector<InitTensor> tensors;
    for (const Key& name : names) tensors.push_back({.key = name});
    return keys.CheckNew(tensors).code();
  };
  EXPECT_EQ(check({5, 6}), absl::StatusCode::kOk);
  EXPECT_EQ(check({5, 6, 5}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(check({5, "w"}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(check({"w", 5}), absl::StatusCode::kInvalidArgument);
  keys.Add({PlanOf(5)});
  EXPECT_EQ(check({6, 5}), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(check({"w"}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(check({6}), absl::StatusCode::kOk);
}

TEST(KeyTable, RoundsAreCountedPerKey) {
  KeyTable keys;
  keys.Add({PlanOf("a")});
  keys.Add({PlanOf("b")});
  EXPECT_EQ(keys.CountPush("a").round, 1u);
  EXPECT_EQ(keys.CountPush("a").round, 2u);
  EXPECT_EQ(keys.CountPush("b").round, 1u);
  EXPECT_EQ(keys.PushedRounds("a"), 2u);
  EXPECT_EQ(keys.MaxPushedRounds(), 2u);
}

TEST(KeyTable, APushIsToldTheHyperparametersThatAreSetWhenItIsCounted) {
  KeyTable keys;
  keys.Add({PlanOf("a")});
  keys.Add({PlanOf("b")});
  EXPECT_FALSE(keys.CountPush("a").hyper.has_value());
  ASSERT_TRUE(
      keys.SetHyper("a", {{.learning_rate = 0.5, .weight_decay = 0.25, .momentum = 0.75}}).ok());
  const CountedPush counted = keys.CountPush("a");
  EXPECT_EQ(counted.round, 2u);
  ASSERT_TRUE(keys.SetHyper("a", Hyper{.learning_rate = 0.125}).ok());
  ASSERT_TRUE(counted.hyper.has_value());
  EXPECT_EQ(counted.hyper->learning_rate(), 0.5);
  EXPECT_EQ(counted.hyper->weight_decay(), 0.25);
  EXPECT_EQ(counted.hyper->momentum(), 0.75);
  const CountedPush later = keys.CountPush("a");
  EXPECT_EQ(later.hyper->learning_rate(), 0.125);
  EXPECT_FALSE(later.hyper->has_momentum()) << "the optimizer's own";
  EXPECT_FALSE(keys.CountPush("b").hyper.has_value()) << "of one key";
  ASSERT_TRUE(keys.SetHyper("a", std::nullopt).ok());
  EXPECT_FALSE(keys.CountPush("a").hyper.has_value());
}

TEST(KeyTable, BadHyperparametersAreRefusedWithKeyAndFieldAndTheOldOnesHold) {
  KeyTable keys;
  keys.Add({PlanOf("a")});
  ASSERT_TRUE(keys.SetHyper("a", Hyper{.learning_rate = 2}).ok());
  EXPECT_EQ(keys.SetHyper("b", Hyper{}).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(keys.SetHyper("b", std::nullopt).code(), absl::StatusCode::kNotFound);
  const std::pair<Hyper, const char*> bad[] = {
      {{.learning_rate = -1}, "key s:a: learning_rate: expected at least 0, got -1"},
      {{.learning_rate = 1e39}, "learning_rate: expected at least 0, finite in fp32, got 1e+39"},
      {{.weight_decay = std::nan("")}, "key s:a: weight_decay: expected at least 0, got nan"},
      {{.momentum = 1}, "key s:a: momentum: expected at least 0 and below 1, got 1"}};
  for (const auto& [hyper, words] : bad) {
    const absl::Status refused = keys.SetHyper("a", hyper);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(refused.message().find(words), absl::string_view::npos) << refused;
  }
  EXPECT_EQ(keys.CountPush("a").hyper->learning_rate(), 2);
}

}  // namespace
}  // namespace slimps
