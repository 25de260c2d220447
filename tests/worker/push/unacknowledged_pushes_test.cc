// SPDX-License-Identifier: Apache-2.0
#include "worker/push/unacknowledged_pushes.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class UnacknowledgedPushesTest : public ::testing::Test {
 protected:
  bool Await(KeyId key, int number) {
    return pushes_.Await(key, [this, number](const absl::Status&) { told_.push_back(number); });
  }

  // Takes an acknowledgement. Returns the waiters that it tells.
  std::vector<int> Take(KeyId key, uint64_t turn, size_t partitions = 1) {
    return Told(pushes_.Take(key, turn, partitions));
  }
  std::vector<int> Told(const UnacknowledgedPushes::Waiters& waiters) {
    told_.clear();
    UnacknowledgedPushes::Tell(waiters, absl::OkStatus());
    return told_;
  }

  UnacknowledgedPushes pushes_;
  std::vector<int> told_;
};

TEST_F(UnacknowledgedPushesTest, NothingIsWaitedForWhereNothingIsUnderWay) {
  EXPECT_FALSE(Await(1, 0));
  const uint64_t turn = pushes_.Add(1, 2);
  EXPECT_FALSE(Await(2, 0)) << "another key";
  EXPECT_THAT(Take(1, turn, 2), IsEmpty());
  EXPECT_FALSE(Await(1, 0));
  EXPECT_EQ(pushes_.size(), 0);
}

TEST_F(UnacknowledgedPushesTest, AWaiterIsToldByTheLastPartition) {
  const uint64_t turn = pushes_.Add(1, 3);
  EXPECT_TRUE(Await(1, 7));
  EXPECT_TRUE(Await(1, 8));
  EXPECT_THAT(Take(1, turn), IsEmpty());
  EXPECT_THAT(Take(1, turn), IsEmpty());
  EXPECT_EQ(pushes_.size(), 1);
  EXPECT_THAT(Take(1, turn), ElementsAre(7, 8));
}

// If one thread never stops pushing, another thread must still get its answer.
TEST_F(UnacknowledgedPushesTest, PushesAfterAWaiterAreNotWaitedFor) {
  const uint64_t first = pushes_.Add(1, 1);
  EXPECT_TRUE(Await(1, 1));
  const uint64_t second = pushes_.Add(1, 1);
  EXPECT_TRUE(Await(1, 2));
  const uint64_t third = pushes_.Add(1, 1);
  EXPECT_THAT(Take(1, third), IsEmpty());
  EXPECT_THAT(Take(1, first), ElementsAre(1));
  EXPECT_THAT(Take(1, second), ElementsAre(2));
}

TEST_F(UnacknowledgedPushesTest, AnswersOutOfOrderWaitForTheOldest) {
  const uint64_t first = pushes_.Add(1, 1);
  EXPECT_TRUE(Await(1, 1));
  const uint64_t second = pushes_.Add(1, 1);
  EXPECT_TRUE(Await(1, 2));
  EXPECT_THAT(Take(1, second), IsEmpty());
  EXPECT_THAT(Take(1, first), ElementsAre(1, 2));
}

TEST_F(UnacknowledgedPushesTest, AllWaitersCanBeTakenAtOnce) {
  const uint64_t turn = pushes_.Add(1, 1);
  (void)pushes_.Add(2, 1);
  EXPECT_TRUE(Await(1, 1));
  EXPECT_TRUE(Await(2, 2));
  EXPECT_THAT(Told(pushes_.TakeWaiters()), UnorderedElementsAre(1, 2));
  EXPECT_THAT(Take(1, turn), IsEmpty());
  EXPECT_EQ(pushes_.size(), 1);
}

}  // namespace
}  // namespace slimps
