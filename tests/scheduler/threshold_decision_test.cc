// SPDX-License-Identifier: Apache-2.0
#include "scheduler/decisions/threshold_decision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace slimps {
namespace {

using ::testing::HasSubstr;

struct RowFields {
  uint64_t bytes = 0;
  double t_c = 0;  // this and the next in ms
  double t_cq = 0;
  double t_pq = 0;
};

void AddRow(wire::ThresholdReport* report, const RowFields& fields) {
  wire::ThresholdRow* row = report->add_rows();
  row->set_bytes(fields.bytes);
  row->set_t_c_ms(fields.t_c);
  row->set_t_cq_ms(fields.t_cq);
  row->set_t_pq_ms(fields.t_pq);
  row->set_raw_samples(9);
  row->set_compressed_samples(9);
}

// Returns the worked example of the SlimGC paper, whose BestCT is 2.2 MB. `shift` raises the times.
wire::ThresholdReport PaperReport(uint64_t ready_round, double shift = 0) {
  wire::ThresholdReport report;
  report.set_codec("1bit");
  report.set_ready_round(ready_round);
  AddRow(&report, {.bytes = 1'000'000, .t_c = 28.5 + shift, .t_cq = 24.3 + shift, .t_pq = 6.3});
  AddRow(&report, {.bytes = 1'600'000, .t_c = 30.5 + shift, .t_cq = 25.3 + shift, .t_pq = 6.5});
  AddRow(&report, {.bytes = 2'200'000, .t_c = 40.2 + shift, .t_cq = 28.3 + shift, .t_pq = 6.8});
  AddRow(&report, {.bytes = 4'000'000, .t_c = 75.5 + shift, .t_cq = 37.3 + shift, .t_pq = 8.5});
  return report;
}

TEST(ThresholdDecision, WaitsForEveryWorker) {
  ThresholdDecision decision(2);
  ASSERT_TRUE(decision.Add(0, PaperReport(21)).ok());
  ASSERT_TRUE(decision.Add(0, PaperReport(21)).ok());
  EXPECT_FALSE(decision.decision().has_value());
  ASSERT_TRUE(decision.Add(1, PaperReport(23)).ok());
  EXPECT_TRUE(decision.decision().has_value());
}

TEST(ThresholdDecision, HoldsFromTheRoundAfterTheLastThatAnyWorkerMayHaveBegun) {
  ThresholdDecision decision(2);
  ASSERT_TRUE(decision.Add(0, PaperReport(23)).ok());
  ASSERT_TRUE(decision.Add(1, PaperReport(21)).ok());
  EXPECT_EQ(decision.decision()->from_round(), 24u);
  EXPECT_EQ(decision.decision()->version(), 1u);
}

TEST(ThresholdDecision, FindsThePapersThreshold) {
  ThresholdDecision decision(1);
  ASSERT_TRUE(decision.Add(0, PaperReport(21)).ok());
  EXPECT_TRUE(decision.decision()->has_threshold());
  EXPECT_EQ(decision.decision()->threshold_bytes(), 2'200'000u);
  EXPECT_EQ(decision.decision()->codec(), "1bit");
  EXPECT_EQ(decision.decision()->codec_below(), "none");
}

TEST(ThresholdDecision, AveragesTheWorkers) {
  ThresholdDecision decision(2);
  ASSERT_TRUE(decision.Add(0, PaperReport(21)).ok());
  ASSERT_TRUE(decision.Add(1, PaperReport(21, 10)).ok());
  ASSERT_EQ(decision.decision()->table_size(), 4);
  EXPECT_DOUBLE_EQ(decision.decision()->table(0).t_c_ms(), 33.5);
  EXPECT_DOUBLE_EQ(decision.decision()->table(0).t_cq_ms(), 29.3);
  EXPECT_EQ(decision.decision()->table(0).raw_samples(), 18u);
}

TEST(ThresholdDecision, NothingGainsMeansNoThreshold) {
  ThresholdDecision decision(1);
  wire::ThresholdReport report;
  report.set_codec("1bit");
  AddRow(&report, {.bytes = 4096, .t_c = 1.0, .t_cq = 0.9, .t_pq = 0.5});
  ASSERT_TRUE(decision.Add(0, report).ok());
  EXPECT_FALSE(decision.decision()->has_threshold());
}

TEST(ThresholdDecision, AColumnThatWasNeverMeasuredDecidesNothing) {
  for (const bool raw : {true, false}) {
    ThresholdDecision decision(1);
    wire::ThresholdReport report = PaperReport(21);
    report.set_pull_codec("1bit");
    AddRow(&report, {.bytes = 4000, .t_c = raw ? 9.0 : 0, .t_cq = raw ? 0 : 1.0});
    wire::ThresholdRow& row = *report.mutable_rows()->rbegin();
    row.set_direction(wire::PULL);
    if (raw) {
      row.set_compressed_samples(0);
    } else {
      row.set_raw_samples(0);
    }
    ASSERT_TRUE(decision.Add(0, report).ok());
    EXPECT_EQ(decision.decision()->codec(), "1bit");
    EXPECT_TRUE(decision.decision()->has_threshold());
    EXPECT_EQ(decision.decision()->pull_codec(), "") << "pulls stay as they are";
    EXPECT_EQ(decision.decision()->table_size(), 5) << "what was measured is told";
  }
}

TEST(ThresholdDecision, AWorkerThatLeftIsNotWaitedFor) {
  ThresholdDecision decision(2);
  ASSERT_TRUE(decision.Add(0, PaperReport(21)).ok());
  decision.Leave(1);
  ASSERT_TRUE(decision.decision().has_value());
  EXPECT_EQ(decision.decision()->from_round(), 22u);
}

TEST(ThresholdDecision, AllLeavingWithoutReportsDecidesNothing) {
  ThresholdDecision decision(1);
  decision.Leave(0);
  EXPECT_FALSE(decision.decision().has_value());
}

TEST(ThresholdDecision, AnotherCodecIsRefusedNamingBothWorkers) {
  ThresholdDecision decision(2);
  ASSERT_TRUE(decision.Add(0, PaperReport(21)).ok());
  wire::ThresholdReport other = PaperReport(21);
  other.set_codec("2bit");
  const absl::Status status = decision.Add(1, other);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* part : {"worker 1", "\"2bit\"", "worker 0", "\"1bit\""}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST(ThresholdDecision, RowsThatNoTableCanHaveAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {nan, -1.0, std::numeric_limits<double>::infinity()}) {
    ThresholdDecision decision(1);
    wire::ThresholdReport report;
    AddRow(&report, {.bytes = 4096, .t_c = bad, .t_cq = 1, .t_pq = 1});
    EXPECT_EQ(decision.Add(0, report).code(), absl::StatusCode::kInvalidArgument);
  }
  ThresholdDecision decision(1);
  wire::ThresholdReport twice;
  AddRow(&twice, {.bytes = 4096, .t_c = 1, .t_cq = 1, .t_pq = 1});
  AddRow(&twice, {.bytes = 4096, .t_c = 1, .t_cq = 1, .t_pq = 1});
  EXPECT_FALSE(decision.Add(0, twice).ok());
  EXPECT_FALSE(decision.Add(0, PaperReport(std::numeric_limits<uint64_t>::max())).ok());
}

TEST(ThresholdDecision, TheFirstDecisionStays) {
  ThresholdDecision decision(1);
  ASSERT_TRUE(decision.Add(0, PaperReport(21)).ok());
  ASSERT_TRUE(decision.Add(0, PaperReport(90)).ok());
  EXPECT_EQ(decision.decision()->from_round(), 22u);
}

}  // namespace
}  // namespace slimps
