// SPDX-License-Identifier: Apache-2.0
#include "worker/courier/kept_items.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "proto/base/buffer.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kBytes = 64;  // of each payload

wire::ItemId Id(uint64_t key, uint32_t partition = 0) {
  wire::ItemId id;
  id.set_key(key);
  id.set_partition(partition);
  return id;
}

Payload SomePayload() { return Payload::Copy(std::vector<std::byte>(kBytes)); }

OutgoingItem Push(uint64_t round, const wire::ItemId& id = Id(1)) {
  wire::PushItem item;
  *item.mutable_id() = id;
  item.set_round(round);
  return {.item = item, .payload = SomePayload(), .key_name = "s:w", .done = {}};
}

OutgoingItem Init(const wire::ItemId& id = Id(1)) {
  wire::InitItem item;
  *item.mutable_id() = id;
  item.set_format(wire::RAW_F32);
  return {.item = item, .payload = SomePayload(), .key_name = "s:w", .done = {}};
}

// Returns the rounds that are sent again; 0 stands for the first value.
std::vector<uint64_t> Replay(KeptItems& kept, const wire::ItemId& id = Id(1)) {
  std::vector<uint64_t> rounds;
  while (const auto item = kept.NextToReplay(id)) {
    rounds.push_back(item->is<wire::InitItem>() ? 0 : std::get<wire::PushItem>(item->item).round());
  }
  return rounds;
}

TEST(KeptItemsTest, WhatWasAcknowledgedIsSentAgainInOrder) {
  KeptItems kept(1000);
  kept.Keep(0, Push(2));
  kept.Keep(0, Init());
  kept.Keep(0, Push(1));
  EXPECT_EQ(kept.StartReplay(0)->size(), 1u);
  EXPECT_THAT(Replay(kept), ElementsAre(0, 1, 2));
  EXPECT_EQ(kept.StartReplay(0)->size(), 1u) << "the server may be started again once more";
  EXPECT_THAT(Replay(kept), ElementsAre(0, 1, 2));
}

TEST(KeptItemsTest, WhatASnapshotHasIsDropped) {
  KeptItems kept(1000);
  kept.Keep(0, Init());
  for (uint64_t round = 1; round <= 3; ++round) kept.Keep(0, Push(round));
  kept.DropDurable(Id(1), 0);
  EXPECT_EQ(kept.bytes(), 4 * kBytes);
  kept.DropDurable(Id(1), 3);  // up to round 2
  EXPECT_EQ(kept.bytes(), kBytes);
  ASSERT_TRUE(kept.StartReplay(0).ok());
  EXPECT_THAT(Replay(kept), ElementsAre(3));
}

TEST(KeptItemsTest, ARoundsGradientScaleIsKeptBesideItsPush) {
  KeptItems kept(1000);
  const auto scale = [](uint64_t round) {
    OutgoingItem item = Push(round);
    std::get<wire::PushItem>(item.item).set_gradient_scale(0.5);
    return item;
  };
  kept.Keep(0, Push(1));
  kept.Keep(0, Push(2));
  kept.Keep(0, scale(1));
  ASSERT_TRUE(kept.StartReplay(0).ok());
  EXPECT_THAT(Replay(kept), ElementsAre(1, 1, 2));
  kept.DropDurable(Id(1), 2);  // up to round 1
  kept.Keep(0, scale(2));
  ASSERT_TRUE(kept.StartReplay(0).ok());
  EXPECT_THAT(Replay(kept), ElementsAre(2, 2));
}

TEST(KeptItemsTest, AnotherServerIsNotReplayed) {
  KeptItems kept(1000);
  kept.Keep(0, Push(1, Id(1)));
  kept.Keep(1, Push(1, Id(2)));
  EXPECT_EQ((*kept.StartReplay(1))[0].key(), 2u);
  EXPECT_THAT(Replay(kept, Id(1)), IsEmpty());
  EXPECT_THAT(Replay(kept, Id(2)), ElementsAre(1));
}

TEST(KeptItemsTest, PullsAndStatesAreNotKept) {
  KeptItems kept(1000);
  kept.Keep(0, {.item = wire::PullItem(), .payload = {}, .key_name = "s:w", .done = {}});
  OutgoingItem state = Init();
  std::get<wire::InitItem>(state.item).mutable_state()->set_tensor(1);
  kept.Keep(0, state);
  OutgoingItem question = Init();
  std::get<wire::InitItem>(question.item).set_format(wire::ABSENT);
  kept.Keep(0, question);
  EXPECT_EQ(kept.bytes(), 0u);
  EXPECT_THAT(*kept.StartReplay(0), IsEmpty());
}

TEST(KeptItemsTest, WhatIsAcknowledgedTwiceCountsOnce) {
  KeptItems kept(1000);
  kept.Keep(0, Push(1));
  kept.Keep(0, Push(1));
  EXPECT_EQ(kept.bytes(), kBytes);
}

TEST(KeptItemsTest, ASnapshotIsWantedOnceTheyTakeHalfOfTheRoom) {
  KeptItems kept(4 * kBytes);
  kept.Keep(0, Push(1));
  kept.Keep(0, Push(2));
  EXPECT_FALSE(kept.TakeWish());
  kept.Keep(0, Push(3));
  EXPECT_TRUE(kept.TakeWish());
  EXPECT_FALSE(kept.TakeWish());
  kept.DropDurable(Id(1), 2);
  kept.Keep(0, Push(4));
  EXPECT_TRUE(kept.TakeWish());
}

TEST(KeptItemsTest, WithoutRoomTheServerWithTheMostIsGivenUpAndNoOther) {
  KeptItems kept(3 * kBytes);
  for (uint64_t round = 1; round <= 3; ++round) kept.Keep(0, Push(round));
  kept.Keep(1, Push(1, Id(2)));
  EXPECT_FALSE(kept.StartReplay(0).ok());
  ASSERT_TRUE(kept.StartReplay(1).ok());
  EXPECT_THAT(Replay(kept, Id(2)), ElementsAre(1));
}

TEST(KeptItemsTest, WithoutRoomTheServerCannotBeReplayedUntilItsSnapshotsHaveAll) {
  KeptItems kept(2 * kBytes);
  for (uint64_t round = 1; round <= 3; ++round) kept.Keep(0, Push(round));
  EXPECT_EQ(kept.bytes(), 0u);
  const absl::Status lacks = kept.StartReplay(0).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(lacks));
  EXPECT_THAT(std::string(lacks.message()), HasSubstr("server 0 was started again"));
  kept.Keep(0, Push(4));
  kept.DropDurable(Id(1), 3);
  EXPECT_FALSE(kept.StartReplay(0).ok()) << "round 3 is nowhere";
  kept.DropDurable(Id(1), 4);
  ASSERT_TRUE(kept.StartReplay(0).ok());
  EXPECT_THAT(Replay(kept), ElementsAre(4));
}

}  // namespace
}  // namespace slimps
