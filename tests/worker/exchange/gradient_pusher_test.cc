// SPDX-License-Identifier: Apache-2.0
#include "worker/exchange/gradient_pusher.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "tests/worker/trainer/fake_store.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A model of three parameters, and a store of one worker.
class GradientPusherTest : public ::testing::Test {
 protected:
  GradientPusherTest() {
    for (const Parameter& parameter : parameters_) server_.Init(Key(parameter.name), value_);
  }
  GradientPusher Make(NonFinite non_finite = NonFinite::kStop) {
    return GradientPusher(&store_, parameters_, {.non_finite = non_finite});
  }

  const std::vector<float> value_ = {0, 0};
  const std::vector<float> gradient_ = {1, 2}, other_ = {3, 4}, bad_ = {5, std::nanf("")};
  std::vector<float> weights_ = {0, 0};
  const std::vector<Parameter> parameters_ = {{.name = "a", .values = weights_},
                                              {.name = "b", .values = weights_},
                                              {.name = "c", .values = weights_}};
  FakeServer server_{1};
  FakeStore store_{&server_, 0};
};

TEST_F(GradientPusherTest, GradientsGoOutAsTheyComeAndTheRestCountsAsZero) {
  GradientPusher pusher = Make();
  EXPECT_EQ(pusher.key(1), Key("b"));
  pusher.BeginRound();
  pusher.OnGradient(2, gradient_);
  EXPECT_THAT(store_.events(), ElementsAre("push c 1")) << "backward still runs";
  pusher.OnGradient(0, other_);
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_THAT(store_.events(), ElementsAre("push c 1", "push a 1", "nothing b 1"));
  EXPECT_TRUE(pusher.contributed(2));
  EXPECT_TRUE(pusher.contributed(0));
  EXPECT_FALSE(pusher.contributed(1));
}

TEST_F(GradientPusherTest, GradientsOnLoanAreAwaited) {
  store_.KeepLoans();
  GradientPusher pusher(&store_, parameters_, {.lend = true});
  pusher.BeginRound();
  pusher.OnGradient(1, gradient_);
  pusher.OnGradient(2, bad_);  // refused: it is not lent
  EXPECT_FALSE(pusher.EndRound().ok());
  std::atomic<bool> returned{false};
  std::thread waits([&] {
    EXPECT_EQ(pusher.AwaitLoans().message(), "gone");
    EXPECT_TRUE(returned);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // enough to see a wait that is none
  returned = true;
  store_.ReturnLoans(absl::DataLossError("gone"));
  waits.join();
}

TEST_F(GradientPusherTest, GradientsThatMayBeSkippedAreNotLent) {
  store_.KeepLoans();
  GradientPusher pusher(&store_, parameters_, {.non_finite = NonFinite::kSkip, .lend = true});
  pusher.BeginRound();
  pusher.OnGradient(1, bad_);
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_TRUE(pusher.AwaitLoans().ok());
  EXPECT_EQ(store_.events().back(), "nothing c 1");
}

TEST_F(GradientPusherTest, RowsAreAContributionToo) {
  const std::vector<int64_t> rows = {1}, none;
  const std::vector<float> values = {5};
  GradientPusher pusher = Make();
  pusher.BeginRound();
  pusher.OnRows(0, rows, values);
  pusher.OnRows(1, none, {});
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_THAT(store_.events(),
              ElementsAre("push a 1", "of 1 rows", "push b 1", "of 0 rows", "nothing c 1"));
  EXPECT_TRUE(pusher.contributed(0));
  EXPECT_NE(pusher.first_push(), SteadyTime::InfiniteFuture());
  pusher.BeginRound();
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_EQ(store_.events().back(), "nothing c 2");
}

TEST_F(GradientPusherTest, RowsThatAreNotFiniteEndTheRoundOrAreSkipped) {
  const std::vector<int64_t> rows = {1};
  const std::vector<float> values = {std::nanf("")};
  GradientPusher stopping = Make(), skipping = Make(NonFinite::kSkip);
  skipping.BeginRound();
  skipping.OnRows(0, rows, values);
  ASSERT_TRUE(skipping.EndRound().ok());
  EXPECT_THAT(store_.events(), ElementsAre("nothing a 1", "nothing b 1", "nothing c 1"));
  stopping.BeginRound();
  stopping.OnRows(0, rows, values);
  EXPECT_EQ(stopping.EndRound().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(GradientPusherTest, RowsThatMakeNoSenseAreNeverSkipped) {
  const std::vector<int64_t> rows = {1, 1};
  const absl::Status refused = absl::InvalidArgumentError("they take too many bytes");
  GradientPusher pusher = Make(NonFinite::kSkip);
  store_.FailPushes(refused);
  pusher.BeginRound();
  pusher.OnRows(0, rows, std::vector<float>{3e38f, -1});
  EXPECT_EQ(pusher.EndRound(), refused);
  pusher.BeginRound();
  pusher.OnRows(0, rows, std::vector<float>{3e38f, 3e38f});
  EXPECT_TRUE(pusher.EndRound().ok()) << "equal rows that do not add up to a finite sum";
}

TEST_F(GradientPusherTest, FrontLayersGoFirst) {
  GradientPusher pusher = Make();
  pusher.BeginRound();
  for (const size_t index : {2u, 0u, 1u}) pusher.OnGradient(index, gradient_);
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_GT(store_.priority("s:a"), store_.priority("s:b"));
  EXPECT_GT(store_.priority("s:b"), store_.priority("s:c"));
}

TEST_F(GradientPusherTest, ARoundKnowsNothingOfTheOneBefore) {
  GradientPusher pusher = Make();
  pusher.BeginRound();
  EXPECT_EQ(pusher.first_push(), SteadyTime::InfiniteFuture());
  const SteadyTime before = MachineClock()->Now();
  pusher.OnGradient(0, gradient_);
  const SteadyTime first = pusher.first_push();
  EXPECT_GE(first, before);
  pusher.OnGradient(1, gradient_);
  EXPECT_EQ(pusher.first_push(), first);
  ASSERT_TRUE(pusher.EndRound().ok());

  pusher.BeginRound();
  EXPECT_EQ(pusher.first_push(), SteadyTime::InfiniteFuture());
  for (size_t i = 0; i < 3; ++i) EXPECT_FALSE(pusher.contributed(i));
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_THAT(store_.events(), ElementsAre("push a 1", "push b 1", "nothing c 1", "nothing a 2",
                                           "nothing b 2", "nothing c 2"));
}

TEST_F(GradientPusherTest, AClippedRoundAsksForItsNormOnceAllIsPushed) {
  GradientPusher pusher = Make();
  ASSERT_TRUE(pusher.SetClipNorm(5).ok());
  EXPECT_THAT(store_.events(), ElementsAre("clipped a", "clipped b", "clipped c"));
  pusher.BeginRound();
  pusher.OnGradient(2, gradient_);
  EXPECT_EQ(store_.events().back(), "push c 1") << "backward still runs";
  pusher.OnRows(0, std::vector<int64_t>{1}, std::vector<float>{5});
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_EQ(store_.events().back(), "norm of 3 keys up to 5");
  store_.AnswerNorm(ClippedNorm{.norm = 10, .scale = 0.5});
  ASSERT_TRUE(pusher.AwaitNorm().ok());
  EXPECT_EQ(pusher.clipping().newest.norm, 10);
  EXPECT_EQ(pusher.clipping().newest.scale, 0.5);
  EXPECT_EQ(pusher.clipping().skipped_steps, 0u);
  EXPECT_TRUE(pusher.AwaitNorm().ok()) << "there is none to wait for";
}

TEST_F(GradientPusherTest, StepsWithoutAFiniteNormAreCounted) {
  GradientPusher pusher = Make();
  ASSERT_TRUE(pusher.SetClipNorm(1).ok());
  for (const double scale : {0.0, 1.0, 0.0}) {
    pusher.BeginRound();
    ASSERT_TRUE(pusher.EndRound().ok());  // takes up the norm of the round before
    store_.AnswerNorm(ClippedNorm{.norm = std::nan(""), .scale = scale});
  }
  EXPECT_EQ(pusher.clipping().skipped_steps, 1u);
  ASSERT_TRUE(pusher.AwaitNorm().ok());
  EXPECT_EQ(pusher.clipping().skipped_steps, 2u);
}

TEST_F(GradientPusherTest, ANormThatDoesNotComeEndsTheRound) {
  GradientPusher pusher = Make();
  ASSERT_TRUE(pusher.SetClipNorm(1).ok());
  pusher.BeginRound();
  ASSERT_TRUE(pusher.EndRound().ok());
  store_.AnswerNorm(absl::DeadlineExceededError("round 1 lacks the push of worker 1"));
  EXPECT_THAT(std::string(pusher.AwaitNorm().message()),
              HasSubstr("norm of the mean gradient: round 1 lacks the push of worker 1"));
}

TEST_F(GradientPusherTest, ABoundThatIsNoNumberIsRefusedAndZeroIsNone) {
  GradientPusher pusher = Make();
  for (const double norm : {-1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THAT(std::string(pusher.SetClipNorm(norm).message()),
                HasSubstr("clip_norm: expected a number over 0, or 0 for none, got"));
  }
  ASSERT_TRUE(pusher.SetClipNorm(1).ok());
  ASSERT_TRUE(pusher.SetClipNorm(0).ok());
  EXPECT_EQ(store_.events().back(), "not clipped c");
  pusher.BeginRound();
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_EQ(store_.events().back(), "nothing c 1");
}

TEST_F(GradientPusherTest, WhatIsNoLongerClippedIsNoLongerScaled) {
  GradientPusher pusher = Make();
  ASSERT_TRUE(pusher.SetClipNorm(1).ok());
  pusher.BeginRound();
  ASSERT_TRUE(pusher.EndRound().ok());
  store_.AnswerNorm(ClippedNorm{.norm = std::nan(""), .scale = 0});
  ASSERT_TRUE(pusher.SetClipNorm(0).ok());
  pusher.BeginRound();
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_EQ(pusher.clipping().newest.scale, 1);
  EXPECT_EQ(pusher.clipping().skipped_steps, 1u);
}

TEST_F(GradientPusherTest, WithoutRoundsNothingIsLeftOpen) {
  store_.set_type("dist_async");
  GradientPusher pusher = Make();
  pusher.BeginRound();
  pusher.OnGradient(1, gradient_);
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_THAT(store_.events(), ElementsAre("push b 1"));
}

TEST_F(GradientPusherTest, MeasuredRoundsPushAfterBackwardAndWaitForTheLast) {
  store_.set_measuring(true);
  GradientPusher pusher = Make();
  pusher.BeginRound();
  pusher.OnGradient(2, gradient_);
  pusher.OnGradient(0, gradient_);
  EXPECT_THAT(store_.events(), IsEmpty());
  EXPECT_EQ(pusher.first_push(), SteadyTime::InfiniteFuture());
  store_.set_measuring(false);  // this round stays as it began
  pusher.OnGradient(1, gradient_);
  EXPECT_THAT(store_.events(), IsEmpty());
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_THAT(store_.events(), ElementsAre("push c 1", "push a 1", "push b 1", "wait"));
  EXPECT_LT(pusher.first_push(), SteadyTime::InfiniteFuture());

  pusher.BeginRound();
  pusher.OnGradient(0, gradient_);
  EXPECT_EQ(store_.events().back(), "push a 2") << "nothing is held back any more";
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_EQ(store_.events().back(), "nothing c 2");
}

TEST_F(GradientPusherTest, ASkippedGradientCountsAsZeroAndTheNextRoundIsWhole) {
  GradientPusher pusher = Make(NonFinite::kSkip);
  pusher.BeginRound();
  pusher.OnGradient(0, bad_);
  pusher.OnGradient(1, gradient_);
  pusher.OnGradient(2, gradient_);
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_FALSE(pusher.contributed(0));
  EXPECT_THAT(store_.events(), ElementsAre("push b 1", "push c 1", "nothing a 1"));
  pusher.BeginRound();
  for (size_t i = 0; i < 3; ++i) pusher.OnGradient(i, gradient_);
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_EQ(store_.events().back(), "push c 2");
}

TEST_F(GradientPusherTest, AfterTheFirstErrorNothingMoreGoesOut) {
  GradientPusher pusher = Make(NonFinite::kStop);
  pusher.BeginRound();
  pusher.OnGradient(1, gradient_);
  pusher.OnGradient(0, bad_);
  pusher.OnGradient(2, gradient_);
  const absl::Status status = pusher.EndRound();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("push of key s:a"));
  EXPECT_THAT(store_.events(), ElementsAre("push b 1"));
}

TEST_F(GradientPusherTest, OnlyNonFiniteGradientsAreSkipped) {
  GradientPusher pusher = Make(NonFinite::kSkip);
  store_.FailPushes(absl::UnavailableError("server 0 is lost"));
  pusher.BeginRound();
  pusher.OnGradient(0, gradient_);
  EXPECT_EQ(pusher.EndRound(), absl::UnavailableError("server 0 is lost"));
  EXPECT_THAT(store_.events(), IsEmpty());
}

TEST_F(GradientPusherTest, AGradientOfAnotherLengthIsNoneToSkip) {
  GradientPusher pusher = Make(NonFinite::kSkip);
  pusher.BeginRound();
  pusher.OnGradient(1, std::vector<float>{1});
  const absl::Status ended = pusher.EndRound();
  EXPECT_EQ(ended.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ended.message()), HasSubstr("key s:b: expected 2 elements, got 1"));
  EXPECT_THAT(store_.events(), IsEmpty());
}

}  // namespace
}  // namespace slimps
