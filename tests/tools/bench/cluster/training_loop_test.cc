// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cluster/training_loop.h"

#include <algorithm>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "tests/tools/bench/cluster/fake_store.h"

namespace slimps {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Value;

ModelShape Small() {
  ModelShape model;
  model.name = "small";
  model.tensors = {{"a.weight", {8}, LayerKind::kDense, 10},
                   {"a.bias", {2}, LayerKind::kDense, 0},
                   {"b.weight", {16}, LayerKind::kDense, 20}};
  return model;
}

class TrainingLoopTest : public ::testing::Test {
 protected:
  std::unique_ptr<TrainingLoop> Make(const TrainingLoopOptions& options) {
    auto loop = MakeTrainingLoop(&store_, Small(), options);
    EXPECT_TRUE(loop.ok()) << loop.status();
    store_.ClearEvents();
    return *std::move(loop);
  }
  size_t PositionOf(const std::string& event) const {
    const std::vector<std::string> events = store_.events();
    const auto found = std::find(events.begin(), events.end(), event);
    EXPECT_NE(found, events.end()) << event;
    return static_cast<size_t>(found - events.begin());
  }

  FakeStore store_;
};

TEST_F(TrainingLoopTest, EveryTensorIsInitialised) {
  ASSERT_TRUE(MakeTrainingLoop(&store_, Small(), {}).ok());
  EXPECT_THAT(store_.events(), ElementsAre("init a.weight", "init a.bias", "init b.weight"));
}

TEST_F(TrainingLoopTest, GradientsLeaveLastLayerFirstAndFrontLayersHaveTheHigherPriority) {
  const auto loop = Make({});
  ASSERT_TRUE(loop->Iterate(1).ok());
  EXPECT_THAT(store_.events(), ElementsAre("push b.weight 1 priority -2", "pull b.weight 1",
                                           "push a.bias 1 priority -1", "pull a.bias 1",
                                           "push a.weight 1 priority 0", "pull a.weight 1"));
}

TEST_F(TrainingLoopTest, AWaitingForwardPassBeginsWithTheNewestWeights) {
  const auto loop = Make({});
  store_.HoldPulls();
  ASSERT_TRUE(loop->Iterate(1).ok());
  std::thread next([&] { EXPECT_TRUE(loop->Iterate(2).ok()); });
  store_.Release();
  next.join();
  EXPECT_LT(PositionOf("release"), PositionOf("push b.weight 2 priority -2"));
}

TEST_F(TrainingLoopTest, TheBackupModelComputesOneRoundAheadAndNoMore) {
  const auto loop = Make({.backup_model = true});
  store_.HoldPulls();
  ASSERT_TRUE(loop->Iterate(1).ok());
  ASSERT_TRUE(loop->Iterate(2).ok());  // on w_loc(2), while version 1 is under way
  ASSERT_TRUE(store_.AwaitEvent("pull a.weight 1"));
  std::thread next([&] { EXPECT_TRUE(loop->Iterate(3).ok()); });
  store_.Release();
  next.join();
  EXPECT_LT(PositionOf("push a.weight 2 priority 0"), PositionOf("release"));
  EXPECT_LT(PositionOf("release"), PositionOf("push b.weight 3 priority -2"));
  EXPECT_TRUE(loop->Finish().ok());
}

TEST_F(TrainingLoopTest, MeasuredPushesLeaveAfterTheBackwardPassAndNothingIsPulledBeforeTheirEnd) {
  for (const bool backup : {false, true}) {
    const auto loop = Make({.backup_model = backup});
    store_.set_measuring(true);
    ASSERT_TRUE(loop->Iterate(1).ok());
    const std::vector<std::string> events = store_.events();
    ASSERT_EQ(events.size(), 7u);
    EXPECT_EQ(events[3], "wait");
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(events[i].substr(0, 4), "push");
    for (size_t i = 4; i < 7; ++i) EXPECT_EQ(events[i].substr(0, 4), "pull");
  }
}

TEST_F(TrainingLoopTest, MeasuredPushesWaitForTheWeightsOfTheRoundBefore) {
  for (const bool measuring : {true, false}) {
    FakeStore store;
    auto loop = MakeTrainingLoop(
        &store, Small(),
        {.backup_model = true, .timeout = measuring ? absl::Milliseconds(100) : absl::Minutes(1)});
    ASSERT_TRUE(loop.ok()) << loop.status();
    store.HoldPulls();
    ASSERT_TRUE((*loop)->Iterate(1).ok());
    ASSERT_TRUE(store.AwaitEvent("pull a.weight 1"));
    store.set_measuring(measuring);
    // The weights do not come, so only an iteration that waits for them pushes nothing.
    EXPECT_EQ((*loop)->Iterate(2).code(),
              measuring ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kOk);
    EXPECT_EQ(Value(store.events(), Contains("push b.weight 2 priority -2")), !measuring);
    store.Release();
  }
}

TEST_F(TrainingLoopTest, ComputeTakesItsTimeAndEncodingOnTheDeviceItsOwn) {
  const auto loop = Make({.compute = absl::Milliseconds(30),
                          .device_encode_per_element = absl::Microseconds(100),
                          .device_threshold_bytes = 32});
  const SteadyTime begin = MachineClock()->Now();
  ASSERT_TRUE(loop->Iterate(1).ok());
  absl::Duration computed, encoded;
  for (const Interval& part : loop->accelerator().computed()) computed += part.end - part.begin;
  for (const Interval& part : loop->accelerator().encoded()) encoded += part.end - part.begin;
  EXPECT_NEAR(absl::ToDoubleMilliseconds(computed), 30, 1e-3);
  EXPECT_EQ(encoded, absl::Microseconds(2400));  // without a.bias, which is below the threshold
  EXPECT_GE(MachineClock()->Now() - begin, absl::Milliseconds(32));
}

TEST_F(TrainingLoopTest, AFailedPullEndsTheLoopWithItsError) {
  for (const bool backup : {false, true}) {
    FakeStore store;
    auto loop = MakeTrainingLoop(&store, Small(), {.backup_model = backup});
    ASSERT_TRUE(loop.ok()) << loop.status();
    store.HoldPulls();
    ASSERT_TRUE((*loop)->Iterate(1).ok());
    for (const char* key : {"a.weight", "a.bias", "b.weight"}) {
      ASSERT_TRUE(store.AwaitEvent(std::string("pull ") + key + " 1"));
    }
    store.Release(absl::DataLossError("garbled"));
    EXPECT_EQ((*loop)->Finish(), absl::DataLossError("garbled"));
    EXPECT_EQ((*loop)->Iterate(2), absl::DataLossError("garbled"));
  }
}

TEST_F(TrainingLoopTest, WeightsThatDoNotComeAreAnErrorInTime) {
  const auto loop = Make({.timeout = absl::Milliseconds(20)});
  store_.HoldPulls();
  ASSERT_TRUE(loop->Iterate(1).ok());
  EXPECT_EQ(loop->Iterate(2).code(), absl::StatusCode::kDeadlineExceeded);
  store_.Release();
}

TEST_F(TrainingLoopTest, TheHashIsOfTheNewestGlobalWeightsInBothWays) {
  uint64_t hashes[2] = {};
  for (const bool backup : {false, true}) {
    FakeStore store;
    auto loop = MakeTrainingLoop(&store, Small(), {.backup_model = backup});
    ASSERT_TRUE(loop.ok()) << loop.status();
    ASSERT_TRUE((*loop)->Iterate(1).ok());
    ASSERT_TRUE((*loop)->Finish().ok());
    const uint64_t first = (*loop)->WeightsHash();
    ASSERT_TRUE((*loop)->Iterate(2).ok());
    ASSERT_TRUE((*loop)->Finish().ok());
    hashes[backup] = (*loop)->WeightsHash();
    EXPECT_NE(first, hashes[backup]);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

}  // namespace
}  // namespace slimps
