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
using ::testing::FloatEq;
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
  EXPECT_EQ(pusher.size(), 3u);
  EXPECT_EQ(pusher.key(1), Key("b"));
  pusher.BeginRound();
  pusher.OnGradient(2, gradient_);
  EXPECT_THAT(store_.events(), ElementsAre("push c 1")) << "backward still runs";
  pusher.OnGradient(0, other_);
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_THAT(store_.events(), ElementsAre("push c 1", "push a 1", "nothing b 1"));
  EXPECT_EQ(pusher.pushed(2).data(), gradient_.data());
  EXPECT_EQ(pusher.pushed(0).data(), other_.data());
  EXPECT_THAT(pusher.pushed(1), IsEmpty());
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
  EXPECT_THAT(pusher.pushed(0), IsEmpty()) << "there is no whole gradient";
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

TEST_F(GradientPusherTest, RowsAreNotClipped) {
  const std::vector<int64_t> rows = {1};
  const std::vector<float> values = {5};
  GradientPusher pusher(&store_, parameters_, {.clip_norm = 1});
  pusher.BeginRound();
  pusher.OnRows(0, rows, values);
  EXPECT_THAT(std::string(pusher.EndRound().message()),
              HasSubstr("rows of key s:a: expected no clip_norm, got 1"));
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
  for (size_t i = 0; i < 3; ++i) EXPECT_THAT(pusher.pushed(i), IsEmpty());
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_THAT(store_.events(), ElementsAre("push a 1", "push b 1", "nothing c 1", "nothing a 2",
                                           "nothing b 2", "nothing c 2"));
}

// Clips by the norm of the whole gradient, with the threshold divided by the square root of the
// number of workers (Lin et al. 2018, section 3.2).
TEST_F(GradientPusherTest, ClippingGoesByTheNormOfAllTensorsTogether) {
  FakeServer server(4);
  FakeStore store(&server, 0);
  for (const Parameter& parameter : parameters_) server.Init(Key(parameter.name), value_);
  GradientPusher pusher(&store, parameters_, {.clip_norm = 5});
  pusher.BeginRound();
  pusher.OnGradient(2, gradient_);
  pusher.OnGradient(0, other_);
  EXPECT_THAT(store.events(), IsEmpty()) << "the norm is not known yet";
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_THAT(store.events(), ElementsAre("push c 1", "push a 1", "nothing b 1"));
  const float factor = 2.5f / std::sqrt(1.0f + 4 + 9 + 16);
  EXPECT_THAT(pusher.pushed(2), ElementsAre(FloatEq(factor), FloatEq(2 * factor)));
  EXPECT_THAT(pusher.pushed(0), ElementsAre(FloatEq(3 * factor), FloatEq(4 * factor)));

  const std::vector<float> small = {0.5f, -2};  // norm 2.06
  pusher.BeginRound();
  pusher.OnGradient(1, small);
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_EQ(pusher.pushed(1).data(), small.data());

  pusher.BeginRound();
  pusher.OnGradient(1, bad_);
  EXPECT_FALSE(pusher.EndRound().ok()) << "refused by name, as without clipping";
}

TEST_F(GradientPusherTest, ATensorThatIsSkippedLeavesTheOthersClipped) {
  FakeServer server(1);
  FakeStore store(&server, 0);
  for (const Parameter& parameter : parameters_) server.Init(Key(parameter.name), value_);
  GradientPusher pusher(&store, parameters_, {.non_finite = NonFinite::kSkip, .clip_norm = 1});
  pusher.BeginRound();
  pusher.OnGradient(1, bad_);
  pusher.OnGradient(0, other_);
  ASSERT_TRUE(pusher.EndRound().ok());
  EXPECT_THAT(pusher.pushed(0), ElementsAre(FloatEq(0.6f), FloatEq(0.8f)));
  EXPECT_TRUE(pusher.pushed(1).empty());
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
  EXPECT_THAT(pusher.pushed(0), IsEmpty());
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
