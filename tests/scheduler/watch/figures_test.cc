// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "tests/scheduler/watch/watch_fixture.h"

namespace slimps {
namespace {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr absl::Duration kWindow = absl::Seconds(10);

SteadyTime At(double seconds) { return SteadyTime() + absl::Seconds(seconds); }

watch::NodeReport PushedBytes(double seconds, double bytes) {
  watch::NodeReport report;
  report.set_seconds(seconds);
  AddSample(Metric::kPayloadBytes, {"push", "1bit"}, bytes, &report);
  return report;
}

double PushRate(const NodeRates& rates, absl::Duration window, SteadyTime now) {
  return rates.PerSecond(Metric::kPayloadBytes, {"push"}, window, now);
}

TEST(NodeRatesTest, ARateIsMeasuredOnTheNodesOwnClock) {
  NodeRates rates;
  rates.Add(PushedBytes(1, 100), At(5));
  EXPECT_EQ(0, PushRate(rates, kWindow, At(5)));
  rates.Add(PushedBytes(2, 400), At(6.8));  // it came late
  EXPECT_EQ(300, PushRate(rates, kWindow, At(7)));
  rates.Add(PushedBytes(3, 500), At(7));
  EXPECT_EQ(200, PushRate(rates, kWindow, At(7)));
  EXPECT_EQ(100, PushRate(rates, absl::Milliseconds(100), At(7)));
}

TEST(NodeRatesTest, ANodeThatIsSilentStandsStill) {
  NodeRates rates;
  rates.Add(PushedBytes(1, 100), At(1));
  rates.Add(PushedBytes(2, 400), At(2));
  EXPECT_EQ(300, PushRate(rates, kWindow, At(6)));
  EXPECT_EQ(0, PushRate(rates, kWindow, At(8)));
}

TEST(NodeRatesTest, ANewProcessBeginsAnew) {
  NodeRates rates;
  rates.Add(PushedBytes(50, 1000), At(1));
  rates.Add(PushedBytes(1, 10), At(2));
  EXPECT_EQ(0, PushRate(rates, kWindow, At(2)));
  rates.Add(PushedBytes(2, 30), At(3));
  EXPECT_EQ(20, PushRate(rates, kWindow, At(3)));
}

TEST(NodeRatesTest, FewReportsAreKept) {
  NodeRates rates;
  for (int i = 0; i < 1000; ++i) rates.Add(PushedBytes(i * 0.01, i), At(i * 0.01));
  EXPECT_NEAR(100, PushRate(rates, kWindow, At(10)), 1e-6);
}

TEST(NodeRatesTest, AWorkerThatComesBackHasNotMadeTheRoundsBefore) {
  NodeRates rates;
  for (const auto& [seconds, round] : {std::pair(1.0, 0), {2.0, 0}, {3.0, 1000}, {4.0, 1003}}) {
    watch::NodeReport report;
    report.set_seconds(seconds);
    AddSample(Metric::kRound, {}, round, &report);
    rates.Add(report, At(seconds));
  }
  EXPECT_EQ(3, rates.RoundsPerSecond(kWindow, At(4)));
}

TEST(FiguresTest, ANodeThatIsGoneIsNoLongerCounted) {
  RatesMap nodes;
  for (const double seconds : {1.0, 2.0, 8.0, 9.0}) {
    for (const NodePlace& place : {kWorker0, kWorker1}) {
      if (place == kWorker1 && seconds > 2) continue;
      watch::NodeReport report = PushedBytes(seconds, 0);
      AddSample(Metric::kTravelSeconds, {}, seconds, &report);
      AddSample(Metric::kOverlapSeconds, {}, place == kWorker0 ? seconds : 0, &report);
      nodes[place].Add(report, At(seconds));
    }
  }
  EXPECT_EQ(1, FiguresOf(nodes, 2, absl::Seconds(1), At(9)).overlap);
  EXPECT_EQ(std::nullopt, FiguresOf(nodes, 2, absl::Seconds(1), At(99)).overlap);
}

TEST(FiguresTest, WorkersAreSummedAndServersCompared) {
  RatesMap nodes;
  for (const double seconds : {1.0, 2.0}) {
    for (const NodePlace& place : {kWorker0, kWorker1}) {
      watch::NodeReport report = PushedBytes(seconds, 100 * seconds);
      AddSample(Metric::kPayloadBytes, {"pull", "none"}, 1000 * seconds, &report);
      AddSample(Metric::kRawBytes, {"push"}, 3200 * seconds, &report);
      AddSample(Metric::kStageSeconds, {"encode"}, 0.5 * seconds, &report);
      AddSample(Metric::kRound, {}, 7 * seconds, &report);
      AddSample(Metric::kTravelSeconds, {}, 0.5 * seconds, &report);
      AddSample(Metric::kOverlapSeconds, {}, (place == kWorker0 ? 0.1 : 0.2) * seconds, &report);
      nodes[place].Add(report, At(seconds));
    }
    watch::NodeReport server;
    server.set_seconds(seconds);
    AddSample(Metric::kReceivedBytes, {"raw"}, 10 * seconds, &server);
    AddSample(Metric::kSentBytes, {"raw"}, 20 * seconds, &server);
    AddSample(Metric::kWaitedForWorker, {"1"}, 0.25 * seconds, &server);
    AddSample(Metric::kWaitedForWorker, {"9"}, 0.25 * seconds, &server);  // no such worker
    nodes[kServer1].Add(server, At(seconds));
  }
  const Figures figures = FiguresOf(nodes, 2, kWindow, At(2));
  EXPECT_EQ(200, figures.push_bytes_per_s);
  EXPECT_EQ(2000, figures.pull_bytes_per_s);
  EXPECT_EQ(2000, figures.uncompressed_pull_bytes_per_s);
  EXPECT_EQ(6400, figures.raw_push_bytes_per_s);
  EXPECT_EQ(7, figures.rounds_per_s);
  EXPECT_DOUBLE_EQ(0.3, figures.overlap.value());
  EXPECT_FALSE(figures.compression_gain.has_value());
  EXPECT_EQ(1, figures.stage_s.at("encode"));
  EXPECT_EQ(0, figures.stage_s.at("send"));
  EXPECT_THAT(figures.server_bytes_per_s, UnorderedElementsAre(Pair(1, 30)));
  EXPECT_THAT(figures.waited_for, UnorderedElementsAre(Pair(1, 0.25)));
}

TEST(HistoryTest, ItHasOnePointASecondAndTheNewestSixHundred) {
  History history;
  for (int i = 0; i < 1400; ++i) history.Add(absl::Milliseconds(500 * i), Figures());
  EXPECT_EQ(600u, history.points().size());
  EXPECT_EQ(699, history.points().back().t);
  EXPECT_EQ(100, history.points().front().t);
}

}  // namespace
}  // namespace slimps
