// SPDX-License-Identifier: Apache-2.0
// What CompressionPlan adds to a policy's report, and what the scheduler reads of it.
#include <gtest/gtest.h>

#include "compress/policy/controllers/messages.h"
#include "worker/plan/compression_plan.h"

namespace slimps {
namespace {

constexpr size_t kElements = 8000;

// Returns the report of the first window, as the scheduler reads it.
Report FirstReport(CompressionPlanOptions options) {
  options.policy = "lgreco:codec=topk:ratio=0.01,every=8";
  options.workers = 2;
  const auto plan = CompressionPlan::Create(options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  const TensorPlan tensor = {
      .key = Key("w"), .info = {}, .elements = kElements, .partitions = {{0, 0, kElements}}};
  EXPECT_TRUE((*plan)->BeginPolicy({&tensor}).ok());
  EXPECT_FALSE((*plan)->PolicyReportIsDue(8));
  EXPECT_TRUE((*plan)->PolicyReportIsDue(9));
  const wire::ThresholdReport report = (*plan)->TakePolicyReport(9, {});
  const auto read = ReportOf(report.policy(), /*worker=*/1);
  EXPECT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->tensors.size(), 1u);
  return *read;
}

TEST(PolicyReport, PullsAreRawUnlessItSaysOtherwise) {
  const Report report = FirstReport({});
  EXPECT_EQ(report.tensors[0].pull_bytes, kElements * sizeof(float));
  EXPECT_FALSE(report.pulls_follow_pushes);
  EXPECT_EQ(report.learning_rate, 0) << "not known";
}

TEST(PolicyReport, PullsInAnotherPrecisionTakeItsBytes) {
  const Report report = FirstReport({.pull_compression = "fp16", .fixed_pull_threshold_bytes = 0});
  EXPECT_EQ(report.tensors[0].pull_bytes, kElements * 2);
}

TEST(PolicyReport, PullsMayBeAsThePushes) {
  const Report report = FirstReport({.pulls_follow_policy = true});
  EXPECT_TRUE(report.pulls_follow_pushes);
  EXPECT_EQ(report.tensors[0].pull_bytes, 0u) << "as many as the push";
}

TEST(PolicyReport, TheLearningRateIsThatOfTheWindowsLastRound) {
  CompressionPlanOptions options;
  options.learning_rate = [](uint64_t round) { return 0.1 * static_cast<double>(round); };
  EXPECT_DOUBLE_EQ(FirstReport(options).learning_rate, 0.8);
}

}  // namespace
}  // namespace slimps
