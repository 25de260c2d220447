// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/local/local_store_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Rows = std::vector<int64_t>;

// A store with the key "w": four rows of two elements.
std::unique_ptr<KVStore> MakeRows(const Values& value = {1, 2, 3, 4, 5, 6, 7, 8},
                                  const std::string& type = "local") {
  auto store = Make(type);
  EXPECT_TRUE(store->Init({{.key = "w", .shape = {4, 2}, .value = value}}).ok());
  return store;
}

TEST(LocalRows, WithoutAnOptimizerRowsReplaceTheWholeValue) {
  const auto store = MakeRows();
  ASSERT_TRUE(store->PushRowSparse("w", Rows{2, 0, 2}, Values{1, 1, 5, 6, 10, 20}, 0).ok());
  EXPECT_THAT(PullOf(*store, "w", 8), ElementsAre(5, 6, 0, 0, 11, 21, 0, 0));
  ASSERT_TRUE(store->PushRowSparse("w", {}, {}, 0).ok());
  EXPECT_THAT(PullOf(*store, "w", 8), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0));
}

TEST(LocalRows, AnUpdaterGetsTheSum) {
  const auto store = MakeRows();
  ASSERT_TRUE(store->SetUpdater(Add).ok());
  ASSERT_TRUE(store->PushRowSparse("w", Rows{3, 3}, Values{1, 2, 1, 2}, 0).ok());
  EXPECT_THAT(PullOf(*store, "w", 8), ElementsAre(1, 2, 3, 4, 5, 6, 9, 12));
}

// Rows that nobody pushed keep their values, and so does the optimizer's state for them. A row of a
// store gets the same values as a store that has only this row.
TEST(LocalRows, AnOptimizerStepsTheRowsThatWerePushedAlone) {
  for (const auto kind : {wire::OptimizerSpec::SGD, wire::OptimizerSpec::ADAM}) {
    wire::OptimizerSpec spec = Spec(kind, 0.5);
    spec.set_weight_decay(0.1);
    if (kind == wire::OptimizerSpec::SGD) spec.set_momentum(0.9);
    if (kind == wire::OptimizerSpec::ADAM) {
      spec.set_beta1(0.9);
      spec.set_beta2(0.99);
      spec.set_epsilon(1e-8);
    }
    const auto store = MakeRows();
    const auto alone = Make("local");
    ASSERT_TRUE(InitKey(*alone, "w", {3, 4}).ok());
    ASSERT_TRUE(store->SetOptimizer(spec).ok());
    ASSERT_TRUE(alone->SetOptimizer(spec).ok());
    const Values gradient = {0.25, -1}, others = {1, 1, 1, 1};
    for (int round = 0; round < 3; ++round) {
      ASSERT_TRUE(store->PushRowSparse("w", Rows{1}, gradient, 0).ok());
      ASSERT_TRUE(alone->Push("w", gradient, 0).ok());
    }
    const Values whole = PullOf(*store, "w", 8), row = PullOf(*alone, "w", 2);
    EXPECT_THAT(whole, ElementsAre(1, 2, row[0], row[1], 5, 6, 7, 8));
    ASSERT_TRUE(store->PushRowSparse("w", Rows{0, 3}, others, 0).ok());
    const Values after = PullOf(*store, "w", 8);
    EXPECT_THAT((Values{after[2], after[3], after[4], after[5]}),
                ElementsAre(row[0], row[1], 5, 6));
    EXPECT_LT(after[0], 1);
    EXPECT_LT(after[7], 8);
  }
}

TEST(LocalRows, ChosenRowsArePulled) {
  const auto store = MakeRows();
  Rows rows = {9};
  Values values = {9};
  ASSERT_TRUE(store->PullRows("w", Rows{3, 1, 3}, &rows, &values, 0).ok());
  EXPECT_THAT(rows, ElementsAre(1, 3));
  EXPECT_THAT(values, ElementsAre(3, 4, 7, 8));
  ASSERT_TRUE(store->PullRows("w", {}, &rows, &values, 0).ok());
  EXPECT_THAT(rows, IsEmpty());
  EXPECT_THAT(values, IsEmpty());
}

TEST(LocalRows, WhatMakesNoSenseIsRefusedAndNothingChanges) {
  const auto store = MakeRows();
  Rows rows = {9};
  Values values = {9};
  const absl::Status outside = store->PullRows("w", Rows{4}, &rows, &values, 0);
  EXPECT_EQ(outside.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(outside.message()), HasSubstr("4"));
  EXPECT_THAT(rows, ElementsAre(9));
  EXPECT_EQ(store->PushRowSparse("w", Rows{-1}, Values{1, 2}, 0).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store->PushRowSparse("w", Rows{1}, Values{1}, 0).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store->PushRowSparse("w", Rows{1}, Values{1, kInfinity}, 0).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store->PushRowSparse("v", Rows{1}, Values{1, 2}, 0).code(),
            absl::StatusCode::kNotFound);
  EXPECT_THAT(PullOf(*store, "w", 8), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  const auto device = MakeRows({0, 0, 0, 0, 0, 0, 0, 0}, "device");
  ASSERT_TRUE(device->SetGradientCompression("2bit").ok());
  const absl::Status compressed = device->PushRowSparse("w", Rows{1}, Values{1, 2}, 0);
  EXPECT_EQ(compressed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(compressed.message()), HasSubstr("2bit"));
}

TEST(LocalRows, AnUpdaterThatCallsItsStoreIsRefused) {
  const auto store = MakeRows();
  absl::Status called;
  ASSERT_TRUE(store
                  ->SetUpdater([&](const Key& key, std::span<const float>, std::span<float>) {
                    Values out(8);
                    called = store->Pull(key, out, 0);
                  })
                  .ok());
  ASSERT_TRUE(store->Push("w", Values(8, 1.0f), 0).ok());
  EXPECT_EQ(called.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(called.message()), HasSubstr("an updater must not call its store"));
  // Another store's updater must not call it either.
  const auto other = MakeRows();
  ASSERT_TRUE(other
                  ->SetUpdater([&](const Key& key, std::span<const float>, std::span<float>) {
                    Values out(8);
                    called = store->Pull(key, out, 0);
                  })
                  .ok());
  ASSERT_TRUE(store
                  ->SetUpdater([&](const Key& key, std::span<const float>, std::span<float>) {
                    called = absl::UnknownError("not called");
                    EXPECT_TRUE(other->Push(key, Values(8, 1.0f), 0).ok());
                  })
                  .ok());
  ASSERT_TRUE(store->Push("w", Values(8, 1.0f), 0).ok());
  EXPECT_EQ(called.code(), absl::StatusCode::kFailedPrecondition);
  called = absl::UnknownError("not called");
  EXPECT_TRUE(store->PushNothing("w").ok());
  EXPECT_TRUE(absl::IsUnknown(called)) << "no push, and no updater";
  EXPECT_THAT(PullOf(*store, "w", 2 * 4), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

}  // namespace
}  // namespace slimps
