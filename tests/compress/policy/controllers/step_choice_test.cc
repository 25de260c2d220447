// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/controllers/step_choice.h"

#include "gtest/gtest.h"

namespace slimps {
namespace {

PolicyDecision Ladder(const std::string& candidate, double min_gain) {
  PolicyDecision decision;
  decision.tensors[1] = {.steps = {{.codec = "none"}}};  // has no say
  decision.tensors[2] = {.steps = {{.codec = candidate, .min_gain = min_gain},
                                   {.codec = "topk:ratio=0.1", .min_gain = min_gain},
                                   {.codec = "none"}}};
  return decision;
}

TEST(StepChoice, NothingKnownMeansTheStepBeforeTheLast) {
  StepChoice choice(Ladder("topk:ratio=0.01", 0.7), 4);
  EXPECT_EQ(choice.steps(), 3u);
  EXPECT_EQ(choice.Choose(), 1u);
  choice.Observe(std::vector<double>{0.1, 0.2});
  EXPECT_EQ(choice.Choose(), 2u);
}

TEST(StepChoice, TakesTheFirstStepWithEnoughGain) {
  StepChoice choice(Ladder("topk:ratio=0.01", 0.7), 100);  // 100 workers: no smoothing
  for (const auto& [candidate, least, step] :
       {std::tuple{0.9, 0.95, 0u}, {0.69, 0.95, 1u}, {0.5, 0.6, 2u}, {0.7, 0.1, 0u}}) {
    choice.Observe(std::vector<double>{candidate, least});
    EXPECT_EQ(choice.Choose(), step) << candidate;
  }
}

TEST(StepChoice, SmoothsByTheNumberOfWorkers) {
  StepChoice choice(Ladder("topk:ratio=0.01", 0.7), 4);
  choice.Observe(std::vector<double>{0.5});
  choice.Observe(std::vector<double>{1.0});
  EXPECT_NEAR(choice.TakeReport()[0].gain, 0.5 + 0.04 * 0.5, 1e-12);
}

TEST(StepChoice, ReportsTimesOfEachStepOnce) {
  StepChoice choice(Ladder("topk:ratio=0.01", 0.7), 4);
  choice.EndIteration(2, 100);
  choice.EndIteration(2, 300);
  choice.EndIteration(0, 50);
  const std::vector<StepReport> report = choice.TakeReport();
  ASSERT_EQ(report.size(), 3u);
  EXPECT_EQ(report[2].rounds, 2u);
  EXPECT_EQ(report[2].iteration_ns, 200);
  EXPECT_EQ(report[0].rounds, 1u);
  EXPECT_EQ(report[1].iteration_ns, 0);
  EXPECT_EQ(choice.TakeReport()[2].rounds, 0u);
}

TEST(StepChoice, APauseBetweenRoundsDoesNotCount) {
  StepChoice choice(Ladder("topk:ratio=0.01", 0.7), 4);
  for (int i = 0; i < 20; ++i) choice.EndIteration(1, i % 10 == 3 ? 1e10 : 1000);
  const StepReport report = choice.TakeReport()[1];
  EXPECT_EQ(report.rounds, 20u);
  EXPECT_EQ(report.iteration_ns, 1000);
}

TEST(StepChoice, ANewDecisionKeepsGainsOfCodecsThatStay) {
  StepChoice choice(Ladder("topk:ratio=0.01", 0.7), 100);
  choice.Observe(std::vector<double>{0.8, 0.9});
  choice.Follow(Ladder("topk:ratio=0.001", 0.7));
  EXPECT_EQ(choice.Choose(), 1u);  // the new candidate's gain is not known
  choice.Follow(Ladder("topk:ratio=0.001", 0.95));
  EXPECT_EQ(choice.Choose(), 2u);
}

TEST(StepChoice, WithoutLaddersThereIsOneStep) {
  StepChoice choice(PolicyDecision{}, 4);
  EXPECT_EQ(choice.steps(), 0u);
  EXPECT_EQ(choice.Choose(), 0u);
  EXPECT_TRUE(choice.TakeReport().empty());
}

}  // namespace
}  // namespace slimps
