// SPDX-License-Identifier: Apache-2.0
#include "proto/base/clock.h"

#include <gtest/gtest.h>

#include <concepts>
#include <sstream>

namespace slimps {
namespace {

template <typename A, typename B>
concept Comparable = requires(A a, B b) {
  a < b;
}
|| requires(A a, B b) { a == b; };
template <typename A, typename B>
concept Subtractable = requires(A a, B b) {
  a - b;
};
template <typename A, typename B>
concept Addable = requires(A a, B b) {
  a + b;
};

// Steady and wall time do not mix.
static_assert(Comparable<SteadyTime, SteadyTime> && Comparable<absl::Time, absl::Time>);
static_assert(!Comparable<SteadyTime, absl::Time> && !Comparable<absl::Time, SteadyTime>);
static_assert(!Subtractable<SteadyTime, absl::Time> && !Subtractable<absl::Time, SteadyTime>);
static_assert(!std::convertible_to<SteadyTime, absl::Time>);
static_assert(!std::convertible_to<absl::Time, SteadyTime>);
static_assert(!std::constructible_from<SteadyTime, absl::Time>);
static_assert(!std::constructible_from<absl::Time, SteadyTime>);
// A duration is not a moment, and two moments have no sum.
static_assert(!Comparable<SteadyTime, absl::Duration>);
static_assert(!std::constructible_from<SteadyTime, absl::Duration>);
static_assert(Addable<SteadyTime, absl::Duration> && !Addable<SteadyTime, SteadyTime>);
static_assert(std::same_as<decltype(SteadyTime() - SteadyTime()), absl::Duration>);

TEST(SteadyTime, DifferencesAreDurations) {
  const SteadyTime start;
  const SteadyTime later = start + absl::Seconds(3);
  EXPECT_EQ(absl::Seconds(3), later - start);
  EXPECT_EQ(absl::Seconds(-3), start - later);
  EXPECT_EQ(start, later - absl::Seconds(3));
  EXPECT_LT(start, later);
  EXPECT_EQ(later, SteadyTime::AtEpochPlus(absl::Seconds(3)));
}

TEST(SteadyTime, InfinitiesStayWhateverIsAdded) {
  const SteadyTime never = SteadyTime::InfiniteFuture(), always = SteadyTime::InfinitePast();
  EXPECT_EQ(never, never - absl::Hours(1));
  EXPECT_EQ(always, always + absl::Hours(1));
  EXPECT_LT(always, SteadyTime());
  EXPECT_LT(SteadyTime(), never);
  EXPECT_EQ(absl::InfiniteDuration(), never - SteadyTime());
  EXPECT_EQ(never, SteadyTime() + absl::InfiniteDuration());
}

TEST(SteadyTime, ATestShowsItAsSteady) {
  std::ostringstream text;
  text << SteadyTime() + absl::Milliseconds(1500);
  EXPECT_EQ("steady 1.5s", text.str());
}

TEST(RealClock, NeverGoesBack) {
  const RealClock clock;
  SteadyTime last = clock.Now();
  for (int i = 0; i < 1000; ++i) {
    const SteadyTime now = clock.Now();
    ASSERT_LE(last, now);
    last = now;
  }
}

TEST(FakeClock, AStepOfTheWallClockIsNoTimeThatGoesBy) {
  FakeClock clock;
  const SteadyTime steady = clock.Now();
  const absl::Time wall = clock.WallNow();
  clock.StepWall(absl::Hours(-5));
  EXPECT_EQ(steady, clock.Now());
  EXPECT_EQ(wall - absl::Hours(5), clock.WallNow());
  clock.Advance(absl::Seconds(1));
  EXPECT_EQ(steady + absl::Seconds(1), clock.Now());
  EXPECT_EQ(wall - absl::Hours(5) + absl::Seconds(1), clock.WallNow());
}

TEST(WallAnchor, TellsTheWallTimeOfASteadyOneWhateverIsSetLater) {
  FakeClock clock;
  clock.Advance(absl::Hours(1));
  const WallAnchor anchor = ReadAnchor(clock);
  const absl::Time wall = clock.WallNow();
  clock.StepWall(absl::Hours(7));
  clock.Advance(absl::Seconds(2));
  EXPECT_EQ(wall + absl::Seconds(2), anchor.At(clock.Now()));
}

// Each steady reading takes longer than the last but one.
class SlowClock final : public Clock {
 public:
  SteadyTime Now() const override {
    now_ += ++readings_ == 4 ? absl::Microseconds(1) : absl::Seconds(1);
    return now_;
  }
  absl::Time WallNow() const override { return absl::UnixEpoch() + (now_ - SteadyTime()); }

 private:
  mutable int readings_ = 0;
  mutable SteadyTime now_;
};

TEST(WallAnchor, TheClosestReadingOfBothClocksCounts) {
  const SlowClock clock;
  const WallAnchor anchor = ReadAnchor(clock);
  EXPECT_LE(absl::AbsDuration(anchor.At(SteadyTime()) - absl::UnixEpoch()), absl::Microseconds(1));
}

}  // namespace
}  // namespace slimps
