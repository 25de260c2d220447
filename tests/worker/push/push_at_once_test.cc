// SPDX-License-Identifier: Apache-2.0
// Several partitions that a PushPipeline encodes at a time.
#include <algorithm>
#include <cstdint>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/push/push_pipeline_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;

class PushesAtOnce : public PushPipelineTest {
 protected:
  void MakeThreads(int threads, const CompressionPlanOptions& plan = {}) {
    Make(plan, size_t{1} << 30, kLong, threads);
  }

  // Notes each encoding that begins, and holds up those of one key until Release.
  void HoldUpEncodingOf(const TensorPlan* tensor, uint64_t round = 1) {
    while_encoding = [this, tensor, round](const TensorPlan& encoded, uint64_t of) {
      MutexLock lock(&mutex_);
      begun_.push_back(encoded.key.typed_name() + std::to_string(of));
      changed_.NotifyAll();
      if (&encoded != tensor || of != round) return;
      changed_.Await(&mutex_, kLong, [this] { return released_; });
    };
  }
  void AwaitBegun(const std::string& name) {
    MutexLock lock(&mutex_);
    EXPECT_TRUE(changed_.Await(&mutex_, kLong, [&] { return HasBegun(name); })) << name;
  }
  void Release() {
    MutexLock lock(&mutex_);
    released_ = true;
    changed_.NotifyAll();
  }
  bool HasBegun(const std::string& name) { return std::ranges::count(begun_, name) > 0; }

  std::vector<std::string> begun_;
  bool released_ = false;
};

TEST_F(PushesAtOnce, TwoPartitionsAreEncodedAtTheSameTime) {
  MakeThreads(2);
  int encoding = 0;
  while_encoding = [&](const TensorPlan&, uint64_t) {
    MutexLock lock(&mutex_);
    ++encoding;
    changed_.NotifyAll();
    EXPECT_TRUE(changed_.Await(&mutex_, kLong, [&] { return encoding == 2; }));
  };
  ASSERT_TRUE(pipeline_->Submit(Job(Tensor("w", kLargeElements, 2))).ok());
  EXPECT_TRUE(transport_.AwaitSent(2));
}

TEST_F(PushesAtOnce, ASlowPartitionHoldsBackNoOtherKey) {
  MakeThreads(2);
  const TensorPlan* slow = Tensor("slow", kLargeElements);
  const TensorPlan* fast = Tensor("fast", kLargeElements, 3);
  HoldUpEncodingOf(slow);
  ASSERT_TRUE(pipeline_->Submit(Job(slow)).ok());
  AwaitBegun("s:slow1");
  ASSERT_TRUE(pipeline_->Submit(Job(fast)).ok());
  ASSERT_TRUE(transport_.AwaitSent(3));
  EXPECT_THAT(KeysOf(2), ElementsAre(fast->key.id()));
  Release();
  ASSERT_TRUE(transport_.AwaitSent(4));
  EXPECT_THAT(KeysOf(3), ElementsAre(slow->key.id()));
}

TEST_F(PushesAtOnce, AKeysRoundsStayInOrder) {
  MakeThreads(3);
  const TensorPlan* slow = Tensor("slow", kLargeElements);
  const TensorPlan* other = Tensor("other", kLargeElements);
  HoldUpEncodingOf(slow);
  ASSERT_TRUE(pipeline_->Submit(Job(slow, 0, /*round=*/1)).ok());
  AwaitBegun("s:slow1");
  ASSERT_TRUE(pipeline_->Submit(Job(slow, 0, /*round=*/2)).ok());
  ASSERT_TRUE(pipeline_->Submit(Job(other, 0, /*round=*/3)).ok());
  ASSERT_TRUE(transport_.AwaitSent(1));
  EXPECT_THAT(KeysOf(0), ElementsAre(other->key.id()));
  {
    MutexLock lock(&mutex_);
    EXPECT_FALSE(HasBegun("s:slow2")) << "two threads use one residual";
  }
  Release();
  ASSERT_TRUE(transport_.AwaitSent(3));
  EXPECT_EQ(transport_.header(1).push().items(0).round(), 1u);
  EXPECT_EQ(transport_.header(2).push().items(0).round(), 2u);
}

TEST_F(PushesAtOnce, SmallTensorsLeaveThoughALargeOneIsEncoded) {
  MakeThreads(2);
  const TensorPlan* slow = Tensor("slow", kLargeElements);
  HoldUpEncodingOf(slow);
  ASSERT_TRUE(pipeline_->Submit(Job(slow)).ok());
  AwaitBegun("s:slow1");
  ASSERT_TRUE(pipeline_->Submit(Job(Tensor("small", 4))).ok());
  EXPECT_TRUE(transport_.AwaitSent(1));
  Release();
}

TEST_F(PushesAtOnce, ResidualsAreTheSameForAnyNumberOfThreads) {
  std::vector<std::string> states;
  for (const int threads : {1, 4}) {
    MakeThreads(threads, {.compression = "1bit", .fixed_threshold_bytes = 0});
    const size_t before = transport_.sent();
    const TensorPlan* tensor = Tensor("w", 4 * kLargeElements, 8);
    for (uint64_t round = 1; round <= 3; ++round) {
      PushJob job = Job(tensor, 0, round);
      for (const auto& grad_buf : job.grad_bufs) {
        float value = static_cast<float>(round);
        for (float& x : grad_buf->floats()) x = value = -0.999f * value;
      }
      job.gradient_bound = 4;
      ASSERT_TRUE(pipeline_->Submit(std::move(job)).ok());
    }
    size_t answered = before;
    for (size_t items = 0; items < 24; ++answered) {
      ASSERT_TRUE(transport_.AwaitSent(answered + 1));
      items += KeysOf(answered).size();
      Answer(answered);
    }
    ASSERT_TRUE(pipeline_
                    ->UseStates([&](StateStore& of, LevelProbe&) {
                      states.push_back(of.Serialize());
                      return absl::OkStatus();
                    })
                    .ok());
  }
  EXPECT_EQ(states[0], states[1]);
}

TEST_F(PushesAtOnce, AMeasuredPushIsEncodedAndSentAlone) {
  ThresholdTable table("1bit");
  const uint64_t bytes = kLargeElements * sizeof(float);
  table.AddRaw(bytes, absl::Milliseconds(9));
  table.AddCompressed(bytes, absl::Milliseconds(1), absl::Milliseconds(1));
  MakeThreads(3, {.compression = "1bit", .table = table, .remeasure_every = 8});
  const TensorPlan* slow = Tensor("slow", 4);
  const TensorPlan* measured = Tensor("measured", kLargeElements);
  const TensorPlan* later = Tensor("later", 4);
  HoldUpEncodingOf(slow, /*round=*/7);
  ASSERT_TRUE(pipeline_->Submit({slow, /*round=*/7, 0, {}}).ok());
  AwaitBegun("s:slow7");
  ASSERT_TRUE(pipeline_->Submit(Job(measured, 0, /*round=*/8)).ok());
  ASSERT_TRUE(pipeline_->Submit({later, /*round=*/9, 0, {}}).ok());
  EXPECT_FALSE(pipeline_->PrepareNow({later, /*round=*/10, 0, {}})->has_value());
  {
    MutexLock lock(&mutex_);
    EXPECT_THAT(begun_, ElementsAre("s:slow7")) << "another encodes";
  }
  Release();
  ASSERT_TRUE(transport_.AwaitSent(1));
  Answer(0);
  ASSERT_TRUE(transport_.AwaitSent(2));
  EXPECT_TRUE(transport_.header(1).push().items(0).profile());
  {
    MutexLock lock(&mutex_);
    EXPECT_THAT(begun_, ElementsAre("s:slow7", "s:measured8")) << "it is on the link";
  }
  Answer(1);
  ASSERT_TRUE(transport_.AwaitSent(3));
  EXPECT_THAT(KeysOf(2), ElementsAre(later->key.id()));
}

TEST_F(PushesAtOnce, MeasuredPushesOfLentGradientsAreInTheProfile) {
  MakeThreads(1, {.compression = "1bit", .pre_steps = 4});
  const TensorPlan* tensor = Tensor("w", kLargeElements);
  const std::vector<float> gradient(kLargeElements, 0.5f);
  for (uint64_t round = 1; round <= 4; ++round) {
    const auto loan = std::make_shared<GradientLoan>(LentGradient{.values = gradient});
    ASSERT_TRUE(pipeline_
                    ->Submit({.tensor = tensor,
                              .round = round,
                              .grad_bufs = LendPartitions(*tensor, loan),
                              .loan = loan})
                    .ok());
    ASSERT_TRUE(transport_.AwaitSent(round));
    EXPECT_EQ(transport_.header(round - 1).push().items(0).profile(), round > 2);
    Answer(round - 1);
    ASSERT_TRUE(pipeline_->Drain(kLong).ok());
  }
  const auto report = plan_->TakeReport(5);
  ASSERT_TRUE(report.has_value());
  ASSERT_EQ(report->rows_size(), 1);
  EXPECT_EQ(report->rows(0).raw_samples(), 1);
  EXPECT_EQ(report->rows(0).compressed_samples(), 1);
}

}  // namespace
}  // namespace slimps
