// SPDX-License-Identifier: Apache-2.0
#include "worker/plan/policy_side.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compress/policy/controllers/messages.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kLgreco[] = "lgreco:codec=topk:ratio=0.01,every=10";

std::vector<TensorInfo> Tensors() {
  return {{.key = 9, .elements = 5000}, {.key = 4, .elements = 8000, .rows = 80, .columns = 100}};
}

class PolicySideTest : public ::testing::Test {
 protected:
  void Begin(const std::string& policy, uint32_t workers = 2) {
    ASSERT_TRUE(side_.Start(policy, workers).ok());
    const auto first = side_.Decide(Tensors());
    ASSERT_TRUE(first.ok()) << first.status();
    side_.Begin(Tensors(), *first);
  }
  // Returns the newest round that the report before `round` covers.
  uint64_t Reported(uint64_t round) {
    wire::PolicyReport report;
    side_.PutReport(round, {}, &report);
    return report.round();
  }
  static wire::CodecMap Map(uint64_t version, uint64_t from_round, const std::string& codec) {
    wire::CodecMap map;
    map.set_version(version);
    map.set_from_round(from_round);
    map.set_reason("because");
    map.set_policy_state("state");
    wire::CodecEntry* entry = map.add_entries();
    entry->set_key(4);
    entry->set_codec(codec);
    return map;
  }

  PolicySide side_;
};

TEST_F(PolicySideTest, TheThresholdIsNoPolicyThatAdapts) {
  ASSERT_TRUE(side_.Start("threshold", 1).ok());
  EXPECT_FALSE(side_.on());
}

TEST_F(PolicySideTest, AWindowIsReportedOnceBeforeTheFirstPushAfterIt) {
  Begin(kLgreco);
  EXPECT_FALSE(side_.IsDue(10));
  ASSERT_TRUE(side_.IsDue(11));
  EXPECT_EQ(side_.WindowBefore(11), 1u);
  EXPECT_EQ(Reported(11), 10u);
  EXPECT_FALSE(side_.IsDue(11));
  EXPECT_FALSE(side_.IsDue(20));
  ASSERT_TRUE(side_.IsDue(21));
  EXPECT_EQ(Reported(21), 20u);
}

TEST_F(PolicySideTest, AReportNamesAllTensorsByRisingKey) {
  Begin(kLgreco);
  Report measured;
  measured.tensors.push_back({.tensor = Tensors()[0], .input_norm2 = 3});
  wire::PolicyReport report;
  side_.PutReport(11, measured, &report);
  EXPECT_EQ(report.policy(), kLgreco);
  EXPECT_EQ(report.rounds(), 10u);
  ASSERT_EQ(report.tensors_size(), 2);
  EXPECT_EQ(report.tensors(0).key(), 4u);
  EXPECT_EQ(report.tensors(0).rows(), 80u);
  EXPECT_EQ(report.tensors(0).input_norm2(), 0);
  EXPECT_EQ(report.tensors(1).input_norm2(), 3);
}

TEST_F(PolicySideTest, TheIterationTimeIsTheMeanSinceTheLastReport) {
  Begin(kLgreco);
  side_.EndRound({}, absl::Milliseconds(10));
  side_.EndRound({}, absl::Milliseconds(30));
  wire::PolicyReport report, next;
  side_.PutReport(11, {}, &report);
  EXPECT_DOUBLE_EQ(report.iteration_ns(), 20e6);
  side_.PutReport(21, {}, &next);
  EXPECT_EQ(next.iteration_ns(), 0) << "not known";
}

TEST_F(PolicySideTest, AnEvaluationBetweenTwoRoundsDoesNotMoveTheIterationTime) {
  Begin(kLgreco);
  for (int i = 0; i < 19; ++i) side_.EndRound({}, absl::Milliseconds(50));
  side_.EndRound({}, absl::Seconds(5));
  wire::PolicyReport report;
  side_.PutReport(21, {}, &report);
  EXPECT_DOUBLE_EQ(report.iteration_ns(), 50e6);
}

TEST_F(PolicySideTest, StepsFollowGainsFromTheDecisionsRoundOn) {
  Begin("gravac:theta_min=10,window=10,epsilon=0.5");
  ASSERT_TRUE(side_.plan().ladders);
  side_.BeginRound(1);
  const size_t dense = 2;
  EXPECT_EQ(side_.step(), 1u) << "no gain is known yet, so the round takes the least factor";
  const std::vector<double> high(dense + 1, 0.9), low(dense + 1, 0.1);
  side_.EndRound(high, absl::Milliseconds(1));
  side_.BeginRound(2);
  EXPECT_EQ(side_.step(), 0u);
  side_.BeginRound(2);
  EXPECT_EQ(side_.step(), 0u) << "a round begins once";
  for (uint64_t round = 3; round < 200; ++round) {
    side_.EndRound(low, absl::Milliseconds(1));
    side_.BeginRound(round);
  }
  EXPECT_EQ(side_.step(), dense);
}

TEST_F(PolicySideTest, AResumedOneKnowsTheGainsOfItsSteps) {
  const std::string gravac = "gravac:theta_min=10,window=10,epsilon=0.5";
  Begin(gravac);
  side_.BeginRound(1);
  side_.EndRound(std::vector<double>{0.4, 0.45, 1}, absl::Milliseconds(7));
  side_.BeginRound(2);
  EXPECT_EQ(side_.step(), 2u);
  wire::SavedPolicy saved = side_.Save(2, Map(1, 0, ""));
  for (const double high : {20.0, 0.9, 1.0})
    saved.add_gains(high);  // of round 2: 0.4 + 2 % of 19.6

  PolicySide next;
  ASSERT_TRUE(next.Start(gravac, 2).ok());
  next.Begin(Tensors(), *next.Decide(Tensors()));
  next.Resume(saved);
  next.BeginRound(1);
  EXPECT_EQ(next.step(), 0u) << "the first gain is 0.79 by now";
  wire::PolicyReport report;
  next.PutReport(9, {}, &report);
  EXPECT_EQ(report.steps(1).rounds(), 1u) << "round 1, in which no gain was known";
  EXPECT_EQ(report.steps(1).iteration_ns(), 7e6);
}

TEST_F(PolicySideTest, WhatIsSavedBeforeADecisionHoldsBelongsToTheOneBefore) {
  Begin(kLgreco);
  side_.Follow(Map(2, 14, "topk:ratio=0.02"));
  EXPECT_EQ(side_.Save(12, Map(2, 14, "")).decisions_size(), 2);
  const wire::SavedPolicy saved = side_.Save(13, Map(2, 14, ""));
  ASSERT_EQ(saved.decisions_size(), 2);
  EXPECT_EQ(saved.decisions(1).from_round(), 1u) << "from the next round on";
  EXPECT_EQ(side_.Save(14, Map(2, 14, "")).decisions_size(), 1);
}

TEST_F(PolicySideTest, DecisionsAreKeptThatChangeSomething) {
  Begin(kLgreco);
  EXPECT_EQ(side_.decisions().size(), 1u);
  side_.Follow(Map(2, 16, "topk:ratio=0.02"));
  side_.Follow(Map(3, 26, "topk:ratio=0.02"));
  side_.Follow(Map(4, 36, "topk:ratio=0.03"));
  ASSERT_EQ(side_.decisions().size(), 3u);
  EXPECT_EQ(side_.decisions()[1].from_round(), 16u);
  EXPECT_EQ(side_.decisions()[1].policy_state(), "") << "large, and of no use to people";
}

TEST_F(PolicySideTest, AResumedOneCountsTheRoundsBeforeAndBringsTheState) {
  Begin(kLgreco);
  Reported(11);
  side_.Follow(Map(2, 16, "topk:ratio=0.02"));
  const wire::SavedPolicy saved = side_.Save(13, Map(2, 16, ""));
  ASSERT_EQ(saved.decisions_size(), 2) << "one in force, and one to come";
  EXPECT_EQ(saved.decisions(1).from_round(), 3u);

  PolicySide next;
  ASSERT_TRUE(next.Start(kLgreco, 2).ok());
  next.Begin(Tensors(), *next.Decide(Tensors()));
  next.Resume(saved);
  EXPECT_TRUE(next.is_resumed());
  EXPECT_FALSE(next.IsDue(7)) << "round 20 of the job";
  ASSERT_TRUE(next.IsDue(8));
  wire::PolicyReport report;
  next.PutReport(8, {}, &report);
  EXPECT_EQ(report.round(), 20u);
  EXPECT_EQ(report.rounds_before(), 13u);
  EXPECT_EQ(report.resumed().policy_state(), "state");
  next.Follow(Map(4, 13, "topk:ratio=0.03"));
  EXPECT_FALSE(next.is_resumed()) << "the scheduler has gone on";
}

TEST_F(PolicySideTest, ErrorsSayWhatThereIs) {
  const auto refusal = [](const std::string& policy) {
    const absl::Status refused = PolicySide().Start(policy, 1);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << policy;
    return std::string(refused.message());
  };
  EXPECT_THAT(refusal("lgrecco"), HasSubstr("did you mean 'lgreco'?"));
  EXPECT_THAT(refusal("lgrecco"), HasSubstr("or threshold"));
  EXPECT_THAT(refusal("lgreco:evry=10"), HasSubstr("did you mean 'every'?"));
  EXPECT_THAT(refusal("lgreco:every=7"), HasSubstr("a window of 7 rounds, expected at least 8"));
}

TEST_F(PolicySideTest, CodecsThatCannotChangeInMidRunAreRefused) {
  Begin(kLgreco);
  EXPECT_TRUE(side_.CheckExchangeable(*MakeCodec("topk").value()).ok());
  EXPECT_THAT(std::string(side_.CheckExchangeable(*MakeCodec("signsgd").value()).message()),
              HasSubstr("one whose gradients the servers add up"));
  EXPECT_THAT(std::string(side_.CheckExchangeable(*MakeCodec("dgc").value()).message()),
              HasSubstr("one without momentum of its own"));
  EXPECT_TRUE(side_.CheckExchangeable(*MakeCodec("powersgd").value()).ok());
  PolicySide ladders;
  ASSERT_TRUE(ladders.Start("gravac", 2).ok());
  EXPECT_THAT(std::string(ladders.CheckExchangeable(*MakeCodec("powersgd").value()).message()),
              HasSubstr("one whose pushes take no phases"));
}

TEST_F(PolicySideTest, ItsCodecsAreCheckedBeforeAnyTensorIsKnown) {
  const auto refusal = [](const std::string& policy) {
    PolicySide side;
    CodecTable codecs;
    EXPECT_TRUE(side.Start(policy, 2).ok());
    return std::string(side.CheckCodecs(&codecs).status().message());
  };
  EXPECT_EQ(refusal(kLgreco), "");
  EXPECT_THAT(refusal("lgreco:codec=topk:value=fp64"), HasSubstr("value"));
  EXPECT_THAT(refusal("joint:codecs=1bit|dcg"), HasSubstr("did you mean 'dgc'?"));
  EXPECT_THAT(refusal("joint:codecs=1bit|dgc"), HasSubstr("without momentum"));
  EXPECT_THAT(refusal("gravac:codec=topk:value=fp64"), HasSubstr("value"));
  EXPECT_EQ(refusal("joint:codecs=powersgd:rank=4|powersgd:rank=2|1bit"), "");
  EXPECT_THAT(refusal("joint:codecs=powersgd:rank=4|thc"),
              HasSubstr("codecs powersgd and thc: expected at most one whose pushes take phases"));
  EXPECT_THAT(refusal("joint:codecs=powersgd:rank=600|thc"), HasSubstr("codecs powersgd and thc"));
  EXPECT_THAT(refusal("joint:codecs=1bit|atomo"),
              HasSubstr("codec atomo: expected one whose error a sample of blocks tells"));
}

TEST_F(PolicySideTest, PhasesAreFoundWhateverSizesAreLeftOut) {
  PolicySide side;
  CodecTable codecs;
  ASSERT_TRUE(side.Start("lgreco:codec=powersgd,min_elements=2000000", 2).ok());
  const auto choices = side.CheckCodecs(&codecs);
  ASSERT_TRUE(choices.ok()) << choices.status();
  ASSERT_FALSE(choices->empty());
  EXPECT_NE(choices->front()->phases(), nullptr);
}

TEST_F(PolicySideTest, TheStateOfManyTensorsMustFitAMessage) {
  Begin(kLgreco);
  EXPECT_TRUE(side_.CheckReportSize(131072, 0).ok());
  EXPECT_THAT(
      std::string(side_.CheckReportSize(131073, 0).message()),
      HasSubstr("its state of 131073 tensors takes up to 16777344 bytes, expected at most"));
}

}  // namespace
}  // namespace slimps
