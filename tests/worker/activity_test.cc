// SPDX-License-Identifier: Apache-2.0
#include "worker/activity.h"

#include <optional>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "watch/metrics.h"

namespace slimps {
namespace {

class ActivityTest : public ::testing::Test {
 protected:
  watch::NodeReport Report() const {
    watch::NodeReport report;
    activity_.AddTo(&report);
    return report;
  }
  watch::Activity Shown() const { return Report().activity(); }

  FakeClock clock_;
  Activity activity_{&clock_};
};

TEST_F(ActivityTest, BeforeTheFirstCallThereIsNone) {
  EXPECT_EQ(Shown().call(), "");
  EXPECT_FALSE(Shown().in_progress());
  EXPECT_EQ(Report().samples_size(), 0) << "nothing has travelled";
}

TEST_F(ActivityTest, ACallIsInProgressUntilItReturns) {
  {
    const Activity::Call call(&activity_, "PushNothing");
    clock_.Advance(absl::Seconds(2));
    EXPECT_EQ(Shown().call(), "push_nothing");
    EXPECT_TRUE(Shown().in_progress());
    EXPECT_EQ(Shown().seconds(), 2);
  }
  clock_.Advance(absl::Seconds(3));
  EXPECT_EQ(Shown().call(), "push_nothing");
  EXPECT_FALSE(Shown().in_progress());
  EXPECT_EQ(Shown().seconds(), 3);
  EXPECT_EQ(Report().seconds(), 5);
}

TEST_F(ActivityTest, WaysToPushAndPullAreShownByOneName) {
  for (const auto& [function, shown] :
       {std::pair("PushSum", "push"), std::pair("PushLent", "push"), std::pair("PullTo", "pull"),
        std::pair("PullOnto", "pull"), std::pair("AllReduceSumFor", "all_reduce_sum")}) {
    { const Activity::Call call(&activity_, function); }
    EXPECT_EQ(Shown().call(), shown);
  }
}

TEST_F(ActivityTest, ACallThatWaitsIsShownRatherThanOneThatHasReturned) {
  std::optional<Activity::Call> barrier(std::in_place, &activity_, "Barrier");
  clock_.Advance(absl::Seconds(1));
  std::optional<Activity::Call> pull(std::in_place, &activity_, "Pull");
  EXPECT_EQ(Shown().call(), "pull");
  pull.reset();
  EXPECT_EQ(Shown().call(), "barrier");
  EXPECT_EQ(Shown().seconds(), 1);
  // Calls of several threads end in any order.
  pull.emplace(&activity_, "Pull");
  barrier.reset();
  EXPECT_EQ(Shown().call(), "pull");
  EXPECT_TRUE(Shown().in_progress());
}

TEST_F(ActivityTest, OverlapIsThePartOfTravellingInNoCall) {
  activity_.SetTravels(true);
  clock_.Advance(absl::Seconds(3));
  {
    const Activity::Call call(&activity_, "Pull");
    clock_.Advance(absl::Seconds(1));
    activity_.SetTravels(false);
    clock_.Advance(absl::Seconds(10));
  }
  EXPECT_EQ(SumOf(Report(), Metric::kTravelSeconds), 4);
  EXPECT_EQ(SumOf(Report(), Metric::kOverlapSeconds), 3);
  EXPECT_EQ(SumOf(Report(), Metric::kStageSeconds, {"wait"}), 1);
}

TEST_F(ActivityTest, APositionIsKeptShortAndReadable) {
  activity_.NotePosition("train.py:12");
  EXPECT_EQ(Shown().where(), "train.py:12");
  activity_.NotePosition("\xff\n" + std::string(1000, 'x'));
  EXPECT_EQ(Shown().where().substr(0, 3), "??x");
  EXPECT_EQ(Shown().where().size(), 200u);
}

TEST_F(ActivityTest, WithoutARecordNothingIsNoted) {
  const Activity::Call call(nullptr, "Push");
  EXPECT_EQ(Shown().call(), "");
}

}  // namespace
}  // namespace slimps
