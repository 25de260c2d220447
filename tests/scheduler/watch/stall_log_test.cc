// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/stall_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scheduler/watch/watch_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class StallLogTest : public testing::Test {
 protected:
  static Wait WaitOf(const std::string& id, std::optional<absl::Duration> age = std::nullopt) {
    return {.id = id,
            .age = age,
            .patience = absl::Seconds(10),
            .before = id + " waits ",
            .after = " for worker 1",
            .over = id + " goes on",
            .blamed = {kWorker1}};
  }
  static SteadyTime At(double seconds) { return SteadyTime() + absl::Seconds(seconds); }

  StallLog log_;
};

TEST_F(StallLogTest, AWaitIsToldAtGrowingIntervalsUntilItIsOver) {
  std::vector<std::string> lines;
  for (int second = 0; second < 50; ++second) {
    for (const std::string& line : log_.Update({WaitOf("round 7")}, At(second))) {
      lines.push_back(line);
    }
  }
  EXPECT_THAT(lines,
              ElementsAre("round 7 waits 10 s for worker 1", "round 7 waits 20 s for worker 1",
                          "round 7 waits 40 s for worker 1"));
  EXPECT_THAT(log_.Update({}, At(50)), ElementsAre("round 7 goes on after 50 s"));
  EXPECT_THAT(log_.Update({}, At(51)), IsEmpty());
  EXPECT_EQ(1u, log_.begun());
}

TEST_F(StallLogTest, LinesHaveAlsoWaitsThatAreNotToldYetTheLongestFirst) {
  Wait explained = WaitOf("call", absl::Seconds(9));
  explained.patience = absl::InfiniteDuration();
  log_.Update({WaitOf("round 7", absl::Seconds(2)), explained, WaitOf("sum", absl::Seconds(5))},
              At(9));
  EXPECT_EQ("sum waits 6 s for worker 1; round 7 waits 3 s for worker 1", log_.Lines(At(10)));
  log_.Update({}, At(11));
  EXPECT_EQ("", log_.Lines(At(11)));
}

TEST_F(StallLogTest, AShortWaitSaysNothing) {
  EXPECT_THAT(log_.Update({WaitOf("round 7")}, At(0)), IsEmpty());
  EXPECT_THAT(log_.Update({WaitOf("round 7")}, At(9)), IsEmpty());
  EXPECT_THAT(log_.Update({WaitOf("round 8")}, At(11)), IsEmpty());
  EXPECT_THAT(log_.Update({}, At(12)), IsEmpty());
  EXPECT_EQ(0u, log_.begun());
}

TEST_F(StallLogTest, AWaitThatKnowsItsAgeIsToldAtOnce) {
  EXPECT_THAT(log_.Update({WaitOf("round 7", absl::Seconds(25))}, At(3)),
              ElementsAre("round 7 waits 25 s for worker 1"));
  EXPECT_THAT(log_.Update({WaitOf("round 7", absl::Seconds(26))}, At(4)), IsEmpty());
  EXPECT_THAT(log_.Update({WaitOf("round 7", absl::Seconds(40))}, At(18)), SizeIs(1));
}

TEST_F(StallLogTest, ThoseThatGoOnAreListedWithTheirTime) {
  log_.Update({WaitOf("round 7", absl::Seconds(12)), WaitOf("round 8", absl::Seconds(2))}, At(12));
  const std::vector<Stall> stalls = log_.GoingOn(At(13));
  ASSERT_THAT(stalls, SizeIs(1));
  EXPECT_EQ("round 7 waits 13 s for worker 1", stalls[0].text);
  EXPECT_EQ(absl::Seconds(13), stalls[0].age);
  EXPECT_THAT(stalls[0].blamed, ElementsAre(kWorker1));
}

TEST_F(StallLogTest, AWaitWhoseEndOthersTellEndsInSilence) {
  Wait wait = WaitOf("worker 1", absl::Seconds(12));
  EXPECT_THAT(log_.Update({wait}, At(12)), SizeIs(1));
  wait.patience = absl::InfiniteDuration();
  wait.over = "";
  EXPECT_THAT(log_.Update({wait}, At(13)), IsEmpty());
  EXPECT_THAT(log_.GoingOn(At(13)), IsEmpty());
  EXPECT_THAT(log_.Update({}, At(14)), IsEmpty());
}

TEST_F(StallLogTest, AWaitForEverIsToldOnce) {
  EXPECT_THAT(log_.Update({WaitOf("round 7", absl::InfiniteDuration())}, At(3)), SizeIs(1));
  EXPECT_THAT(log_.Update({WaitOf("round 7", absl::Seconds(1))}, At(4)), IsEmpty());
}

TEST_F(StallLogTest, AWaitThatIsToldLaterBeginsWithItsPatience) {
  Wait wait = WaitOf("round 7", absl::Seconds(12));
  wait.patience = absl::InfiniteDuration();  // another round is older
  EXPECT_THAT(log_.Update({wait}, At(12)), IsEmpty());
  EXPECT_THAT(log_.Update({WaitOf("round 7", absl::Seconds(13))}, At(13)), SizeIs(1));
  EXPECT_THAT(log_.Update({wait}, At(14)), IsEmpty());
  EXPECT_THAT(log_.Update({}, At(15)), SizeIs(1));
}

TEST_F(StallLogTest, AClearedLogTellsNoEnd) {
  log_.Update({WaitOf("round 7", absl::Seconds(12))}, At(12));
  log_.Clear();
  EXPECT_THAT(log_.Update({}, At(14)), IsEmpty());
}

}  // namespace
}  // namespace slimps
