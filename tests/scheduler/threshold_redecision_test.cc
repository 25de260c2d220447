// SPDX-License-Identifier: Apache-2.0
// Decisions after the first: a job that goes on measuring, both directions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "compress/policy/measured_rounds.h"
#include "scheduler/decisions/threshold_decision.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMb = 1'000'000;

void AddRow(wire::ThresholdReport* report, wire::Direction direction, uint64_t bytes, double t_c,
            double t_q) {
  wire::ThresholdRow* row = report->add_rows();
  row->set_bytes(bytes);
  row->set_t_c_ms(t_c);
  row->set_t_cq_ms(t_q - 0.1);
  row->set_t_pq_ms(0.1);
  row->set_raw_samples(9);
  row->set_compressed_samples(9);
  row->set_direction(direction);
}

// Returns a report on sizes of 1, 2, 4, ..., 32 MB. Sizes from `gains_from` on gain by compression.
wire::ThresholdReport Report(uint64_t generation, uint64_t ready_round, uint64_t gains_from,
                             wire::Direction direction = wire::PUSH) {
  wire::ThresholdReport report;
  report.set_generation(generation);
  report.set_ready_round(ready_round);
  if (direction == wire::PUSH) report.set_codec("1bit");
  if (direction == wire::PULL) report.set_pull_codec("2bit");
  for (uint64_t bytes = kMb; bytes <= 32 * kMb; bytes *= 2) {
    const double t_c = static_cast<double>(bytes) / 1e5;
    AddRow(&report, direction, bytes, t_c, t_c * (bytes >= gains_from ? 0.8 : 1.2));
  }
  return report;
}

TEST(ThresholdRedecision, EachGenerationIsDecidedWhenAllHaveReportedIt) {
  ThresholdDecision decision(2);
  for (const uint32_t worker : {0, 1})
    ASSERT_TRUE(decision.Add(worker, Report(0, 21, 8 * kMb)).ok());
  EXPECT_EQ(decision.decision()->threshold_bytes(), 8 * kMb);
  ASSERT_TRUE(decision.Add(0, Report(3, 34, 4 * kMb)).ok());
  EXPECT_EQ(decision.decision()->version(), 1u);  // worker 1 has not reported yet
  ASSERT_TRUE(decision.Add(1, Report(3, 36, 4 * kMb)).ok());
  EXPECT_EQ(decision.decision()->version(), 4u);
  EXPECT_EQ(decision.decision()->threshold_bytes(), 4 * kMb);
  EXPECT_EQ(decision.decision()->from_round(), 40u);  // four after the later worker's ready round
  ASSERT_TRUE(decision.Add(0, Report(4, 44, 2 * kMb)).ok());
  ASSERT_TRUE(decision.Add(1, Report(4, 44, 2 * kMb)).ok());
  EXPECT_EQ(decision.decision()->version(), 5u);
  EXPECT_EQ(decision.decision()->threshold_bytes(), 2 * kMb);
}

TEST(ThresholdRedecision, RepeatsAndLateReportsOfEarlierGenerationsChangeNothing) {
  ThresholdDecision decision(2);
  for (const uint32_t worker : {0, 1})
    ASSERT_TRUE(decision.Add(worker, Report(0, 21, 8 * kMb)).ok());
  ASSERT_TRUE(decision.Add(0, Report(3, 34, 4 * kMb)).ok());
  ASSERT_TRUE(decision.Add(0, Report(2, 99, 32 * kMb)).ok());
  ASSERT_TRUE(decision.Add(0, Report(3, 99, 32 * kMb)).ok());
  ASSERT_TRUE(decision.Add(1, Report(3, 34, 4 * kMb)).ok());
  const std::string decided = decision.decision()->SerializeAsString();
  EXPECT_EQ(decision.decision()->from_round(), 38u);
  EXPECT_EQ(decision.decision()->threshold_bytes(), 4 * kMb);
  for (const uint64_t generation : {0, 2, 3}) {
    ASSERT_TRUE(decision.Add(1, Report(generation, 50, 32 * kMb)).ok());
  }
  EXPECT_EQ(decision.decision()->SerializeAsString(), decided);
}

TEST(ThresholdRedecision, AWorkerThatMissedAGenerationTakesPartInTheNext) {
  ThresholdDecision decision(2);
  for (const uint32_t worker : {0, 1})
    ASSERT_TRUE(decision.Add(worker, Report(0, 21, 8 * kMb)).ok());
  ASSERT_TRUE(decision.Add(0, Report(3, 34, 4 * kMb)).ok());  // worker 1's report is lost
  ASSERT_TRUE(decision.Add(0, Report(4, 44, 4 * kMb)).ok());
  EXPECT_EQ(decision.decision()->version(), 1u);
  ASSERT_TRUE(decision.Add(1, Report(4, 44, 4 * kMb)).ok());
  EXPECT_EQ(decision.decision()->version(), 5u);
  EXPECT_EQ(decision.decision()->threshold_bytes(), 4 * kMb);
}

TEST(ThresholdRedecision, WhoeverIsBehindSetsTheGeneration) {
  ThresholdDecision decision(2);
  for (const uint32_t worker : {0, 1})
    ASSERT_TRUE(decision.Add(worker, Report(0, 21, 8 * kMb)).ok());
  ASSERT_TRUE(decision.Add(0, Report(4, 44, 4 * kMb)).ok());
  ASSERT_TRUE(decision.Add(1, Report(3, 34, 4 * kMb)).ok());
  EXPECT_EQ(decision.decision()->version(), 4u);
  EXPECT_EQ(decision.decision()->from_round(), 48u);
  ASSERT_TRUE(decision.Add(1, Report(4, 44, 4 * kMb)).ok());
  EXPECT_EQ(decision.decision()->version(), 5u);
}

TEST(ThresholdRedecision, NoDecisionReachesBackBeforeTheLast) {
  ThresholdDecision decision(1);
  ASSERT_TRUE(decision.Add(0, Report(0, 100, 8 * kMb)).ok());
  ASSERT_TRUE(decision.Add(0, Report(1, 50, kMb)).ok());
  EXPECT_EQ(decision.decision()->from_round(), 101u);
}

TEST(ThresholdRedecision, HysteresisKeepsWhatIsInForce) {
  ThresholdDecision decision(1);
  ASSERT_TRUE(decision.Add(0, Report(0, 21, 4 * kMb)).ok());
  wire::ThresholdReport report = Report(3, 34, 4 * kMb);
  wire::ThresholdRow* two = report.mutable_rows(1);
  two->set_t_cq_ms(two->t_c_ms() * 0.97 - 0.1);  // 2 MB would gain 3 %
  ASSERT_TRUE(decision.Add(0, report).ok());
  EXPECT_EQ(decision.decision()->version(), 4u);
  EXPECT_EQ(decision.decision()->threshold_bytes(), 4 * kMb);
  EXPECT_DOUBLE_EQ(decision.decision()->table(1).t_cq_ms(), two->t_cq_ms());  // the measured value
}

TEST(ThresholdRedecision, FarMovesOfPushesAndOfPullsAreEachConfirmedByTheNextGeneration) {
  ThresholdDecision decision(1);
  const auto add = [&](uint64_t generation, uint64_t push_from, uint64_t pull_from) {
    wire::ThresholdReport both = Report(generation, 21 + 10 * generation, push_from);
    both.set_pull_codec("2bit");
    const wire::ThresholdReport pulls = Report(generation, 21, pull_from, wire::PULL);
    both.mutable_rows()->MergeFrom(pulls.rows());
    ASSERT_TRUE(decision.Add(0, both).ok());
  };
  const auto expect = [&](uint64_t push, uint64_t pull) {
    EXPECT_EQ(decision.decision()->threshold_bytes(), push);
    EXPECT_EQ(decision.decision()->pull_threshold_bytes(), pull);
  };
  add(0, 16 * kMb, 16 * kMb);
  expect(16 * kMb, 16 * kMb);
  add(1, 2 * kMb, 16 * kMb);
  expect(16 * kMb, 16 * kMb);
  add(2, 2 * kMb, 2 * kMb);
  expect(2 * kMb, 16 * kMb);
  add(3, 2 * kMb, 16 * kMb);  // the change came from one bad table
  expect(2 * kMb, 16 * kMb);
  add(4, 2 * kMb, 2 * kMb);
  add(5, 2 * kMb, 4 * kMb);
  expect(2 * kMb, 4 * kMb);
}

TEST(ThresholdRedecision, ThresholdsOfAFileAreFollowedLikeDecidedOnes) {
  for (const bool none : {false, true}) {
    ThresholdDecision decision(1);
    wire::ThresholdReport report = Report(1, 21, 2 * kMb);
    wire::ThresholdInForce* in_force = report.add_in_force();
    in_force->set_has_threshold(!none);
    if (!none) in_force->set_threshold_bytes(16 * kMb);
    ASSERT_TRUE(decision.Add(0, report).ok());
    EXPECT_EQ(decision.decision()->has_threshold(), !none);
    if (!none) {
      EXPECT_EQ(decision.decision()->threshold_bytes(), 16 * kMb);
    }
    ASSERT_TRUE(decision.Add(0, Report(2, 31, 2 * kMb)).ok());
    EXPECT_EQ(decision.decision()->threshold_bytes(), 2 * kMb);
  }
}

TEST(ThresholdRedecision, AWorkerThatReportsNothingMoreIsNotWaitedFor) {
  ThresholdDecision decision(3);
  for (const uint32_t worker : {0, 1, 2}) {
    ASSERT_TRUE(decision.Add(worker, Report(0, 21, 8 * kMb)).ok());
  }
  wire::ThresholdReport last;
  last.set_generation(MeasuredRounds::kLastGeneration);
  ASSERT_TRUE(decision.Add(1, last).ok());
  ASSERT_TRUE(decision.Add(0, Report(3, 34, 4 * kMb)).ok());
  EXPECT_EQ(decision.decision()->version(), 1u);
  decision.Leave(2);  // only its report was missing
  EXPECT_EQ(decision.decision()->version(), 4u);
  // The last reports of workers that left do not count.
  EXPECT_EQ(decision.decision()->threshold_bytes(), 4 * kMb);
  EXPECT_EQ(decision.decision()->table(0).raw_samples(), 9u);
}

TEST(ThresholdRedecision, PushesAndPullsAreDecidedApart) {
  ThresholdDecision decision(1);
  wire::ThresholdReport both = Report(0, 21, 8 * kMb);
  both.set_pull_codec("2bit");
  const wire::ThresholdReport pulls = Report(0, 21, 2 * kMb, wire::PULL);
  both.mutable_rows()->MergeFrom(pulls.rows());
  ASSERT_TRUE(decision.Add(0, both).ok());
  const wire::CodecMap& map = *decision.decision();
  EXPECT_EQ(map.threshold_bytes(), 8 * kMb);
  EXPECT_TRUE(map.has_pull_threshold());
  EXPECT_EQ(map.pull_threshold_bytes(), 2 * kMb);
  EXPECT_EQ(map.codec(), "1bit");
  EXPECT_EQ(map.pull_codec(), "2bit");
  ASSERT_EQ(map.table_size(), 12);
  EXPECT_EQ(map.table(0).direction(), wire::PUSH);
  EXPECT_EQ(map.table(11).direction(), wire::PULL);
}

TEST(ThresholdRedecision, ADirectionThatNobodyMeasuredHasNoCodec) {
  ThresholdDecision decision(1);
  ASSERT_TRUE(decision.Add(0, Report(0, 21, 2 * kMb, wire::PULL)).ok());
  EXPECT_EQ(decision.decision()->codec(), "");
  EXPECT_FALSE(decision.decision()->has_threshold());
  EXPECT_EQ(decision.decision()->pull_threshold_bytes(), 2 * kMb);
  // Pushes are measured for the first time here. The pulls' threshold does not hold them.
  wire::ThresholdReport push = Report(3, 34, 2 * kMb);
  ASSERT_TRUE(decision.Add(0, push).ok());
  EXPECT_EQ(decision.decision()->threshold_bytes(), 2 * kMb);
}

TEST(ThresholdRedecision, BadReportsAreRefusedInWords) {
  ThresholdDecision decision(2);
  ASSERT_TRUE(decision.Add(0, Report(1, 21, 2 * kMb, wire::PULL)).ok());
  wire::ThresholdReport other = Report(1, 21, 2 * kMb, wire::PULL);
  other.set_pull_codec("fp16");
  EXPECT_THAT(std::string(decision.Add(1, other).message()), HasSubstr("pull codec \"fp16\""));
  wire::ThresholdReport direction = Report(1, 21, 2 * kMb, wire::PULL);
  direction.mutable_rows(0)->set_direction(static_cast<wire::Direction>(7));
  EXPECT_THAT(std::string(decision.Add(1, direction).message()), HasSubstr("direction 7"));
  for (const int second : {7, static_cast<int>(wire::PULL)}) {
    wire::ThresholdReport in_force = Report(1, 21, 2 * kMb, wire::PULL);
    in_force.add_in_force()->set_direction(wire::PULL);
    in_force.add_in_force()->set_direction(static_cast<wire::Direction>(second));
    EXPECT_THAT(std::string(decision.Add(1, in_force).message()),
                HasSubstr(absl::StrCat("in force: direction ", second)));
  }
  EXPECT_THAT(std::string(decision.Add(1, Report(uint64_t{1} << 60, 21, kMb)).message()),
              HasSubstr("generation"));
  EXPECT_FALSE(decision.decision().has_value());
}

}  // namespace
}  // namespace slimps
