// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/controllers/report.h"

#include <algorithm>
#include <limits>

#include "gtest/gtest.h"

namespace slimps {
namespace {

constexpr TensorInfo kMatrix = {.key = 5, .elements = 12, .rows = 3, .columns = 4};
constexpr TensorInfo kVector = {.key = 9, .elements = 7};

Report ReportOf(uint32_t worker, double scale) {
  Report report{.worker = worker,
                .round = 100,
                .rounds = 50,
                .iteration_ns = 10 * scale,
                .learning_rate = worker == 0 ? 0 : 0.1};
  report.link.ns_per_byte = 0.5 * scale;
  report.tensors = {
      {.tensor = kMatrix,
       .ready_ns = 4 * scale,
       .pull_bytes = 3,
       .input_norm2 = scale,
       .levels = {{.codec = "a", .error_norm2 = 0.5 * scale, .payload_bytes = 10},
                  {.codec = "b", .error_norm2 = 0.1 * scale, .payload_bytes = 20 + worker}}},
      {.tensor = kVector, .input_norm2 = 2 * scale}};
  return report;
}

TEST(MergeReports, SumsSquaresAndAveragesTimes) {
  const std::vector<Report> reports = {ReportOf(0, 1), ReportOf(1, 3)};
  const auto merged = MergeReports(reports);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->workers, 2u);
  EXPECT_EQ(merged->round, 100u);
  EXPECT_EQ(merged->rounds, 50u);
  EXPECT_DOUBLE_EQ(merged->iteration_ns, 20);
  EXPECT_DOUBLE_EQ(merged->link.ns_per_byte, 1);
  EXPECT_DOUBLE_EQ(merged->link.startup_ns, 0);
  EXPECT_DOUBLE_EQ(merged->learning_rate, 0.1);  // worker 0 does not know it
  ASSERT_EQ(merged->tensors.size(), 2u);
  EXPECT_EQ(merged->tensors[0].tensor, kMatrix);
  EXPECT_DOUBLE_EQ(merged->tensors[0].ready_ns, 8);
  EXPECT_DOUBLE_EQ(merged->tensors[0].input_norm2, 4);
  ASSERT_EQ(merged->tensors[0].levels.size(), 2u);
  EXPECT_DOUBLE_EQ(merged->tensors[0].levels[0].error_norm2, 2);
  EXPECT_EQ(merged->tensors[0].levels[1].payload_bytes, 21u);  // 20.5, rounded up
  EXPECT_DOUBLE_EQ(merged->tensors[1].input_norm2, 8);
}

TEST(MergeReports, DoesNotDependOnTheOrderOfArrival) {
  // 1e16 + 1 - rounding shows the order of a sum.
  std::vector<Report> reports = {ReportOf(0, 1e16), ReportOf(1, 1), ReportOf(2, 1), ReportOf(3, 1)};
  const auto merged = MergeReports(reports);
  std::ranges::reverse(reports);
  const auto reversed = MergeReports(reports);
  ASSERT_TRUE(merged.ok() && reversed.ok());
  EXPECT_EQ(merged->tensors[0].input_norm2, reversed->tensors[0].input_norm2);
  EXPECT_EQ(merged->worker, reversed->worker);
}

TEST(MergeReports, OneSlowWorkerOfThreeDoesNotMoveATime) {
  std::vector<Report> reports = {ReportOf(0, 1), ReportOf(1, 1), ReportOf(2, 1)};
  reports[1].iteration_ns = 1e9;
  EXPECT_DOUBLE_EQ(MergeReports(reports)->iteration_ns, 10);
}

TEST(MergeReports, AStepsTimeIsTheMeanOverItsRounds) {
  std::vector<Report> reports = {ReportOf(0, 1), ReportOf(1, 1)};
  reports[0].steps = {{.rounds = 10, .iteration_ns = 100, .gain = 0.5}, {}};
  reports[1].steps = {{.rounds = 30, .iteration_ns = 200, .gain = 0.7}, {}};
  const auto merged = MergeReports(reports);
  ASSERT_EQ(merged->steps.size(), 2u);
  EXPECT_EQ(merged->steps[0].rounds, 40u);
  EXPECT_DOUBLE_EQ(merged->steps[0].iteration_ns, 175);
  EXPECT_DOUBLE_EQ(merged->steps[0].gain, 0.6);
  EXPECT_EQ(merged->steps[1].gain, 0);
}

TEST(MergeReports, KeepsWhatAllWorkersReported) {
  std::vector<Report> reports = {ReportOf(0, 1), ReportOf(1, 1)};
  reports[1].tensors.pop_back();
  reports[0].tensors[0].levels.erase(reports[0].tensors[0].levels.begin());
  const auto merged = MergeReports(reports);
  ASSERT_EQ(merged->tensors.size(), 1u);
  ASSERT_EQ(merged->tensors[0].levels.size(), 1u);
  EXPECT_EQ(merged->tensors[0].levels[0].codec, "b");
}

// Returns the message for two reports, the second of which `spoil` has changed.
template <typename Spoil>
std::string MessageFor(Spoil spoil) {
  std::vector<Report> reports = {ReportOf(0, 1), ReportOf(1, 1)};
  spoil(reports[1]);
  const auto merged = MergeReports(reports);
  EXPECT_EQ(merged.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(merged.status().message());
}

TEST(MergeReports, RefusesWhatDisagreesOrIsNoNumber) {
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  EXPECT_FALSE(MergeReports({}).ok());
  has(MessageFor([](Report& r) { r.worker = 0; }), "worker 0 to round 100: comes twice");
  has(MessageFor([](Report& r) { r.round = 101; }), "expected 50 to round 100");
  has(MessageFor([](Report& r) { r.steps.resize(2); }), "2 steps, expected 0");
  has(MessageFor([](Report& r) { r.tensors[0].tensor = {.key = 5, .elements = 12}; }),
      "key 5 has another shape than in the report of worker 0");
  has(MessageFor([](Report& r) { r.tensors[0].tensor.columns = 5; }),
      "3 rows of 5 columns, expected 12 elements in all");
  // 2^32 * 2^32 wraps to 0 elements.
  has(MessageFor([](Report& r) {
        r.tensors[0].tensor = {5, 0, uint64_t{1} << 32, uint64_t{1} << 32};
      }),
      "expected 0 elements in all");
  has(MessageFor([](Report& r) { std::swap(r.tensors[0], r.tensors[1]); }),
      "key 5 comes after key 9, expected rising keys");
  has(MessageFor([](Report& r) { r.tensors[0].levels[1].codec = "a"; }), "a comes twice");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  has(MessageFor([&](Report& r) { r.iteration_ns = nan; }), "finite times");
  has(MessageFor([&](Report& r) { r.link.startup_ns = -1; }), "finite times");
  has(MessageFor([&](Report& r) { r.tensors[1].input_norm2 = nan; }), "key 9: expected a finite");
  has(MessageFor([&](Report& r) { r.tensors[0].levels[0].error_norm2 = -1; }),
      "key 5: a: expected a finite error");
}

}  // namespace
}  // namespace slimps
