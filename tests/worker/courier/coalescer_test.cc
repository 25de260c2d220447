// SPDX-License-Identifier: Apache-2.0
#include "worker/courier/coalescer.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace slimps {
namespace {

OutgoingItem PushOf(uint64_t key, size_t bytes) {
  wire::PushItem push;
  push.mutable_id()->set_key(key);
  return {.item = push,
          .payload = Payload::Adopt(AlignedBuffer(bytes), bytes),
          .key_name = "",
          .done = {}};
}

uint64_t KeyOf(const OutgoingItem& item) { return std::get<wire::PushItem>(item.item).id().key(); }

TEST(Coalescer, SmallItemsOfOneServerTravelTogether) {
  Coalescer coalescer;
  EXPECT_TRUE(coalescer.Add(0, PushOf(1, 100), 5).empty());
  EXPECT_TRUE(coalescer.Add(1, PushOf(2, 100), 4).empty());
  EXPECT_TRUE(coalescer.Add(0, PushOf(3, 100), 7).empty());
  const std::vector<Batch> batches = coalescer.TakeAll();
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].server, 0u);
  ASSERT_EQ(batches[0].items.size(), 2u);
  EXPECT_EQ(KeyOf(batches[0].items[0]), 1u);
  EXPECT_EQ(KeyOf(batches[0].items[1]), 3u);
  EXPECT_EQ(batches[0].priority, 7);
  EXPECT_GT(batches[0].bytes, 200u) << "the header's too";
  EXPECT_EQ(batches[1].items.size(), 1u);
  EXPECT_TRUE(coalescer.empty());
}

TEST(Coalescer, LargeItemTravelsAloneBehindTheSmallOnesBeforeIt) {
  Coalescer coalescer;
  EXPECT_TRUE(coalescer.Add(0, PushOf(1, 100), 0).empty());
  const std::vector<Batch> batches = coalescer.Add(0, PushOf(2, Coalescer::kSmallItemBytes + 1), 0);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(KeyOf(batches[0].items[0]), 1u);
  EXPECT_EQ(KeyOf(batches[1].items[0]), 2u);
  EXPECT_TRUE(coalescer.empty());
}

TEST(Coalescer, WhatItemsSayInTheHeaderCountsToo) {
  const auto pull = [](size_t row_bytes) {
    wire::PullItem item;
    item.set_rows(std::string(row_bytes, 'r'));
    return OutgoingItem{.item = std::move(item), .payload = {}, .key_name = "", .done = {}};
  };
  Coalescer coalescer;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(coalescer.Add(0, pull(60 << 10), 0).empty());
  const std::vector<Batch> full = coalescer.Add(0, pull(60 << 10), 0);
  ASSERT_EQ(full.size(), 1u);
  EXPECT_EQ(full[0].items.size(), 5u);
  EXPECT_EQ(coalescer.Add(0, pull(Coalescer::kSmallItemBytes), 0).size(), 1u) << "alone";
  EXPECT_TRUE(coalescer.empty());
}

TEST(Coalescer, ItemOfTheLimitIsStillSmall) {
  Coalescer coalescer;
  EXPECT_TRUE(coalescer.Add(0, PushOf(1, Coalescer::kSmallItemBytes), 0).empty());
  EXPECT_FALSE(coalescer.empty());
}

TEST(Coalescer, FullBatchLeaves) {
  Coalescer coalescer;
  std::vector<Batch> leaving;
  size_t added = 0;
  while (leaving.empty()) {
    leaving = coalescer.Add(2, PushOf(added, Coalescer::kSmallItemBytes), 0);
    ++added;
  }
  EXPECT_EQ(added, Coalescer::kFullBatchBytes / Coalescer::kSmallItemBytes);
  ASSERT_EQ(leaving.size(), 1u);
  EXPECT_EQ(leaving[0].items.size(), added);
  EXPECT_TRUE(coalescer.empty());
}

TEST(Coalescer, BatchOfManyEmptyItemsLeavesAtItsItemLimit) {
  Coalescer coalescer;
  for (size_t i = 1; i < Coalescer::kFullBatchItems; ++i) {
    ASSERT_TRUE(coalescer.Add(0, PushOf(i, 0), 0).empty());
  }
  EXPECT_EQ(coalescer.Add(0, PushOf(0, 0), 0).size(), 1u);
}

}  // namespace
}  // namespace slimps
