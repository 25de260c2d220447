// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cluster/intervals.h"

#include <random>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

SteadyTime At(int64_t ms) { return SteadyTime() + absl::Milliseconds(ms); }
Interval Between(int64_t begin, int64_t end) { return {At(begin), At(end)}; }
int64_t Ms(const IntervalSet& set) { return set.Length() / absl::Milliseconds(1); }

TEST(IntervalSet, OverlappingAndTouchingOnesAreJoinedWhateverTheirOrder) {
  const IntervalSet set({Between(5, 7), Between(0, 2), Between(1, 3), Between(3, 4)});
  EXPECT_THAT(set.parts(), ElementsAre(Between(0, 4), Between(5, 7)));
  EXPECT_EQ(Ms(set), 6);
}

TEST(IntervalSet, OneWithinAnotherChangesNothing) {
  EXPECT_THAT(IntervalSet({Between(0, 9), Between(2, 3), Between(4, 9)}).parts(),
              ElementsAre(Between(0, 9)));
}

TEST(IntervalSet, EmptyAndBackwardOnesAreDropped) {
  EXPECT_THAT(IntervalSet({Between(3, 3), Between(5, 4)}).parts(), IsEmpty());
  EXPECT_EQ(IntervalSet().Length(), absl::ZeroDuration());
}

TEST(IntervalSet, AndKeepsWhatBothHave) {
  const IntervalSet a({Between(0, 4), Between(6, 10)}), b({Between(2, 7), Between(9, 12)});
  EXPECT_THAT(a.And(b).parts(), ElementsAre(Between(2, 4), Between(6, 7), Between(9, 10)));
  EXPECT_THAT(a.And(IntervalSet()).parts(), IsEmpty());
}

TEST(IntervalSet, MinusCutsHolesAndEnds) {
  const IntervalSet a({Between(0, 10), Between(12, 14), Between(20, 21)});
  const IntervalSet b({Between(-3, 1), Between(2, 3), Between(5, 6), Between(9, 13)});
  EXPECT_THAT(a.Minus(b).parts(), ElementsAre(Between(1, 2), Between(3, 5), Between(6, 9),
                                              Between(13, 14), Between(20, 21)));
  EXPECT_THAT(a.Minus(a).parts(), IsEmpty());
  EXPECT_THAT(a.Minus(IntervalSet()).parts(), testing::ElementsAreArray(a.parts()));
}

TEST(IntervalSet, OneHoleMaySpanSeveralParts) {
  const IntervalSet a({Between(0, 2), Between(3, 5), Between(6, 8)});
  EXPECT_THAT(a.Minus(IntervalSet({Between(1, 7)})).parts(),
              ElementsAre(Between(0, 1), Between(7, 8)));
}

// Compares with sets of single milliseconds.
TEST(IntervalSet, AgreesWithCountingMomentByMoment) {
  constexpr int64_t kEnd = 60;
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<bool> in[2];
    IntervalSet sets[2];
    for (int s = 0; s < 2; ++s) {
      in[s].assign(kEnd, false);
      std::vector<Interval> intervals;
      for (int i = 0; i < 5; ++i) {
        const auto begin = static_cast<int64_t>(random() % 50);
        const int64_t end = begin + static_cast<int64_t>(random() % 9);
        intervals.push_back(Between(begin, end));
        for (int64_t t = begin; t < end; ++t) in[s][static_cast<size_t>(t)] = true;
      }
      sets[s] = IntervalSet(std::move(intervals));
    }
    int64_t either = 0, both = 0, first_only = 0;
    for (size_t t = 0; t < kEnd; ++t) {
      either += in[0][t] || in[1][t];
      both += in[0][t] && in[1][t];
      first_only += in[0][t] && !in[1][t];
    }
    EXPECT_EQ(Ms(sets[0].Or(sets[1])), either);
    EXPECT_EQ(Ms(sets[0].And(sets[1])), both);
    EXPECT_EQ(Ms(sets[0].Minus(sets[1])), first_only);
  }
}

}  // namespace
}  // namespace slimps
