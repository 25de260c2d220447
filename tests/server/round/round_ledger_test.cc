// SPDX-License-Identifier: Apache-2.0
#include "server/round/round_ledger.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/round/sequence_ledger.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PushRecord Record(uint64_t round, uint32_t worker, uint64_t checksum = 7) {
  return {.round = round,
          .worker = worker,
          .checksum = checksum,
          .format = PayloadFormat::kRawF32,
          .payload = RawPayload({static_cast<float>(worker), static_cast<float>(round)})};
}

absl::StatusCode CodeOf(const absl::StatusOr<PushVerdict>& result) {
  return result.status().code();
}

// Returns the worker numbers that the contributions carry.
std::vector<float> WorkersOf(const std::vector<Contribution>& contributions) {
  std::vector<float> workers;
  for (const Contribution& one : contributions) {
    workers.push_back(one.payload.empty() ? -1 : Floats(one.payload)[0]);
  }
  return workers;
}

TEST(RoundLedger, RoundIsCompleteWhenEachWorkerWasCountedOnce) {
  RoundLedger ledger(3, {});
  EXPECT_EQ(ledger.Push(Record(1, 2)).value(), PushVerdict::kAccepted);
  EXPECT_EQ(ledger.Push(Record(1, 0)).value(), PushVerdict::kAccepted);
  EXPECT_EQ(ledger.Push(Record(1, 0)).value(), PushVerdict::kDuplicate);
  EXPECT_FALSE(ledger.NextRoundComplete());
  EXPECT_THAT(ledger.MissingFromNextRound(), ElementsAre(1));
  EXPECT_EQ(ledger.Push(Record(1, 1)).value(), PushVerdict::kAccepted);
  ASSERT_TRUE(ledger.NextRoundComplete());
  EXPECT_THAT(WorkersOf(ledger.TakeNextRound()), ElementsAre(0, 1, 2));
  EXPECT_EQ(ledger.version(), 1);
  EXPECT_EQ(ledger.waiting_bytes(), 0);
}

TEST(RoundLedger, AWorkerThatIsAwayIsNotWaitedForAndDoesNotContribute) {
  RoundLedger ledger(3, {});
  ASSERT_TRUE(ledger.Push(Record(1, 0)).ok());
  ASSERT_TRUE(ledger.Push(Record(1, 1)).ok());
  ASSERT_TRUE(ledger.Push(Record(2, 1)).ok());
  ASSERT_TRUE(ledger.Push(Record(1, 2)).ok());
  ledger.SetAway(1);
  ASSERT_TRUE(ledger.NextRoundComplete());
  EXPECT_THAT(WorkersOf(ledger.TakeNextRound()), ElementsAre(0, 1, 2)) << "it was counted before";
  EXPECT_THAT(ledger.MissingFromNextRound(), ElementsAre(0, 2));
  ASSERT_TRUE(ledger.Push(Record(2, 0)).ok());
  ASSERT_TRUE(ledger.Push(Record(2, 2)).ok());
  EXPECT_THAT(WorkersOf(ledger.TakeNextRound()), ElementsAre(0, 1, 2));
  ASSERT_TRUE(ledger.Push(Record(3, 2)).ok());
  EXPECT_FALSE(ledger.NextRoundComplete());
  ASSERT_TRUE(ledger.Push(Record(3, 0)).ok());
  EXPECT_THAT(WorkersOf(ledger.TakeNextRound()), ElementsAre(0, 2));
  ledger.Return(1);
  EXPECT_EQ(ledger.StandingOf(1).next_round(), 4u);
  ASSERT_TRUE(ledger.Push(Record(4, 0)).ok());
  ASSERT_TRUE(ledger.Push(Record(4, 2)).ok());
  EXPECT_FALSE(ledger.NextRoundComplete()) << "it is waited for again";
  ASSERT_TRUE(ledger.Push({.round = 4, .worker = 1, .left_out = true}).ok());
  EXPECT_THAT(WorkersOf(ledger.TakeNextRound()), ElementsAre(0, 2));
}

TEST(RoundLedger, WithoutAnyWorkerThereAreNoRounds) {
  RoundLedger ledger(2, {});
  ledger.SetAway(0);
  ledger.SetAway(1);
  EXPECT_FALSE(ledger.NextRoundComplete());
  ledger.Return(0);
  EXPECT_FALSE(ledger.NextRoundComplete());
  ASSERT_TRUE(ledger.Push({.round = 1, .worker = 0, .left_out = true}).ok());
  ASSERT_TRUE(ledger.NextRoundComplete());
  EXPECT_THAT(WorkersOf(ledger.TakeNextRound()), ElementsAre(-1)) << "nothing, as one that is zero";
}

TEST(RoundLedger, WhereTheSumHasPassedAWorkerItReturnsToTheRoundAfter) {
  RoundLedger ledger(3, {});
  ASSERT_TRUE(ledger.Push(Record(1, 1)).ok());
  ledger.SetAway(0);
  EXPECT_THAT(WorkersOf(ledger.Prefix()), ElementsAre(1));
  ledger.ReleasePrefix();
  ledger.Return(0);
  EXPECT_EQ(ledger.StandingOf(0).next_round(), 2u);
  ASSERT_TRUE(ledger.Push(Record(1, 2)).ok());
  ASSERT_TRUE(ledger.NextRoundComplete());
  EXPECT_THAT(WorkersOf(ledger.TakeNextRound()), ElementsAre(2)) << "1 was released";
  EXPECT_THAT(ledger.MissingFromNextRound(), ElementsAre(0, 1, 2));
}

TEST(RoundLedger, AlsoIfTheLedgerWasSavedWhileItWasAway) {
  RoundLedger before(3, {});
  ASSERT_TRUE(before.Push(Record(1, 1)).ok());
  before.SetAway(0);
  before.ReleasePrefix();
  saved::RoundLedger fields;
  PartitionImage image;
  before.Save(&fields, &image);
  RoundLedger ledger(3, {});
  ASSERT_TRUE(ledger.Restore(fields, 2, image).ok());
  EXPECT_EQ(ledger.StandingOf(0).next_round(), 2u);
  ASSERT_TRUE(ledger.Push(Record(1, 2)).ok());
  ASSERT_TRUE(ledger.NextRoundComplete());
  EXPECT_THAT(WorkersOf(ledger.TakeNextRound()), ElementsAre(2));
}

TEST(RoundLedger, ContributionsAreInRankOrderWhateverTheOrderOfArrival) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RoundLedger ledger(4, {});
    std::vector<PushRecord> pushes;
    for (uint32_t worker = 0; worker < 4; ++worker) {
      for (uint64_t round : {1, 2}) {
        pushes.push_back(Record(round, worker));
        pushes.push_back(Record(round, worker));  // each twice
      }
    }
    std::shuffle(pushes.begin(), pushes.end(), std::mt19937_64(seed));
    int accepted = 0;
    for (const PushRecord& push : pushes) {
      accepted += ledger.Push(push).value() == PushVerdict::kAccepted;
    }
    EXPECT_EQ(accepted, 8);
    for (uint64_t round : {1, 2}) {
      ASSERT_TRUE(ledger.NextRoundComplete());
      const std::vector<Contribution> taken = ledger.TakeNextRound();
      EXPECT_THAT(WorkersOf(taken), ElementsAre(0, 1, 2, 3));
      for (const Contribution& one : taken) EXPECT_EQ(Floats(one.payload)[1], round);
    }
    EXPECT_FALSE(ledger.NextRoundComplete());
  }
}

TEST(RoundLedger, AnotherChecksumOfTheSameRoundIsRefusedBeforeAndAfterItWasApplied) {
  RoundLedger ledger(1, {});
  ASSERT_TRUE(ledger.Push(Record(1, 0, 7)).ok());
  const absl::StatusOr<PushVerdict> before = ledger.Push(Record(1, 0, 8));
  EXPECT_EQ(CodeOf(before), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(before.status().message()), HasSubstr("worker 0 pushed round 1"));
  ledger.TakeNextRound();
  EXPECT_EQ(CodeOf(ledger.Push(Record(1, 0, 8))), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ledger.Push(Record(1, 0, 7)).value(), PushVerdict::kDuplicate);
  EXPECT_EQ(ledger.version(), 1);
}

TEST(RoundLedger, SameChecksumInAnotherFormatIsAnotherPush) {
  RoundLedger ledger(2, {});
  ASSERT_TRUE(ledger.Push(Record(1, 0, 0)).ok());
  PushRecord absent{.round = 1, .worker = 0, .checksum = 0};
  EXPECT_EQ(CodeOf(ledger.Push(absent)), absl::StatusCode::kAlreadyExists);
}

TEST(RoundLedger, TwoRoundsAheadAreAcceptedAndAThirdIsNot) {
  RoundLedger ledger(2, {});
  EXPECT_TRUE(ledger.Push(Record(2, 0)).ok());
  EXPECT_TRUE(ledger.Push(Record(1, 0)).ok());
  const absl::StatusOr<PushVerdict> third = ledger.Push(Record(3, 0));
  EXPECT_EQ(CodeOf(third), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(third.status().message()), HasSubstr("at most round 2"));
  ASSERT_TRUE(ledger.Push(Record(1, 1)).ok());
  ledger.TakeNextRound();
  EXPECT_TRUE(ledger.Push(Record(3, 0)).ok());
  EXPECT_THAT(ledger.MissingFromNextRound(), ElementsAre(1));
}

TEST(RoundLedger, APushOlderThanWhatIsRememberedIsARepeatOfWhoTookPart) {
  RoundLedger ledger(2, {});
  ASSERT_TRUE(ledger.Push(Record(1, 1, 1)).ok());
  ASSERT_TRUE(ledger.Leave(1, 2).ok());
  const uint64_t last = 2 * RoundLedger::kRememberedRounds;
  for (uint64_t round = 1; round <= last; ++round) {
    ASSERT_TRUE(ledger.Push(Record(round, 0, round)).ok());
    ledger.TakeNextRound();
  }
  const uint64_t oldest = last + 1 - RoundLedger::kRememberedRounds;
  EXPECT_EQ(CodeOf(ledger.Push(Record(oldest, 0, 99))), absl::StatusCode::kAlreadyExists);
  // An acknowledgement was lost, and the sender's retry arrives late.
  for (uint64_t round = 1; round < oldest; ++round) {
    EXPECT_EQ(ledger.Push(Record(round, 0, round)).value(), PushVerdict::kDuplicate) << round;
  }
  EXPECT_EQ(ledger.Push(Record(1, 1, 1)).value(), PushVerdict::kDuplicate);
  EXPECT_EQ(CodeOf(ledger.Push(Record(2, 1, 2))), absl::StatusCode::kFailedPrecondition)
      << "it had left: that round is complete without it";
  EXPECT_EQ(ledger.version(), last);
  EXPECT_EQ(ledger.waiting_bytes(), 0u);
  EXPECT_FALSE(ledger.NextRoundComplete());
}

TEST(RoundLedger, NonsenseIsRefused) {
  RoundLedger ledger(2, {});
  EXPECT_EQ(CodeOf(ledger.Push(Record(1, 2))), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(ledger.Push(Record(0, 0))), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(ledger.Push(Record(~uint64_t{0}, 0))), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ledger.waiting_bytes(), 0u);
}

TEST(RoundLedger, BytesAreBoundedButWhoseTurnItIsInTheNextRoundIsAlwaysLetIn) {
  RoundLedger ledger(3, std::make_shared<WaitingBytes>(8));  // a push has 8 bytes
  EXPECT_TRUE(ledger.Push(Record(2, 0)).ok());
  EXPECT_EQ(CodeOf(ledger.Push(Record(2, 1))), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CodeOf(ledger.Push(Record(1, 1))), absl::StatusCode::kResourceExhausted);
  for (const uint32_t worker : {0u, 1u, 2u}) EXPECT_TRUE(ledger.Push(Record(1, worker)).ok());
  EXPECT_EQ(ledger.waiting_bytes(), 32);
  ledger.TakeNextRound();
  EXPECT_EQ(ledger.waiting_bytes(), 8);
  EXPECT_TRUE(ledger.Push(Record(2, 1)).ok());
}

TEST(RoundLedger, WhatIsReleasedOfARoundIsItsFirstContributionsOnce) {
  auto waiting = std::make_shared<WaitingBytes>();
  RoundLedger ledger(5, waiting);
  EXPECT_THAT(ledger.Prefix(), IsEmpty());
  ledger.ReleasePrefix();
  ASSERT_TRUE(ledger.Leave(1, 1).ok());
  for (const uint32_t worker : {0u, 2u, 4u}) ASSERT_TRUE(ledger.Push(Record(1, worker)).ok());
  EXPECT_THAT(WorkersOf(ledger.Prefix()), ElementsAre(0, 2)) << "1 has left, 3 is missing";
  EXPECT_EQ(ledger.prefix_bytes(), 16);
  EXPECT_EQ(waiting->bytes(), 24);
  ledger.ReleasePrefix();
  EXPECT_EQ(waiting->bytes(), 8);
  EXPECT_THAT(ledger.Prefix(), IsEmpty());
  EXPECT_EQ(ledger.Push(Record(1, 2)).value(), PushVerdict::kDuplicate);
  EXPECT_EQ(CodeOf(ledger.Push(Record(1, 2, 8))), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ledger.Leave(2, 1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(ledger.MissingFromNextRound(), ElementsAre(3));
  ASSERT_TRUE(ledger.Push(Record(2, 0)).ok());
  ASSERT_TRUE(ledger.Push(Record(1, 3)).ok());
  ASSERT_TRUE(ledger.NextRoundComplete());
  EXPECT_THAT(WorkersOf(ledger.TakeNextRound()), ElementsAre(3, 4));
  EXPECT_EQ(waiting->bytes(), 8) << "of round 2";
  EXPECT_THAT(WorkersOf(ledger.Prefix()), ElementsAre(0)) << "from the first worker again";
}

TEST(RoundLedger, AbsentPushCountsAsAContribution) {
  RoundLedger ledger(2, {});
  ASSERT_TRUE(ledger.Push({.round = 1, .worker = 0}).ok());
  ASSERT_TRUE(ledger.Push(Record(1, 1)).ok());
  const std::vector<Contribution> taken = ledger.TakeNextRound();
  EXPECT_THAT(WorkersOf(taken), ElementsAre(-1, 1));
  EXPECT_EQ(taken[0].format, PayloadFormat::kAbsent);
}

TEST(RoundLedger, LeavingCompletesTheRoundsThatWaitedForTheWorker) {
  RoundLedger ledger(3, {});
  for (uint32_t worker : {0u, 1u}) {
    ASSERT_TRUE(ledger.Push(Record(1, worker)).ok());
    ASSERT_TRUE(ledger.Push(Record(2, worker)).ok());
  }
  ASSERT_TRUE(ledger.Push(Record(1, 2)).ok());
  ASSERT_TRUE(ledger.Leave(2, 2).ok());
  EXPECT_THAT(WorkersOf(ledger.TakeNextRound()), ElementsAre(0, 1, 2));
  ASSERT_TRUE(ledger.NextRoundComplete());
  EXPECT_THAT(WorkersOf(ledger.TakeNextRound()), ElementsAre(0, 1));
  EXPECT_EQ(CodeOf(ledger.Push(Record(3, 2))), absl::StatusCode::kFailedPrecondition);
  // A late repeat of a counted push is still a duplicate.
  EXPECT_EQ(ledger.Push(Record(1, 2)).value(), PushVerdict::kDuplicate);
}

TEST(RoundLedger, LeavingFromRoundZeroMeansTheFirstRoundNotCounted) {
  RoundLedger ledger(2, {});
  ASSERT_TRUE(ledger.Push(Record(1, 1)).ok());
  ASSERT_TRUE(ledger.Leave(1, 0).ok());
  ASSERT_TRUE(ledger.Leave(1, 0).ok());  // a retry
  ASSERT_TRUE(ledger.Push(Record(1, 0)).ok());
  EXPECT_THAT(WorkersOf(ledger.TakeNextRound()), ElementsAre(0, 1));
  ASSERT_TRUE(ledger.Push(Record(2, 0)).ok());
  EXPECT_THAT(WorkersOf(ledger.TakeNextRound()), ElementsAre(0));
}

TEST(RoundLedger, AWorkerCannotLeaveARoundThatItTookPartIn) {
  RoundLedger ledger(2, {});
  ASSERT_TRUE(ledger.Push(Record(1, 0)).ok());
  EXPECT_EQ(ledger.Leave(0, 1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(ledger.Leave(0, 2).ok());
  EXPECT_EQ(ledger.Leave(5, 2).code(), absl::StatusCode::kInvalidArgument);
}

TEST(RoundLedger, OnceAllHaveLeftNoMoreRoundsAreComplete) {
  RoundLedger ledger(2, {});
  ASSERT_TRUE(ledger.Leave(0, 1).ok());
  ASSERT_TRUE(ledger.Leave(1, 1).ok());
  EXPECT_FALSE(ledger.NextRoundComplete());
  EXPECT_THAT(ledger.MissingFromNextRound(), IsEmpty());
}

TEST(SequenceLedger, EachSequenceIsAcceptedOnceInAnyOrderWithinTheWindow) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SequenceLedger ledger(2);
    std::mt19937_64 random(seed);
    int accepted = 0;
    for (uint64_t base = 0; base < 4 * SequenceLedger::kWindow; base += SequenceLedger::kWindow) {
      std::vector<uint64_t> sequences;
      for (uint64_t i = 1; i <= SequenceLedger::kWindow; ++i) {
        sequences.insert(sequences.end(), 2, base + i);  // each twice
      }
      std::shuffle(sequences.begin(), sequences.end(), random);
      for (const uint64_t sequence : sequences) {
        accepted += ledger.Push(sequence, 1, 2 * sequence).value() == PushVerdict::kAccepted;
      }
    }
    EXPECT_EQ(accepted, 4 * SequenceLedger::kWindow);
  }
}

TEST(SequenceLedger, WorkersCountApart) {
  SequenceLedger ledger(2);
  EXPECT_EQ(ledger.Push(1, 0, 5).value(), PushVerdict::kAccepted);
  EXPECT_EQ(ledger.Push(1, 1, 6).value(), PushVerdict::kAccepted);
  EXPECT_EQ(CodeOf(ledger.Push(1, 1, 5)), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(CodeOf(ledger.Push(1, 2, 5)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(ledger.Push(0, 0, 5)), absl::StatusCode::kInvalidArgument);
}

TEST(SequenceLedger, BeyondTheWindowIsRefusedAndWhatIsForgottenIsARepeat) {
  SequenceLedger ledger(1);
  EXPECT_EQ(CodeOf(ledger.Push(SequenceLedger::kWindow + 1, 0, 0)),
            absl::StatusCode::kResourceExhausted);
  for (uint64_t sequence = 1; sequence <= 3 * SequenceLedger::kWindow; ++sequence) {
    ASSERT_EQ(ledger.Push(sequence, 0, 0).value(), PushVerdict::kAccepted);
  }
  EXPECT_EQ(ledger.Push(1, 0, 0).value(), PushVerdict::kDuplicate);
  EXPECT_EQ(CodeOf(ledger.Push(3 * SequenceLedger::kWindow, 0, 1)),
            absl::StatusCode::kAlreadyExists)
      << "remembered";
  EXPECT_EQ(ledger.slowest(), 3 * SequenceLedger::kWindow);
  EXPECT_EQ(ledger.Push(3 * SequenceLedger::kWindow, 0, 0).value(), PushVerdict::kDuplicate);
}

}  // namespace
}  // namespace slimps
