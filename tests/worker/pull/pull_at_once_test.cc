// SPDX-License-Identifier: Apache-2.0
// Several partitions that a PullMerger merges at a time.
#include <vector>

#include "gtest/gtest.h"
#include "tests/proto/base/holding_clock.h"
#include "tests/worker/pull/pull_merger_fixture.h"

namespace slimps {
namespace {

class PullsAtOnce : public PullMergerTest {
 protected:
  HoldingClock clock_{"pull"};
};

TEST_F(PullsAtOnce, TwoPartitionsAreMergedAtTheSameTime) {
  Make({.threads = 2, .clock = &clock_});
  std::vector<float> out(4);
  Outcome outcome;
  const std::vector<wire::PullItem> asked = AskOnto(out, 2, outcome);
  clock_.Arm(2);
  for (const wire::PullItem& item : asked) Answer(item, {.version = 2, .value = 1, .base = 1});
  EXPECT_TRUE(clock_.AwaitAll()) << "one waits for the other";
  clock_.Release();
  EXPECT_TRUE(outcome.Await().ok());
  EXPECT_EQ(out, std::vector<float>(4, 11));
}

TEST_F(PullsAtOnce, ASlowMergeHoldsBackNoOtherPull) {
  Make({.threads = 2, .clock = &clock_});
  std::vector<float> slow(4), fast(4);
  Outcome slow_outcome, fast_outcome;
  const std::vector<wire::PullItem> asked = AskOnto(slow, 2, slow_outcome);
  clock_.Arm(1);
  Answer(asked[0], {.version = 2, .value = 1, .base = 1});
  ASSERT_TRUE(clock_.AwaitAll());
  Submit(3, PullKind::kPlain, fast, fast_outcome);
  for (const wire::PullItem& item : Asked()) Answer(item, {.version = 3, .value = 7});
  EXPECT_TRUE(fast_outcome.Await().ok());
  EXPECT_EQ(fast, std::vector<float>(4, 7));
  EXPECT_FALSE(slow_outcome.done());
  clock_.Release();
  Answer(asked[1], {.version = 2, .value = 1, .base = 1});
  EXPECT_TRUE(slow_outcome.Await().ok());
  EXPECT_EQ(slow, std::vector<float>(4, 11));
}

}  // namespace
}  // namespace slimps
