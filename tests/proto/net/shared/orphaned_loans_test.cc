// SPDX-License-Identifier: Apache-2.0
// Payloads lent to other processes are kept for as long as those may read them.
#include "proto/net/shared/orphaned_loans.h"

#include <gtest/gtest.h>

#include <memory>

#include "proto/net/shared/process_watch.h"
#include "tests/proto/net/shared/child_process.h"
#include "tests/proto/net/shared/sharing_test_util.h"

namespace slimps {
namespace {

class OrphanedLoansTest : public testing::Test {
 protected:
  // Returns a payload whose lifetime IsThere() reports.
  Payload Lent() {
    auto owner = std::make_shared<int>(7);
    lent_ = owner;
    return Payload(owner, std::as_bytes(std::span<const int>(owner.get(), 1)));
  }
  bool IsThere() const { return !lent_.expired(); }

  std::weak_ptr<int> lent_;
  OrphanedLoans loans_;
};

TEST_F(OrphanedLoansTest, WhatALivingProcessReadsIsKeptUntilItHasEnded) {
  Child child;
  loans_.Keep(child.pid(), Lent());
  loans_.Sweep();
  EXPECT_TRUE(IsThere());
  child.End();
  loans_.Sweep();
  EXPECT_FALSE(IsThere());
  EXPECT_EQ(loans_.size(), 0u);
}

TEST_F(OrphanedLoansTest, TheNextToBeKeptReleasesWhatTheDeadHad) {
  Child first, second;
  loans_.Keep(first.pid(), Lent());
  const std::weak_ptr<int> of_first = lent_;
  first.End();
  loans_.Keep(second.pid(), Lent());
  EXPECT_TRUE(of_first.expired());
  EXPECT_TRUE(IsThere());
}

TEST_F(OrphanedLoansTest, OfAProcessThatHasEndedNothingIsKept) {
  Child child;
  const uint64_t pid = child.pid();
  child.End();
  loans_.Keep(pid, Lent());
  EXPECT_FALSE(IsThere());
}

TEST_F(OrphanedLoansTest, WhatCannotBeWatchedIsKeptForEver) {
  Child child;
  {
    const NoMoreDescriptors none;
    loans_.Keep(child.pid(), Lent());
  }
  EXPECT_TRUE(IsThere());
  child.End();
  loans_.Sweep();
  EXPECT_TRUE(IsThere());
  EXPECT_EQ(loans_.size(), 1u);
}

TEST(ProcessWatch, TellsTheDeadFromThoseThatCannotBeWatched) {
  ProcessWatch watch;
  ASSERT_TRUE(watch.ok());
  Child child;
  const uint64_t pid = child.pid();
  {
    const NoMoreDescriptors none;
    EXPECT_EQ(watch.Add(pid).code(), absl::StatusCode::kUnavailable);
    EXPECT_FALSE(ProcessWatch().ok());
  }
  ASSERT_TRUE(watch.Add(pid).ok());
  EXPECT_TRUE(watch.TakeEnded().empty());
  child.End();
  EXPECT_EQ(watch.Add(pid).code(), absl::StatusCode::kNotFound);  // even before its end is taken
  EXPECT_EQ(watch.TakeEnded(), std::vector<uint64_t>{pid});
  EXPECT_EQ(watch.Add(pid).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace slimps
