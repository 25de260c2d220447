// SPDX-License-Identifier: Apache-2.0
// Pushes that are measured, and what happens when nobody answers a report.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/push/push_pipeline_fixture.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

// A table of one size, which is measured in rounds 8, 9, 16, 17, ...
CompressionPlanOptions Measuring(uint64_t bytes) {
  ThresholdTable table("1bit");
  table.AddRaw(bytes, absl::Milliseconds(9));
  table.AddCompressed(bytes, absl::Milliseconds(1), absl::Milliseconds(1));
  return {.compression = "1bit", .table = table, .remeasure_every = 8};
}

TEST_F(PushPipelineTest, AMeasuredPushThatIsRefusedIsAnErrorToo) {
  Make(Measuring(kLargeElements * sizeof(float)));
  ASSERT_TRUE(pipeline_->Submit(Job(Tensor("w", kLargeElements), 0, /*round=*/8)).ok());
  ASSERT_TRUE(transport_.AwaitSent(1));
  ASSERT_TRUE(transport_.header(0).push().items(0).profile());
  Answer(0, absl::AlreadyExistsError("pushed before"));
  const absl::Status error = AwaitError();
  EXPECT_TRUE(absl::IsAlreadyExists(error));
  EXPECT_THAT(std::string(error.message()), HasSubstr("push of key s:w partition 0 to server 0"));
}

TEST_F(PushPipelineTest, AMeasuredPushThatIsNeverAnsweredIsAnErrorToo) {
  Make(Measuring(kLargeElements * sizeof(float)), size_t{1} << 30, absl::Milliseconds(50));
  ASSERT_TRUE(pipeline_->Submit(Job(Tensor("w", kLargeElements), 0, /*round=*/8)).ok());
  const absl::Status error = AwaitError();
  EXPECT_TRUE(absl::IsDeadlineExceeded(error));
  EXPECT_THAT(std::string(error.message()), HasSubstr("s:w was never answered"));
}

TEST_F(PushPipelineTest, AMeasuredPushGoesOutInTheEndThoughAnotherIsNeverAnswered) {
  Make(Measuring(kLargeElements * sizeof(float)), size_t{1} << 30, absl::Milliseconds(50));
  // This push is prepared and never dispatched, so the link does not become quiet.
  PushJob nothing{Tensor("a", 4), /*round=*/1, 0, {}};
  ASSERT_TRUE(pipeline_->Submit(std::move(nothing)).ok());
  ASSERT_TRUE(transport_.AwaitSent(1));
  ASSERT_TRUE(pipeline_->Submit(Job(Tensor("w", kLargeElements), 0, /*round=*/8)).ok());
  EXPECT_TRUE(transport_.AwaitSent(2));
}

// If a decision never comes, training does not wait for ever, however short the timeout is. The
// decision in force stays.
TEST_F(PushPipelineTest, WithoutAnAnswerToALaterReportItGoesOnAsDecidedBefore) {
  Make(Measuring(4096), size_t{1} << 30, absl::Milliseconds(400));
  ASSERT_TRUE(plan_->TakeReport(11).has_value());
  ASSERT_TRUE(pipeline_->Submit(Job(Tensor("w", 4096), 0, /*round=*/18)).ok());
  EXPECT_TRUE(transport_.AwaitSent(1));
  MutexLock lock(&mutex_);
  EXPECT_TRUE(errors_.empty()) << errors_[0];
}

}  // namespace
}  // namespace slimps
