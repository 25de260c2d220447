// SPDX-License-Identifier: Apache-2.0
// What CompressionPlan adds to a policy's report, and what the scheduler reads of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

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

TEST(PolicyReport, OneThatNoMessageCouldHoldIsRefusedAtTheBeginning) {
  CompressionPlanOptions options;
  options.policy = "lgreco:codec=topk:ratio=0.01,every=8";
  const auto plan = CompressionPlan::Create(options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<TensorPlan> tensors;
  std::vector<const TensorPlan*> all;
  for (int i = 0; i < 100000; ++i) {
    tensors.push_back({.key = Key(i), .info = {}, .elements = kElements, .partitions = {}});
  }
  for (const TensorPlan& tensor : tensors) all.push_back(&tensor);
  const absl::Status refused = (*plan)->BeginPolicy(all);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(testing::HasSubstr("report of 100000 tensors"),
                             testing::HasSubstr("expected at most 16777216; a higher")));
  all.resize(1000);
  EXPECT_TRUE((*plan)->BeginPolicy(all).ok());
}

TEST(SavedDecisions, OneThatCannotBeFollowedLeavesAllAsTheyWere) {
  CompressionPlanOptions options;
  options.policy = "uniform:codec=topk:ratio=0.01";
  const auto plan = CompressionPlan::Create(options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const TensorPlan tensor = {
      .key = Key("w"), .info = {}, .elements = kElements, .partitions = {{0, 0, kElements}}};
  ASSERT_TRUE((*plan)->BeginPolicy({&tensor}).ok());
  const auto codec = [&] { return (*plan)->CodecFor(tensor, 1, absl::ZeroDuration()).value(); };
  const Codec* const before = codec();
  const std::string decision = (*plan)->decision()->SerializeAsString();

  wire::SavedPolicy saved;
  saved.set_policy(options.policy);
  for (const uint64_t version : {3, 2}) {
    wire::CodecMap& map = *saved.add_decisions();
    map.set_policy(options.policy);
    map.set_version(version);
    wire::CodecEntry& entry = *map.add_entries();
    entry.set_key(tensor.key.id());
    entry.set_codec("topk:ratio=0.5");
  }
  const absl::Status refused = (*plan)->ResumePolicy(saved);
  EXPECT_EQ(refused.message(), "codec map: expected a version over 3, got 2");
  EXPECT_EQ(codec(), before);
  EXPECT_EQ((*plan)->decision()->SerializeAsString(), decision);

  saved.mutable_decisions(1)->set_version(4);
  ASSERT_TRUE((*plan)->ResumePolicy(saved).ok());
  EXPECT_EQ(codec()->spec().ToString(), "topk:ratio=0.5");
}

}  // namespace
}  // namespace slimps
