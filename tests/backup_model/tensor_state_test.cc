// SPDX-License-Identifier: Apache-2.0
#include "backup_model/tensor_state.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace slimps {
namespace {

constexpr TensorEvent kEvents[] = {TensorEvent::kBeginGlobal, TensorEvent::kGlobalArrived,
                                   TensorEvent::kMergeGlobal, TensorEvent::kLocalUpdate,
                                   TensorEvent::kAcquireRead, TensorEvent::kReleaseRead};

absl::Status Apply(TensorState& state, TensorEvent event, int64_t number) {
  switch (event) {
    case TensorEvent::kBeginGlobal:
      return state.BeginGlobal(number);
    case TensorEvent::kGlobalArrived:
      return state.GlobalArrived(number);
    case TensorEvent::kMergeGlobal:
      return state.MergeGlobal(number);
    case TensorEvent::kLocalUpdate:
      return state.LocalUpdate(number);
    case TensorEvent::kAcquireRead:
      return state.AcquireRead(number);
    case TensorEvent::kReleaseRead:
      return state.ReleaseRead();
  }
  return absl::InternalError("no such event");
}

// The states as the header's two diagrams name them. Accept() has the events that each state
// allows, with their numbers. This model is written independently of the code under test.
enum class Loc { kUnread, kRead, kReleased, kFresh };
enum class Glo { kHeld, kMerged, kWriting };

struct Expected {
  Loc loc = Loc::kUnread;
  Glo glo = Glo::kHeld;
  int64_t readers = 0;
  int64_t iteration = 1;
  int64_t version = 0;

  // If it is the event's turn, moves on and returns true.
  bool Accept(TensorEvent event, int64_t number) {
    switch (event) {
      case TensorEvent::kBeginGlobal:
        if (glo != Glo::kMerged || number != version + 1) return false;
        glo = Glo::kWriting;
        return true;
      case TensorEvent::kGlobalArrived:
        if (glo != Glo::kWriting || number != version + 1) return false;
        glo = Glo::kHeld;
        version = number;
        return true;
      case TensorEvent::kMergeGlobal:
        if (loc != Loc::kReleased || glo != Glo::kHeld || number != version) return false;
        loc = Loc::kFresh;
        glo = Glo::kMerged;
        return true;
      case TensorEvent::kLocalUpdate:
        if (loc != Loc::kFresh || number != iteration) return false;
        loc = Loc::kUnread;
        ++iteration;
        return true;
      case TensorEvent::kAcquireRead:
        if (loc == Loc::kFresh || number != iteration) return false;
        loc = Loc::kRead;
        ++readers;
        return true;
      case TensorEvent::kReleaseRead:
        if (loc != Loc::kRead) return false;
        if (--readers == 0) loc = Loc::kReleased;
        return true;
    }
    return false;
  }
  auto Tie() const { return std::tuple(loc, glo, readers, iteration, version); }
};

void ExpectSame(const Expected& expected, const TensorState& state) {
  EXPECT_EQ(state.status(), expected.loc == Loc::kFresh ? LocStatus::kFresh : LocStatus::kUpdated);
  EXPECT_EQ(state.readers(), expected.readers);
  EXPECT_EQ(state.iteration(), expected.iteration);
  EXPECT_EQ(state.global_version(), expected.version);
  EXPECT_EQ(state.was_read(), expected.loc == Loc::kRead || expected.loc == Loc::kReleased ||
                                  (expected.loc == Loc::kFresh));
}

TEST(TensorState, EveryEventInEveryStateDoesWhatTheDiagramSays) {
  // Searches breadth first all states of the first three iterations with up to two readers.
  std::deque<std::pair<Expected, TensorState>> open = {{Expected(), TensorState("t")}};
  std::set<decltype(Expected().Tie())> seen = {Expected().Tie()};
  size_t refused = 0;
  while (!open.empty()) {
    const auto [expected, state] = open.front();
    open.pop_front();
    for (const TensorEvent event : kEvents) {
      for (int64_t number = -1; number <= 5; ++number) {
        Expected next_expected = expected;
        TensorState next = state;
        const absl::Status status = Apply(next, event, number);
        const std::string where = std::string(TensorEventName(event)) + " " +
                                  std::to_string(number) + " in " + state.ToString();
        ASSERT_EQ(status.ok(), next_expected.Accept(event, number)) << where << ": " << status;
        ExpectSame(next_expected, next);
        if (!status.ok()) {
          ++refused;
          EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << where;
          EXPECT_EQ(next.ToString(), state.ToString()) << "a refused event changed the state";
          continue;
        }
        if (next_expected.readers > 2 || next_expected.iteration > 3) continue;
        if (seen.insert(next_expected.Tie()).second) open.emplace_back(next_expected, next);
      }
    }
  }
  // loc_buf is unread, read by 1 or 2 readers, or released: each with glo_buf merged, being
  // written, or holding a version (in the first iteration: only holding one). Or loc_buf is fresh:
  // with glo_buf merged, being written, or already holding the next version.
  EXPECT_EQ(seen.size(), (4 + 3) + 2 * (4 * 3 + 3u));
  EXPECT_GT(refused, 500u);
}

TEST(TensorState, ARefusalNamesTensorEventStateAndWhatWasExpected) {
  TensorState state("s:conv1.weight");
  const absl::Status status = state.LocalUpdate(7);
  for (const char* part : {"s:conv1.weight", "LocalUpdate 7", "expected MergeGlobal of version 0",
                           "loc_buf 1 (updated, iteration 1, not read, readers 0)",
                           "glo_buf holds version 0 (not merged)"}) {
    EXPECT_NE(status.message().find(part), absl::string_view::npos) << part << " in " << status;
  }
}

TEST(TensorState, AVersionThatArrivedEarlyIsNotMergedEarly) {
  TensorState state("t");
  ASSERT_TRUE(state.AcquireRead(1).ok());
  ASSERT_TRUE(state.ReleaseRead().ok());
  ASSERT_TRUE(state.MergeGlobal(0).ok());
  ASSERT_TRUE(state.LocalUpdate(1).ok());
  ASSERT_TRUE(state.BeginGlobal(1).ok());
  ASSERT_TRUE(state.GlobalArrived(1).ok());  // before iteration 2 has read its weights
  EXPECT_FALSE(state.MergeGlobal(1).ok());
  EXPECT_FALSE(state.BeginGlobal(2).ok());  // nothing may overtake round 1
  ASSERT_TRUE(state.AcquireRead(2).ok());
  EXPECT_FALSE(state.MergeGlobal(1).ok());  // nor may it merge while readers hold loc_buf
  ASSERT_TRUE(state.ReleaseRead().ok());
  EXPECT_TRUE(state.MergeGlobal(1).ok());
}

TEST(TensorState, UnderAnyOrderOfEventsTheLagIsExactlyOneRound) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    TensorState state("t");
    int64_t merged = -1;
    for (int step = 0; step < 3000; ++step) {
      const TensorEvent event = kEvents[random() % std::size(kEvents)];
      const bool versions = event == TensorEvent::kBeginGlobal ||
                            event == TensorEvent::kGlobalArrived ||
                            event == TensorEvent::kMergeGlobal;
      const int64_t around = versions ? state.global_version() : state.iteration();
      const int64_t number = around + static_cast<int64_t>(random() % 3) - 1;
      const int64_t iteration = state.iteration();
      if (!Apply(state, event, number).ok()) continue;
      if (event == TensorEvent::kMergeGlobal) {
        EXPECT_EQ(number, merged + 1) << "every version is merged, in order";
        merged = number;
      }
      if (event == TensorEvent::kLocalUpdate) {
        EXPECT_EQ(merged, number - 1) << "w_loc(i+1) starts from version i-1";
        EXPECT_EQ(state.iteration(), iteration + 1);
      }
      const bool fresh = state.status() == LocStatus::kFresh;
      EXPECT_LE(state.global_version(), state.iteration() - (fresh ? 0 : 1));
      EXPECT_GE(state.global_version(), state.iteration() - 2);
    }
    EXPECT_GT(merged, 3) << "the walk went nowhere";
  }
}

}  // namespace
}  // namespace slimps
