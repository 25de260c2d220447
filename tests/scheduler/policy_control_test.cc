// SPDX-License-Identifier: Apache-2.0
#include "scheduler/decisions/policy_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "compress/policy/controllers/messages.h"
#include "scheduler/decisions/threshold_decision.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr char kLgreco[] = "lgreco:codec=topk:ratio=0.01,every=10";

// Returns what a worker measured of two tensors. Errors fall with the ratio, for the first tensor
// `steepness` times as fast as for the second.
wire::PolicyReport Measured(const std::string& policy, uint32_t worker, uint64_t round,
                            double steepness) {
  const auto controller = MakeController(policy).value();
  Report report{.worker = worker, .round = round, .rounds = 10};
  for (const KeyId key : {KeyId{1}, KeyId{2}}) {
    TensorReport& tensor = report.tensors.emplace_back();
    tensor.tensor = {.key = key, .elements = 100'000};
    tensor.input_norm2 = 1e6;
    double error = 900, bytes = 400;
    for (const std::string& codec : controller->Candidates(tensor.tensor)) {
      tensor.levels.push_back({.codec = codec,
                               .error_norm2 = error * error,
                               .payload_bytes = static_cast<uint64_t>(bytes)});
      error /= key == 1 ? steepness : 1.1;
      bytes *= 1.3;
    }
  }
  wire::PolicyReport message;
  message.set_policy(policy);
  PutReport(report, &message);
  return message;
}

wire::ThresholdReport InReport(const wire::PolicyReport& policy, uint64_t generation) {
  wire::ThresholdReport report;
  report.set_generation(generation);
  report.set_ready_round(generation * 10 + 2);
  *report.mutable_policy() = policy;
  return report;
}

TEST(PolicyControl, DecidesOnceAllWorkersHaveReportedWhateverTheOrder) {
  std::string decided[2];
  for (const uint32_t first : {0u, 1u}) {
    ThresholdDecision decision(2);
    for (const uint32_t worker : {first, 1 - first}) {
      EXPECT_FALSE(decision.decision().has_value());
      const absl::Status added =
          decision.Add(worker, InReport(Measured(kLgreco, worker, 10, 1.5 + worker), 1));
      ASSERT_TRUE(added.ok()) << added;
    }
    ASSERT_TRUE(decision.decision().has_value());
    decided[first] = decision.decision()->SerializeAsString();
  }
  EXPECT_EQ(decided[0], decided[1]);
  wire::CodecMap map;
  ASSERT_TRUE(map.ParseFromString(decided[0]));
  EXPECT_EQ(map.policy(), kLgreco);
  EXPECT_EQ(map.version(), 2u);
  EXPECT_EQ(map.from_round(), 16u) << "a round that no worker has begun";
  ASSERT_EQ(map.entries_size(), 2);
  EXPECT_NE(map.entries(0).codec(), map.entries(1).codec());
  EXPECT_NE(map.entries(0).reason(), "");
  EXPECT_THAT(map.reason(), HasSubstr("lgreco"));
  EXPECT_NE(map.policy_state(), "");
}

TEST(PolicyControl, OneThatGoesOnFromASavedStateDecidesAsTheFirst) {
  PolicyControl through, resumed;
  wire::CodecMap first, second, again;
  std::map<uint32_t, wire::PolicyReport> reports = {{0, Measured(kLgreco, 0, 10, 1.5)}};
  ASSERT_TRUE(through.Check(0, reports[0]).ok());
  ASSERT_TRUE(through.Decide(reports, 16, &first).ok());
  reports[0] = Measured(kLgreco, 0, 20, 1.5);  // nothing has changed, so nothing does
  ASSERT_TRUE(through.Decide(reports, 26, &second).ok());
  EXPECT_EQ(first.entries(0).codec(), second.entries(0).codec());

  reports[0].set_rounds_before(10);
  *reports[0].mutable_resumed() = first;
  ASSERT_TRUE(resumed.Check(0, reports[0]).ok());
  const absl::Status decided = resumed.Decide(reports, 16, &again);
  ASSERT_TRUE(decided.ok()) << decided;
  again.set_from_round(second.from_round());  // it counts the rounds of another job
  EXPECT_EQ(again.SerializeAsString(), second.SerializeAsString());
}

TEST(PolicyControl, OneThatGoesOnKeepsItsDecisionWhileItCannotDecide) {
  const std::string policy = "joint:codecs=qsgd:bits=4;norm=max,every=10";
  wire::PolicyReport measured = Measured(policy, 0, 10, 1.5);
  measured.set_iteration_ns(1e7);
  measured.mutable_link()->set_ns_per_byte(80);
  PolicyControl through, resumed;
  wire::CodecMap first, again;
  ASSERT_TRUE(through.Check(0, measured).ok());
  const absl::Status decided = through.Decide({{0, measured}}, 16, &first);
  ASSERT_TRUE(decided.ok()) << decided;
  // Saved at a window's end: the samples are there, and no push has shown yet what the link does.
  measured = Measured(policy, 0, 20, 1.5);
  measured.set_rounds_before(20);
  *measured.mutable_resumed() = first;
  ASSERT_TRUE(resumed.Check(0, measured).ok());
  const absl::Status kept = resumed.Decide({{0, measured}}, 8, &again);
  ASSERT_TRUE(kept.ok()) << kept;
  EXPECT_THAT(again.reason(), HasSubstr("kept, since"));
  ASSERT_EQ(again.entries_size(), first.entries_size());
  EXPECT_EQ(again.entries(0).codec(), first.entries(0).codec());
}

TEST(PolicyControl, AReportThatNobodyCouldAffordIsRefused) {
  const auto refusal = [](const std::function<void(wire::PolicyReport*)>& change) {
    wire::PolicyReport report = Measured(kLgreco, 3, 10, 1.5);
    change(&report);
    PolicyControl control;
    const absl::Status checked = control.Check(3, report);
    EXPECT_EQ(checked.code(), absl::StatusCode::kInvalidArgument);
    return std::string(checked.message());
  };
  EXPECT_THAT(refusal([](auto* report) {
                while (report->codecs_size() <= 256) report->add_codecs("topk");
              }),
              HasSubstr("policy report of worker 3: codecs: expected at most 256, got 257"));
  EXPECT_THAT(refusal([](auto* report) { report->set_codecs(0, std::string(257, 'x')); }),
              HasSubstr("bytes of a codec: expected at most 256, got 257"));
  EXPECT_THAT(refusal([](auto* report) {
                for (int i = 0; i < 1000; ++i) report->mutable_tensors(1)->add_levels();
              }),
              HasSubstr("levels of key 2: expected at most"));
}

TEST(PolicyControl, AWorkerThatMeasuredNothingIsLeftOut) {
  wire::PolicyReport idle;
  idle.set_policy(kLgreco);
  Report report{.worker = 1, .round = 10, .rounds = 10};
  for (const KeyId key : {KeyId{1}, KeyId{2}}) {
    report.tensors.push_back({.tensor = {.key = key, .elements = 100'000}});
  }
  PutReport(report, &idle);
  PolicyControl alone, with_idle;
  wire::CodecMap one, two;
  const wire::PolicyReport measured = Measured(kLgreco, 0, 10, 1.5);
  ASSERT_TRUE(alone.Check(0, measured).ok() && with_idle.Check(0, measured).ok());
  ASSERT_TRUE(alone.Decide({{0, measured}}, 16, &one).ok());
  ASSERT_TRUE(with_idle.Decide({{0, measured}, {1, idle}}, 16, &two).ok());
  EXPECT_EQ(one.SerializeAsString(), two.SerializeAsString());
  PolicyControl none;
  ASSERT_TRUE(none.Check(1, idle).ok());
  ASSERT_TRUE(none.Decide({{1, idle}}, 16, &two).ok());
  EXPECT_THAT(two.entries(0).codec(), HasSubstr("ratio=0.01")) << "the uniform setting stays";
}

TEST(PolicyControl, ABudgetThatNothingMeetsFailsTheFirstDecisionAndStaysLater) {
  const std::string policy = "lgreco:codec=topk:ratio=0.01,every=10,budget=0.3";
  PolicyControl control;
  wire::CodecMap map;
  std::map<uint32_t, wire::PolicyReport> hard = {{0, Measured(policy, 0, 10, 1.01)}};
  ASSERT_TRUE(control.Check(0, hard[0]).ok());
  const absl::Status refused = control.Decide(hard, 16, &map);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("give a budget of at least"));
  EXPECT_EQ(map.policy(), "") << "nothing is half applied";

  PolicyControl later;
  const std::map<uint32_t, wire::PolicyReport> easy = {{0, Measured(policy, 0, 10, 3)}};
  ASSERT_TRUE(later.Check(0, easy.at(0)).ok());
  ASSERT_TRUE(later.Decide(easy, 16, &map).ok());
  const std::string codec = map.entries(0).codec();
  hard[0] = Measured(policy, 0, 20, 1.01);
  ASSERT_TRUE(later.Decide(hard, 26, &map).ok());
  EXPECT_EQ(map.entries(0).codec(), codec);
  EXPECT_THAT(map.reason(), HasSubstr("kept, since policy lgreco: no allocation meets"));
}

TEST(PolicyControl, WhatWorkersCannotHaveSaidIsRefused) {
  PolicyControl control;
  wire::PolicyReport report = Measured(kLgreco, 0, 10, 1.5);
  ASSERT_TRUE(control.Check(0, report).ok());
  report.set_policy("lgreco");
  EXPECT_THAT(std::string(control.Check(1, report).message()),
              HasSubstr("worker 1 has policy \"lgreco\", expected as worker 0"));
  report.set_policy(kLgreco);
  report.set_round(~uint64_t{0});
  EXPECT_THAT(std::string(control.Check(1, report).message()), HasSubstr("round 1844"));
  report = Measured(kLgreco, 0, 10, 1.5);
  report.mutable_tensors(0)->mutable_levels(0)->set_codec(99);
  wire::CodecMap map;
  EXPECT_THAT(std::string(control.Decide({{0, report}}, 16, &map).message()),
              HasSubstr("codec 99, expected under"));
  report = Measured(kLgreco, 0, 10, 1.5);
  report.mutable_resumed()->set_policy_state("nonsense");
  EXPECT_EQ(control.Decide({{0, report}}, 16, &map).code(), absl::StatusCode::kInvalidArgument);
  report.clear_resumed();
  EXPECT_TRUE(control.Decide({{0, report}}, 16, &map).ok()) << "nothing was half applied";
  report.set_policy("nothing");
  EXPECT_EQ(PolicyControl().Check(0, report).code(), absl::StatusCode::kInvalidArgument);
}

TEST(PolicyControl, WorkersWithAndWithoutAPolicyAreTold) {
  ThresholdDecision decision(2);
  ASSERT_TRUE(decision.Add(0, InReport(Measured(kLgreco, 0, 10, 1.5), 1)).ok());
  wire::ThresholdReport without;
  without.set_generation(1);
  EXPECT_THAT(std::string(decision.Add(1, without).message()),
              HasSubstr("worker 0 has a policy, and worker 1 has none"));
}

}  // namespace
}  // namespace slimps
