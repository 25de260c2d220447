// SPDX-License-Identifier: Apache-2.0
#include "server/round/sequence_ledger.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kEveryoneLeft = std::numeric_limits<uint64_t>::max();

absl::StatusCode CodeOf(const absl::StatusOr<PushVerdict>& verdict) {
  return verdict.status().code();
}

struct Pushes {
  uint32_t worker = 0;
  uint64_t from = 1;
  uint64_t to = 0;
};

void PushUpTo(SequenceLedger& ledger, const Pushes& pushes) {
  for (uint64_t sequence = pushes.from; sequence <= pushes.to; ++sequence) {
    EXPECT_EQ(ledger.Push(sequence, pushes.worker, sequence).value(), PushVerdict::kAccepted)
        << "worker " << pushes.worker << " push " << sequence;
  }
}

TEST(SequenceLedger, WithoutABoundNobodyWaits) {
  SequenceLedger ledger(2);
  PushUpTo(ledger, {.worker = 0, .to = 100});
  EXPECT_EQ(ledger.ReadsFrom(0), 0);
  EXPECT_EQ(ledger.slowest(), 0);
}

TEST(SequenceLedger, AClockCountsPushesWithoutAGap) {
  SequenceLedger ledger(1, 0);
  ASSERT_TRUE(ledger.Push(1, 0, 1).ok());
  EXPECT_EQ(ledger.slowest(), 1);
  SequenceLedger wide(2, 9);
  ASSERT_TRUE(wide.Push(1, 0, 1).ok());
  ASSERT_TRUE(wide.Push(3, 0, 3).ok());
  PushUpTo(wide, {.worker = 1, .to = 5});
  EXPECT_EQ(wide.slowest(), 1) << "push 2 of worker 0 is missing";
  ASSERT_TRUE(wide.Push(2, 0, 2).ok());
  EXPECT_EQ(wide.slowest(), 3);
}

TEST(SequenceLedger, ReadsWaitForTheSlowestLessTheStaleness) {
  SequenceLedger ledger(3, 2);
  PushUpTo(ledger, {.worker = 0, .to = 3});
  EXPECT_EQ(ledger.ReadsFrom(0), 1);
  EXPECT_EQ(ledger.ReadsFrom(1), 0) << "who has pushed nothing waits for nobody";
  PushUpTo(ledger, {.worker = 1, .to = 1});
  EXPECT_EQ(ledger.slowest(), 0);
  EXPECT_THAT(ledger.Below(1), ElementsAre(2));
  EXPECT_THAT(ledger.Below(2), ElementsAre(1, 2));
  PushUpTo(ledger, {.worker = 2, .to = 1});
  EXPECT_EQ(ledger.slowest(), 1);
  EXPECT_THAT(ledger.Below(1), IsEmpty());
}

TEST(SequenceLedger, APushMoreThanTheBoundAheadIsToBeTriedAgain) {
  SequenceLedger ledger(2, 2);
  PushUpTo(ledger, {.worker = 0, .to = 3});
  const absl::StatusOr<PushVerdict> ahead = ledger.Push(4, 0, 4);
  EXPECT_EQ(CodeOf(ahead), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ahead.status().message(),
            "worker 0 pushes round 4, too far ahead: the slowest has pushed 0, staleness 2");
  EXPECT_EQ(ledger.Push(3, 0, 3).value(), PushVerdict::kDuplicate) << "a repeat is no new round";
  PushUpTo(ledger, {.worker = 1, .to = 1});
  PushUpTo(ledger, {.worker = 0, .from = 4, .to = 4});
  EXPECT_EQ(CodeOf(ledger.Push(5, 0, 5)), absl::StatusCode::kResourceExhausted);
}

TEST(SequenceLedger, StalenessZeroLetsNobodyBeginARoundAlone) {
  SequenceLedger ledger(2, 0);
  PushUpTo(ledger, {.worker = 0, .to = 1});
  EXPECT_EQ(ledger.ReadsFrom(0), 1);
  EXPECT_EQ(CodeOf(ledger.Push(2, 0, 2)), absl::StatusCode::kResourceExhausted);
  PushUpTo(ledger, {.worker = 1, .to = 2});
  EXPECT_EQ(ledger.slowest(), 1);
  PushUpTo(ledger, {.worker = 0, .from = 2, .to = 2});
}

TEST(SequenceLedger, AStalenessBeyondEveryCountIsNoBound) {
  SequenceLedger ledger(2, std::numeric_limits<uint32_t>::max());
  PushUpTo(ledger, {.worker = 0, .to = 1000});
  EXPECT_EQ(ledger.ReadsFrom(0), 0);
}

TEST(SequenceLedger, WhoLeftIsNotWaitedFor) {
  SequenceLedger ledger(3, 1);
  PushUpTo(ledger, {.worker = 0, .to = 2});
  PushUpTo(ledger, {.worker = 1, .to = 1});
  EXPECT_EQ(ledger.slowest(), 0);
  ASSERT_TRUE(ledger.Leave(2, 0).ok());
  EXPECT_EQ(ledger.slowest(), 1);
  PushUpTo(ledger, {.worker = 0, .from = 3, .to = 3});
  EXPECT_EQ(CodeOf(ledger.Push(1, 2, 1)), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ledger.ReadsFrom(0), 2);
  EXPECT_THAT(ledger.Below(2), ElementsAre(1)) << "worker 2 holds nobody";
  ASSERT_TRUE(ledger.Leave(2, 0).ok()) << "again";
  ASSERT_TRUE(ledger.Leave(1, 0).ok());
  EXPECT_EQ(ledger.slowest(), 3);
  ASSERT_TRUE(ledger.Leave(0, 0).ok());
  EXPECT_EQ(ledger.slowest(), kEveryoneLeft);
  EXPECT_EQ(ledger.ReadsFrom(0), 2) << "it may still read what all have reached";
}

TEST(SequenceLedger, WhoLeavesLaterIsWaitedForUntilThen) {
  SequenceLedger ledger(2, 1);
  ASSERT_TRUE(ledger.Leave(1, 3).ok());
  PushUpTo(ledger, {.worker = 0, .to = 2});
  EXPECT_EQ(CodeOf(ledger.Push(3, 0, 3)), absl::StatusCode::kResourceExhausted);
  PushUpTo(ledger, {.worker = 1, .to = 2});
  EXPECT_EQ(ledger.slowest(), 2) << "worker 1 is done, worker 0 is all there is";
  PushUpTo(ledger, {.worker = 0, .from = 3, .to = 9});
  EXPECT_EQ(CodeOf(ledger.Push(3, 1, 3)), absl::StatusCode::kFailedPrecondition);
}

TEST(SequenceLedger, LeavingFromAPushThatWasAppliedIsRefused) {
  SequenceLedger ledger(2, 5);
  PushUpTo(ledger, {.worker = 1, .to = 2});
  const absl::Status refused = ledger.Leave(1, 2);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.message(), "worker 1 leaves from push 2 on, but its push 2 was applied");
  EXPECT_EQ(ledger.Leave(7, 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ledger.Leave(1, 9).ok());
  EXPECT_TRUE(ledger.Leave(1, 3).ok()) << "an earlier end";
  EXPECT_TRUE(ledger.Leave(1, 12).ok()) << "and a later one, which changes nothing";
  EXPECT_EQ(CodeOf(ledger.Push(3, 1, 3)), absl::StatusCode::kFailedPrecondition);
}

// Workers push and read in any order. A worker that reads is at most s rounds ahead of the slowest,
// and at least one worker can always go on.
TEST(SequenceLedger, RandomOrdersNeverBreakTheBoundNorStandStill) {
  for (uint32_t staleness = 0; staleness < 4; ++staleness) {
    constexpr uint32_t kWorkers = 3;
    SequenceLedger ledger(kWorkers, staleness);
    std::mt19937 random(staleness);
    std::vector<uint64_t> clocks(kWorkers, 0);
    uint64_t farthest = 0;
    for (int step = 0; step < 3000; ++step) {
      const uint32_t worker = random() % kWorkers * (random() % 2);  // worker 0 is the fastest
      const uint64_t slowest = *std::min_element(clocks.begin(), clocks.end());
      ASSERT_EQ(ledger.slowest(), slowest);
      const bool may_read = ledger.slowest() >= ledger.ReadsFrom(worker);
      ASSERT_EQ(may_read, clocks[worker] <= slowest + staleness);
      const bool taken = ledger.Push(clocks[worker] + 1, worker, step).ok();
      ASSERT_EQ(taken, may_read) << "who may read may push";
      if (taken) ++clocks[worker];
      farthest = std::max(farthest, clocks[worker] - slowest);
    }
    EXPECT_EQ(farthest, staleness + 1) << "a push ends the round in which its worker read";
    EXPECT_GT(*std::min_element(clocks.begin(), clocks.end()), 200);
  }
}

}  // namespace
}  // namespace slimps
