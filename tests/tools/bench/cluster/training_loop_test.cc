// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cluster/training_loop.h"

#include <algorithm>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "tests/worker/trainer/fake_store.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;

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
    auto loop = TrainingLoop::Start(&store_, Small(), options);
    EXPECT_TRUE(loop.ok()) << loop.status();
    return *std::move(loop);
  }
  // Returns how many events there were before this one.
  size_t PositionOf(const std::string& event) const {
    const std::vector<std::string> events = store_.events();
    return static_cast<size_t>(std::ranges::find(events, event) - events.begin());
  }

  FakeServer server_{1};
  FakeStore store_{&server_, 0};
};

TEST_F(TrainingLoopTest, GradientsLeaveLastLayerFirstAndAreFollowedByTheirPulls) {
  const auto loop = Make({});
  ASSERT_TRUE(loop->Iterate(1).ok());
  EXPECT_THAT(store_.events(),
              ElementsAre("push b.weight 1", "pull b.weight 1", "arrived b.weight 1",
                          "push a.bias 1", "pull a.bias 1", "arrived a.bias 1", "push a.weight 1",
                          "pull a.weight 1", "arrived a.weight 1"));
  EXPECT_GT(store_.priority("s:a.weight"), store_.priority("s:b.weight"));
}

TEST_F(TrainingLoopTest, AStepWaitsForItsWeightsOrTheNextForwardPassDoes) {
  for (const bool overlaps : {false, true}) {
    FakeServer server(1);
    FakeStore store(&server, 0);
    const auto loop = TrainingLoop::Start(
        &store, Small(), {.overlap_forward = overlaps, .timeout = absl::Milliseconds(50)});
    ASSERT_TRUE(loop.ok()) << loop.status();
    store.AllowVersions(0);
    EXPECT_EQ((*loop)->Iterate(1).ok(), overlaps);
    EXPECT_EQ((*loop)->Iterate(2).code(), absl::StatusCode::kDeadlineExceeded);
    store.AllowAll();
  }
}

TEST_F(TrainingLoopTest, TheBackupModelComputesOneRoundAheadAndNoMore) {
  const auto loop = Make({.backup_model = true});
  store_.AllowVersions(0);
  ASSERT_TRUE(loop->Iterate(1).ok());  // the next is on w_loc(2), while version 1 is under way
  std::thread next([&] { EXPECT_TRUE(loop->Iterate(2).ok()); });
  while (PositionOf("push a.weight 2") == store_.events().size()) std::this_thread::yield();
  store_.Record("released");
  store_.AllowAll();
  next.join();
  ASSERT_TRUE(loop->Iterate(3).ok());
  EXPECT_LT(PositionOf("released"), PositionOf("push b.weight 3"));
  EXPECT_TRUE(loop->Finish().ok());
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

TEST_F(TrainingLoopTest, TheHashIsOfTheNewestGlobalWeightsInBothWays) {
  uint64_t hashes[2] = {};
  for (const bool backup : {false, true}) {
    FakeServer server(1);
    FakeStore store(&server, 0);
    auto loop = TrainingLoop::Start(&store, Small(), {.backup_model = backup});
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
