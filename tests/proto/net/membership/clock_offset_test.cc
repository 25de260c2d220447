// SPDX-License-Identifier: Apache-2.0
// ClockOffset with two fake clocks and a path between them. The test chooses the path's delays.
#include "proto/net/membership/clock_offset.h"

#include <gtest/gtest.h>

#include "proto/base/clock.h"

namespace slimps {
namespace {

class Exchange : public testing::Test {
 protected:
  // Exchanges a question and an answer over a path with these delays. Both clocks advance
  // meanwhile.
  bool Ask(absl::Duration there, absl::Duration back) {
    const absl::Time sent = ours_.WallNow();
    Pass(there);
    const absl::Time theirs = theirs_.WallNow();
    Pass(back);
    return offset_.Add(sent, theirs, ours_.WallNow());
  }
  void Pass(absl::Duration time) {
    ours_.Advance(time);
    theirs_.Advance(time);
  }

  FakeClock ours_, theirs_;
  ClockOffset offset_;
};

TEST_F(Exchange, BeforeTheFirstOneClocksAreTakenAsEqual) {
  EXPECT_EQ(absl::ZeroDuration(), offset_.ahead());
  EXPECT_EQ(absl::InfiniteDuration(), offset_.possible_error());
}

TEST_F(Exchange, OverAnEvenPathItIsExactInBothDirections) {
  ours_.Advance(absl::Seconds(3));
  EXPECT_TRUE(Ask(absl::Milliseconds(2), absl::Milliseconds(2)));
  EXPECT_EQ(absl::Seconds(3), offset_.ahead());
  EXPECT_EQ(absl::Milliseconds(2), offset_.possible_error());
  offset_ = ClockOffset();
  theirs_.Advance(absl::Seconds(10));
  Ask(absl::Milliseconds(2), absl::Milliseconds(2));
  EXPECT_EQ(absl::Seconds(-7), offset_.ahead());
}

TEST_F(Exchange, OverAnUnevenPathTheErrorIsWithinWhatItSays) {
  ours_.Advance(absl::Milliseconds(100));
  for (int there = 0; there <= 10; ++there) {
    offset_ = ClockOffset();
    Ask(absl::Milliseconds(there), absl::Milliseconds(10 - there));
    EXPECT_EQ(absl::Milliseconds(5), offset_.possible_error());
    EXPECT_LE(absl::AbsDuration(offset_.ahead() - absl::Milliseconds(100)), absl::Milliseconds(5));
  }
}

TEST_F(Exchange, TheShortestRoundTripCountsWheneverItComes) {
  ours_.Advance(absl::Milliseconds(50));
  EXPECT_TRUE(Ask(absl::Milliseconds(30), absl::Milliseconds(1)));
  EXPECT_TRUE(Ask(absl::Microseconds(100), absl::Microseconds(100)));
  EXPECT_FALSE(Ask(absl::Milliseconds(1), absl::Milliseconds(9)));
  EXPECT_FALSE(Ask(absl::Microseconds(100), absl::Microseconds(100)));  // no better
  EXPECT_EQ(absl::Milliseconds(50), offset_.ahead());
  EXPECT_EQ(absl::Microseconds(100), offset_.possible_error());
}

TEST_F(Exchange, OneClockStaysOneClockHoweverUnevenThePath) {
  for (int there = 0; there <= 10; ++there) {
    Ask(absl::Milliseconds(there), absl::Milliseconds(10 - there));
    EXPECT_EQ(absl::ZeroDuration(), offset_.ahead());
  }
}

TEST_F(Exchange, AnAnswerFromBeforeTheQuestionIsIgnored) {
  EXPECT_FALSE(offset_.Add(absl::UnixEpoch() + absl::Seconds(2), absl::UnixEpoch(),
                           absl::UnixEpoch() + absl::Seconds(1)));
  EXPECT_EQ(absl::ZeroDuration(), offset_.ahead());
  EXPECT_EQ(absl::InfiniteDuration(), offset_.possible_error());
}

}  // namespace
}  // namespace slimps
