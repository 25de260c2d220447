// SPDX-License-Identifier: Apache-2.0
#include "worker/courier/retry_tracker.h"

#include <gtest/gtest.h>

#include "proto/base/clock.h"

namespace slimps {
namespace {

const SteadyTime kStart = SteadyTime();

RetryOptions Fast() {
  RetryOptions options;
  options.first_interval = absl::Seconds(1);
  options.backoff = 2;
  options.max_interval = absl::Seconds(3);
  return options;
}

// True if nothing will ever be due.
bool IsIdle(RetryTracker& tracker) {
  const RetryTracker::Due due = tracker.TakeDue(SteadyTime::InfiniteFuture());
  return due.resend.empty() && due.expired.empty();
}

// Checks that item 7 is due at `when` and not earlier, and takes it.
void ExpectResentAt(RetryTracker& tracker, SteadyTime when) {
  EXPECT_TRUE(tracker.TakeDue(when - absl::Nanoseconds(1)).resend.empty());
  const RetryTracker::Due due = tracker.TakeDue(when);
  EXPECT_EQ(due.resend, std::vector<uint64_t>{7});
  EXPECT_TRUE(due.expired.empty());
}

TEST(RetryTracker, AnAnsweredItemIsNeverResent) {
  RetryTracker tracker(Fast());
  tracker.Add(1, kStart + absl::Seconds(60), kStart);
  EXPECT_TRUE(tracker.OnAnswer(1));
  EXPECT_FALSE(tracker.OnAnswer(1)) << "a late duplicate is told apart";
  EXPECT_TRUE(IsIdle(tracker));
}

TEST(RetryTracker, ResendsBackOffUpToTheLongestInterval) {
  RetryTracker tracker(Fast());
  tracker.Add(7, kStart + absl::Seconds(60), kStart);
  SteadyTime now = kStart;
  for (const int seconds : {1, 2, 3, 3}) {
    now += absl::Seconds(seconds);
    ExpectResentAt(tracker, now);
  }
}

TEST(RetryTracker, ALateCallerResendsOnceNotOncePerInterval) {
  RetryTracker tracker(Fast());
  tracker.Add(7, kStart + absl::Hours(2), kStart);
  EXPECT_EQ(tracker.TakeDue(kStart + absl::Hours(1)).resend.size(), 1u);
  EXPECT_TRUE(tracker.TakeDue(kStart + absl::Hours(1)).resend.empty());
}

TEST(RetryTracker, WhatIsPostponedIsDueThenButNeverPastItsDeadline) {
  RetryTracker tracker(Fast());
  tracker.Add(7, kStart + absl::Seconds(60), kStart);
  EXPECT_EQ(tracker.TakeDue(kStart + absl::Seconds(1)).resend, std::vector<uint64_t>{7});
  tracker.Postpone(7, kStart + absl::Seconds(9));
  tracker.Postpone(8, kStart);  // not in flight
  ExpectResentAt(tracker, kStart + absl::Seconds(9));
  tracker.Postpone(7, kStart + absl::Hours(1));
  EXPECT_EQ(tracker.TakeDue(kStart + absl::Seconds(60)).expired, std::vector<uint64_t>{7});
  EXPECT_TRUE(IsIdle(tracker));
}

TEST(RetryTracker, PostponingDoesNotLengthenTheIntervalsBetweenResends) {
  RetryTracker tracker(Fast());
  tracker.Add(7, kStart + absl::Seconds(60), kStart);
  SteadyTime now = kStart;
  for (int i = 0; i < 5; ++i) {
    now += absl::Seconds(1);
    ExpectResentAt(tracker, now);
    tracker.Postpone(7, now + absl::Seconds(1));
  }
  for (const int seconds : {1, 2, 3, 3}) {  // as if it had been added just now
    now += absl::Seconds(seconds);
    ExpectResentAt(tracker, now);
  }
}

TEST(RetryTracker, TheDeadlineExpiresAnItemInsteadOfResendingIt) {
  RetryTracker tracker(Fast());
  tracker.Add(1, kStart + absl::Milliseconds(500), kStart);
  tracker.Add(2, kStart + absl::Seconds(9), kStart);
  const RetryTracker::Due due = tracker.TakeDue(kStart + absl::Seconds(1));
  EXPECT_EQ(due.expired, std::vector<uint64_t>{1});
  EXPECT_EQ(due.resend, std::vector<uint64_t>{2});
  EXPECT_FALSE(tracker.OnAnswer(1));
  EXPECT_TRUE(tracker.OnAnswer(2));
}

}  // namespace
}  // namespace slimps
