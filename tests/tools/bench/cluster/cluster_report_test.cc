// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cluster/cluster_report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TraceEvent Encoded(SteadyTime began, absl::Duration length) {
  return {.stage = TraceStage::kEncode, .key = "k", .began = began, .ended = began + length};
}

// An accelerator that computes for 30 ms from its first clock reading, in a window of two
// iterations of 50 ms.
class FiguresTest : public ::testing::Test {
 protected:
  FiguresTest() {
    begin_ = accelerator_.clock();
    accelerator_.Compute(absl::Milliseconds(30), SteadyTime::InfinitePast());
    timeline_.iteration_ends = {begin_, begin_ + absl::Milliseconds(40),
                                begin_ + absl::Milliseconds(100)};
  }
  SteadyTime At(int64_t ms) const { return begin_ + absl::Milliseconds(ms); }

  Accelerator accelerator_;
  SteadyTime begin_;
  ClusterTimeline timeline_;
};

TEST_F(FiguresTest, IterationsAreTheDistancesOfTheirEnds) {
  const ClusterFigures figures = FiguresOf(timeline_, accelerator_);
  ASSERT_EQ(figures.iteration_ms.size(), 2u);
  EXPECT_NEAR(figures.iteration_ms[0], 40, 1e-6);
  EXPECT_NEAR(figures.iteration_ms[1], 60, 1e-6);
  EXPECT_NEAR(figures.compute_ms, 15, 1e-6);
}

TEST_F(FiguresTest, EncodingIsExposedWhereNeitherComputeNorTheLinkHidesIt) {
  // Encoding takes 40 ms (20 to 60): 10 lie under compute, 10 (40 to 50) under the link, 20 under
  // nothing.
  timeline_.events = {Encoded(At(20), absl::Milliseconds(40))};
  timeline_.link_busy = IntervalSet({{At(40), At(50)}});
  const ClusterFigures figures = FiguresOf(timeline_, accelerator_);
  EXPECT_NEAR(figures.encode_ms, 20, 1e-6);
  EXPECT_NEAR(figures.encode_exposed_ms, 10, 1e-6);
}

TEST_F(FiguresTest, ThreadsThatEncodeAtOnceAddUpButAreExposedOnce) {
  timeline_.events = {Encoded(At(60), absl::Milliseconds(10)),
                      Encoded(At(60), absl::Milliseconds(10))};
  const ClusterFigures figures = FiguresOf(timeline_, accelerator_);
  EXPECT_NEAR(figures.encode_ms, 10, 1e-6);
  EXPECT_NEAR(figures.encode_exposed_ms, 5, 1e-6);
}

TEST_F(FiguresTest, OverlapIsComputeWithTheLinkOrEncoding) {
  timeline_.events = {Encoded(At(0), absl::Milliseconds(4))};
  timeline_.link_busy = IntervalSet({{At(2), At(10)}, {At(25), At(45)}});
  const ClusterFigures figures = FiguresOf(timeline_, accelerator_);
  EXPECT_NEAR(figures.overlap_ms, 15.0 / 2, 1e-6);
  EXPECT_NEAR(figures.exposed_comm_ms, 15.0 / 2, 1e-6);
}

TEST_F(FiguresTest, OtherStagesAndOtherIterationsDoNotCount) {
  TraceEvent sent = Encoded(At(50), absl::Milliseconds(10));
  sent.stage = TraceStage::kSend;
  timeline_.events = {sent, Encoded(At(-20), absl::Milliseconds(10)),
                      Encoded(At(95), absl::Milliseconds(50))};
  timeline_.link_busy = IntervalSet({{At(-50), At(-5)}, {At(200), At(300)}});
  const ClusterFigures figures = FiguresOf(timeline_, accelerator_);
  EXPECT_NEAR(figures.encode_ms, 2.5, 1e-6);
  EXPECT_NEAR(figures.exposed_comm_ms, 0, 1e-6);
}

TEST_F(FiguresTest, EncodingOnTheAcceleratorIsEncodingAndNoCompute) {
  accelerator_.Encode(absl::Milliseconds(20));
  timeline_.events = {Encoded(At(80), absl::Milliseconds(10))};  // the CPU stands in for it
  const ClusterFigures figures = FiguresOf(timeline_, accelerator_);
  EXPECT_NEAR(figures.compute_ms, 15, 1e-6);
  EXPECT_NEAR(figures.encode_ms, 10, 1e-6);
  EXPECT_NEAR(figures.encode_exposed_ms, 10, 1e-6);
}

TEST_F(FiguresTest, OneEndIsNoIteration) {
  timeline_.iteration_ends.resize(1);
  EXPECT_TRUE(FiguresOf(timeline_, accelerator_).iteration_ms.empty());
}

TEST(CompressedBytes, AreOfTheTensorsAtOrAboveTheThreshold) {
  ModelShape model;
  model.tensors = {{"a", {10}}, {"b", {11}}, {"c", {2, 50}}};
  EXPECT_EQ(CompressedBytes(model, 0), 4.0 * 121);
  EXPECT_EQ(CompressedBytes(model, 44), 4.0 * 111);
  EXPECT_EQ(CompressedBytes(model, 45), 4.0 * 100);
  EXPECT_EQ(CompressedBytes(model, std::nullopt), 0);
}

TEST(CompressedBytes, AreOfTheTensorsForWhichAPolicyHasChosenACodec) {
  ModelShape model;
  model.tensors = {{"a", {10}}, {"b", {11}}, {"c", {2, 50}}};
  const std::vector<KeyCodec> chosen = {
      {.key = "a", .codec = "1bit"}, {.key = "b", .codec = "none"}, {.key = "c", .codec = "fp16"}};
  EXPECT_EQ(CompressedBytes(model, chosen), 4.0 * 110);
  EXPECT_EQ(CompressedBytes(model, std::span<const KeyCodec>()), 0);
}

TEST(ClusterReportJson, SaysThresholdsOrNull) {
  const std::string json = ClusterReportJson({.model = "m",
                                              .gradient_bytes = 12,
                                              .figures = {.iteration_ms = {1.5, 2}},
                                              .threshold_bytes = 8192,
                                              .weights_hash = 255});
  EXPECT_THAT(json, HasSubstr("\"model\": \"m\", \"gradient_bytes\": 12,"));
  EXPECT_THAT(json, HasSubstr("\"threshold_bytes\": 8192, \"pull_threshold_bytes\": null"));
  EXPECT_THAT(json, HasSubstr("\"weights_hash\": \"ff\", \"iteration_ms\": [1.5000, 2.0000]}"));
}

TEST(Accelerator, WorkBeginsWhenItsInputsAreThereHoweverLateTheHostAsks) {
  Accelerator accelerator;
  const SteadyTime begin = accelerator.clock();
  accelerator.Compute(absl::Milliseconds(2), begin + absl::Milliseconds(5));
  EXPECT_EQ(accelerator.clock(), begin + absl::Milliseconds(7));
  // The host asks for the next work only after the first has ended.
  EXPECT_GE(MachineClock()->Now(), accelerator.clock());
  accelerator.Compute(absl::Milliseconds(1), SteadyTime::InfinitePast());
  EXPECT_EQ(accelerator.clock(), begin + absl::Milliseconds(8));
  EXPECT_THAT(accelerator.computed(),
              ElementsAre(Interval{begin + absl::Milliseconds(5), begin + absl::Milliseconds(8)}));
}

}  // namespace
}  // namespace slimps
