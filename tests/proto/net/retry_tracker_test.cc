// SPDX-License-Identifier: Apache-2.0
#include "proto/net/retry_tracker.h"

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

TEST(RetryTracker, AnAnsweredItemIsNeverResent) {
  RetryTracker tracker(Fast());
  ASSERT_TRUE(tracker.Add(1, 10, kStart + absl::Seconds(60), kStart).ok());
  EXPECT_TRUE(tracker.OnAnswer(1));
  EXPECT_FALSE(tracker.OnAnswer(1)) << "a late duplicate is told apart";
  EXPECT_TRUE(tracker.TakeDue(kStart + absl::Hours(1)).resend.empty());
  EXPECT_EQ(tracker.NextWake(), SteadyTime::InfiniteFuture());
  EXPECT_EQ(tracker.bytes_in_flight(), 0u);
}

TEST(RetryTracker, ResendsBackOffUpToTheLongestInterval) {
  RetryTracker tracker(Fast());
  ASSERT_TRUE(tracker.Add(7, 10, kStart + absl::Seconds(60), kStart).ok());
  SteadyTime now = kStart;
  for (const int seconds : {1, 2, 3, 3}) {
    EXPECT_EQ(tracker.NextWake(), now + absl::Seconds(seconds));
    EXPECT_TRUE(tracker.TakeDue(tracker.NextWake() - absl::Nanoseconds(1)).resend.empty());
    now = tracker.NextWake();
    const RetryTracker::Due due = tracker.TakeDue(now);
    EXPECT_EQ(due.resend, std::vector<uint64_t>{7});
    EXPECT_TRUE(due.expired.empty());
  }
}

TEST(RetryTracker, ALateCallerResendsOnceNotOncePerInterval) {
  RetryTracker tracker(Fast());
  ASSERT_TRUE(tracker.Add(7, 10, kStart + absl::Hours(2), kStart).ok());
  EXPECT_EQ(tracker.TakeDue(kStart + absl::Hours(1)).resend.size(), 1u);
  EXPECT_TRUE(tracker.TakeDue(kStart + absl::Hours(1)).resend.empty());
}

TEST(RetryTracker, WhatIsPostponedIsDueThenButNeverPastItsDeadline) {
  RetryTracker tracker(Fast());
  ASSERT_TRUE(tracker.Add(7, 10, kStart + absl::Seconds(60), kStart).ok());
  EXPECT_EQ(tracker.TakeDue(kStart + absl::Seconds(1)).resend, std::vector<uint64_t>{7});
  tracker.Postpone(7, kStart + absl::Seconds(9));
  tracker.Postpone(8, kStart);  // not in flight
  EXPECT_EQ(tracker.NextWake(), kStart + absl::Seconds(9));
  EXPECT_EQ(tracker.TakeDue(kStart + absl::Seconds(9)).resend, std::vector<uint64_t>{7});
  tracker.Postpone(7, kStart + absl::Hours(1));
  EXPECT_EQ(tracker.TakeDue(kStart + absl::Seconds(60)).expired, std::vector<uint64_t>{7});
  EXPECT_EQ(tracker.NextWake(), SteadyTime::InfiniteFuture());
}

TEST(RetryTracker, PostponingDoesNotLengthenTheIntervalsBetweenResends) {
  RetryTracker tracker(Fast());
  ASSERT_TRUE(tracker.Add(7, 10, kStart + absl::Seconds(60), kStart).ok());
  SteadyTime now = kStart;
  for (int i = 0; i < 5; ++i) {
    now = tracker.NextWake();
    EXPECT_EQ(tracker.TakeDue(now).resend, std::vector<uint64_t>{7});
    tracker.Postpone(7, now + absl::Seconds(1));
  }
  for (const int seconds : {1, 2, 3, 3}) {  // as if it had been added just now
    EXPECT_EQ(tracker.NextWake(), now + absl::Seconds(seconds));
    now = tracker.NextWake();
    EXPECT_EQ(tracker.TakeDue(now).resend, std::vector<uint64_t>{7});
  }
}

TEST(RetryTracker, TheDeadlineExpiresAnItemInsteadOfResendingIt) {
  RetryTracker tracker(Fast());
  ASSERT_TRUE(tracker.Add(1, 10, kStart + absl::Milliseconds(500), kStart).ok());
  ASSERT_TRUE(tracker.Add(2, 10, kStart + absl::Seconds(9), kStart).ok());
  EXPECT_EQ(tracker.NextWake(), kStart + absl::Milliseconds(500));
  const RetryTracker::Due due = tracker.TakeDue(kStart + absl::Seconds(1));
  EXPECT_EQ(due.expired, std::vector<uint64_t>{1});
  EXPECT_EQ(due.resend, std::vector<uint64_t>{2});
  EXPECT_FALSE(tracker.OnAnswer(1));
  EXPECT_EQ(tracker.items_in_flight(), 1u);
}

TEST(RetryTracker, ItemsAndBytesInFlightAreBounded) {
  RetryOptions options = Fast();
  options.max_items = 2;
  options.max_bytes = 100;
  RetryTracker tracker(options);
  const SteadyTime deadline = kStart + absl::Seconds(60);
  ASSERT_TRUE(tracker.Add(1, 60, deadline, kStart).ok());
  EXPECT_EQ(tracker.Add(1, 1, deadline, kStart).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(tracker.Add(2, 41, deadline, kStart).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(tracker.Add(2, 40, deadline, kStart).ok());
  EXPECT_EQ(tracker.Add(3, 0, deadline, kStart).code(), absl::StatusCode::kResourceExhausted);
  tracker.OnAnswer(1);
  EXPECT_TRUE(tracker.Add(3, 60, deadline, kStart).ok());
}

}  // namespace
}  // namespace slimps
