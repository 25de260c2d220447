// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/node_reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/scheduler/watch/watch_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;

constexpr ReportLimits kLimits = {.num_workers = 2, .num_servers = 2};

watch::NodeReport Parsed(const watch::NodeReport& report) {
  return ParseNodeReport(report.SerializeAsString(), kLimits).value();
}

TEST(NodeReportsTest, GarbageIsNoReport) {
  EXPECT_FALSE(ParseNodeReport("\xff\xff\xff", kLimits).has_value());
  watch::NodeReport report;
  report.set_seconds(-1);
  EXPECT_FALSE(ParseNodeReport(report.SerializeAsString(), kLimits).has_value());
  report.set_seconds(std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(ParseNodeReport(report.SerializeAsString(), kLimits).has_value());
}

TEST(NodeReportsTest, SamplesThatMakeNoSenseAreLeftOut) {
  watch::NodeReport report;
  AddSample(Metric::kPushes, {}, 7, &report);
  AddSample(Metric::kPushes, {}, 8, &report);  // repeated
  AddSample(Metric::kNodeUp, {}, 1, &report);  // the scheduler knows better
  AddSample(Metric::kRound, {}, std::numeric_limits<double>::infinity(), &report);
  report.add_samples()->set_metric(9999);
  report.add_samples()->set_metric(static_cast<uint32_t>(Metric::kRawBytes));  // without its label
  const watch::NodeReport parsed = Parsed(report);
  ASSERT_EQ(1, parsed.samples_size());
  EXPECT_EQ(7, parsed.samples(0).value());
}

TEST(NodeReportsTest, CountsAreBounded) {
  watch::NodeReport report;
  for (uint64_t round = 0; round < 1000; ++round) {
    *report.add_open_rounds() = Round(round, 1, std::vector<std::string>(100, "s:w"), {7, 1, 0, 1});
  }
  for (int i = 0; i < 10'000; ++i) report.add_timeline()->set_end_s(1);
  const watch::NodeReport parsed = Parsed(report);
  EXPECT_EQ(kLimits.max_open_rounds, parsed.open_rounds_size());
  EXPECT_EQ(kLimits.max_named, parsed.open_rounds(0).tensors_size());
  EXPECT_THAT(parsed.open_rounds(0).missing(), ElementsAre(0, 1));
  EXPECT_EQ(kLimits.max_spans, parsed.timeline_size());
}

TEST(NodeReportsTest, SpansWithoutALengthAreLeftOut) {
  watch::NodeReport report;
  report.add_timeline()->set_begin_s(1);  // it ends at 0
  report.add_timeline()->set_end_s(std::numeric_limits<double>::infinity());
  report.add_timeline()->set_end_s(1);
  EXPECT_EQ(1, Parsed(report).timeline_size());
}

TEST(NodeReportsTest, TimesThatNobodyCanHaveWaitedAreLeftOut) {
  watch::NodeReport report = Call("push", 1e300, "");
  *report.add_open_rounds() = Round(7, 1e300, {"s:w"}, {1});
  EXPECT_EQ(0, Parsed(report).open_rounds_size());
  EXPECT_EQ(0, Parsed(report).activity().seconds());
}

TEST(NodeReportsTest, TextsAreOneLineAndShort) {
  watch::NodeReport report = Call("push\nI0101 the job has ended", 1, std::string(1000, 'x'));
  const watch::NodeReport parsed = Parsed(report);
  EXPECT_EQ("push\\nI0101 the job has ended", parsed.activity().call());
  EXPECT_EQ(kLimits.max_text_bytes, parsed.activity().where().size());
}

TEST(NodeReportsTest, ATextIsCutBetweenCharacters) {
  EXPECT_EQ("a\u00e9", OneLine("a\u00e9\u00e9", 4));
  EXPECT_EQ("a\u00e9\u00e9", OneLine("a\u00e9\u00e9", 5));
  EXPECT_EQ("", OneLine("\u00e9", 1));
}

}  // namespace
}  // namespace slimps
