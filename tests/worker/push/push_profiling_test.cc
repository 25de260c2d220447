// SPDX-License-Identifier: Apache-2.0
// Pushes that are measured, and what happens when nobody answers a report.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/push/push_pipeline_fixture.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

TEST_F(PushPipelineTest, AMeasuredPushThatIsRefusedIsAnErrorToo) {
  Make({.compression = "1bit", .pre_steps = 4});
  ASSERT_TRUE(pipeline_->Submit(Job(Tensor("w", kLargeElements))).ok());
  ASSERT_TRUE(transport_.AwaitSent(1));
  ASSERT_TRUE(transport_.header(0).push().items(0).profile());
  Answer(0, absl::AlreadyExistsError("pushed before"));
  const absl::Status error = AwaitError();
  EXPECT_TRUE(absl::IsAlreadyExists(error));
  EXPECT_THAT(std::string(error.message()), HasSubstr("push of key s:w partition 0 to server 0"));
}

TEST_F(PushPipelineTest, AMeasuredPushThatIsNeverAnsweredIsAnErrorToo) {
  Make({.compression = "1bit", .pre_steps = 4}, size_t{1} << 30, absl::Milliseconds(50));
  ASSERT_TRUE(pipeline_->Submit(Job(Tensor("w", kLargeElements))).ok());
  const absl::Status error = AwaitError();
  EXPECT_TRUE(absl::IsDeadlineExceeded(error));
  EXPECT_THAT(std::string(error.message()), HasSubstr("s:w was never answered"));
}

TEST_F(PushPipelineTest, AMeasuredPushGoesOutInTheEndThoughAnotherIsNeverAnswered) {
  Make({.compression = "1bit", .pre_steps = 4}, size_t{1} << 30, absl::Milliseconds(50));
  // This push is prepared and never dispatched, so the link does not become quiet.
  PushJob nothing{Tensor("a", 4), /*round=*/1, 0, {}};
  ASSERT_TRUE(pipeline_->Submit(std::move(nothing)).ok());
  ASSERT_TRUE(transport_.AwaitSent(1));
  ASSERT_TRUE(pipeline_->Submit(Job(Tensor("w", kLargeElements))).ok());
  EXPECT_TRUE(transport_.AwaitSent(2));
}

// If a decision never comes, training does not wait for ever, however short the timeout is. The
// decision in force stays.
TEST_F(PushPipelineTest, WithoutAnAnswerToALaterReportItGoesOnAsDecidedBefore) {
  ThresholdTable table("1bit");
  table.AddRaw(4096, absl::Milliseconds(9));
  table.AddCompressed(4096, absl::Milliseconds(1), absl::Milliseconds(1));
  Make({.compression = "1bit", .table = table, .remeasure_every = 8}, size_t{1} << 30,
       absl::Milliseconds(400));
  ASSERT_TRUE(plan_->TakeReport(11).has_value());
  ASSERT_TRUE(pipeline_->Submit(Job(Tensor("w", 4096), 0, /*round=*/18)).ok());
  EXPECT_TRUE(transport_.AwaitSent(1));
  MutexLock lock(&mutex_);
  EXPECT_TRUE(errors_.empty()) << errors_[0];
}

}  // namespace
}  // namespace slimps
