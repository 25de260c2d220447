// SPDX-License-Identifier: Apache-2.0
// uniform, kmeans, global_topk, lgreco, lgreco_accordion and accordion.
#include <cmath>

#include "compress/policy/controllers/controller.h"
#include "tests/compress/policy/controllers/controller_test_util.h"

namespace slimps {
namespace {

const std::vector<TensorInfo> kTensors = {{.key = 1, .elements = 10'000},
                                          {.key = 2, .elements = 100'000},
                                          {.key = 3, .elements = 10},
                                          {.key = 4, .elements = 50'000}};

Report TopKReport(const Controller& controller, uint64_t round, double scale = 1) {
  Report report{.round = round, .rounds = 200};
  const double steepness[] = {20, 300, 1, 60}, energy[] = {100, 1, 1, 10};
  for (size_t i = 0; i < kTensors.size(); ++i) {
    report.tensors.push_back(TopKTensor(controller, kTensors[i], scale * energy[i], steepness[i]));
  }
  return report;
}

struct Totals {
  double error = 0, bytes = 0;  // the error: a sum of L2 norms
};

Totals TotalsOf(const Report& report, const PolicyDecision& decision) {
  Totals totals;
  for (const TensorReport& tensor : report.tensors) {
    const auto decided = decision.tensors.find(tensor.tensor.key);
    if (decided == decision.tensors.end()) continue;
    for (const LevelReport& level : tensor.levels) {
      if (level.codec != decided->second.steps[0].codec) continue;
      totals.error += std::sqrt(level.error_norm2);
      totals.bytes += static_cast<double>(level.payload_bytes);
    }
  }
  return totals;
}

TEST(LevelPolicies, BeginWithTheUniformSettingAndLeaveSmallTensorsRaw) {
  for (const std::string policy : {"uniform", "kmeans", "global_topk", "lgreco"}) {
    const auto controller = Make(policy + ":codec=topk:ratio=0.02;value=fp16");
    const auto decision = controller->Begin(kTensors);
    ASSERT_TRUE(decision.ok());
    EXPECT_EQ(decision->from_round, 1u);
    EXPECT_EQ(CodecsOf(*decision), std::vector<std::string>(3, "topk:ratio=0.02,value=fp16"));
    EXPECT_FALSE(decision->tensors.contains(3));
  }
}

TEST(LevelPolicies, CandidatesAreThePapersRange) {
  const auto topk = Make("lgreco:codec=topk:ratio=0.01");
  const std::vector<std::string> ratios = topk->Candidates(kTensors[0]);
  EXPECT_EQ(ratios.size(), 17u);
  EXPECT_EQ(ratios.front(), "topk:ratio=0.001");
  EXPECT_EQ(ratios[8], "topk:ratio=0.01");
  EXPECT_EQ(ratios.back(), "topk:ratio=0.1");
  EXPECT_TRUE(topk->Candidates(kTensors[2]).empty());
  EXPECT_EQ(Make("lgreco:codec=qsgd:bits=4;bucket=512")->Candidates(kTensors[0]),
            (std::vector<std::string>{"qsgd:bits=2", "qsgd:bits=4,bucket=512",
                                      "qsgd:bits=8,bucket=512"}));
}

TEST(LevelPolicies, RanksAreForMatricesThatTheyMakeSmaller) {
  const auto controller = Make("lgreco:codec=powersgd:rank=4");
  const TensorInfo matrix = {.key = 1, .elements = 4096, .rows = 64, .columns = 64};
  EXPECT_EQ(controller->Candidates(matrix).size(), 7u);  // 2 .. 8
  const TensorInfo narrow = {.key = 2, .elements = 1024, .rows = 8, .columns = 128};
  EXPECT_EQ(controller->Candidates(narrow),
            (std::vector<std::string>{"powersgd:rank=2", "powersgd:rank=3"}));
  EXPECT_TRUE(controller->Candidates({.key = 3, .elements = 4096}).empty());
  const std::vector<TensorInfo> tensors = {matrix, narrow, {.key = 3, .elements = 4096}};
  EXPECT_EQ(CodecsOf(*controller->Begin(tensors)),
            (std::vector<std::string>{"powersgd:rank=4", "powersgd:rank=3", "none"}));
  EXPECT_EQ(controller->Choices(narrow), controller->Candidates(narrow));
  EXPECT_EQ(Make("uniform:codec=powersgd:rank=4")->Choices(narrow),
            std::vector<std::string>{"powersgd:rank=3"});
  EXPECT_EQ(Make("accordion:low=powersgd:rank=4,high=powersgd:rank=1")->Choices(matrix),
            (std::vector<std::string>{"powersgd:rank=4", "powersgd:rank=1"}));
}

TEST(Lgreco, SendsFewerBytesThanUniformAtNoLargerError) {
  const auto controller = Make("lgreco:codec=topk:ratio=0.01");
  const PolicyDecision uniform = *controller->Begin(kTensors);
  const Report report = TopKReport(*controller, 200);
  const auto decided = controller->Decide(report, 210);
  ASSERT_TRUE(decided.ok() && decided->has_value());
  const PolicyDecision& decision = **decided;
  EXPECT_EQ(decision.from_round, 210u);
  EXPECT_LE(TotalsOf(report, decision).error, TotalsOf(report, uniform).error * (1 + 1e-12));
  EXPECT_LT(TotalsOf(report, decision).bytes, 0.8 * TotalsOf(report, uniform).bytes);
  EXPECT_NE(decision.reason.find("times fewer"), std::string::npos) << decision.reason;
  EXPECT_NE(decision.tensors.at(1).reason.find("of |x|^2"), std::string::npos);
}

TEST(Lgreco, ItsBaselineSendsNoFewerBytes) {
  const auto lgreco = Make("lgreco:codec=topk:ratio=0.01");
  const auto clusters = Make("kmeans:codec=topk:ratio=0.01");
  const Report report = TopKReport(*lgreco, 200);
  ASSERT_TRUE(lgreco->Begin(kTensors).ok());
  const PolicyDecision begun = *clusters->Begin(kTensors);
  const auto decided = clusters->Decide(report, 210);
  ASSERT_TRUE(decided.ok());
  EXPECT_LE(TotalsOf(report, **lgreco->Decide(report, 210)).bytes,
            TotalsOf(report, decided->value_or(begun)).bytes);
}

TEST(GlobalTopK, SendsFewerBytesThanUniformAtNoLargerSquaredError) {
  const auto controller = Make("global_topk:codec=topk:ratio=0.01");
  const PolicyDecision uniform = *controller->Begin(kTensors);
  const Report report = TopKReport(*controller, 200);
  const PolicyDecision decision = **controller->Decide(report, 210);
  EXPECT_LT(TotalsOf(report, decision).bytes, TotalsOf(report, uniform).bytes);
  const auto squared = [&](const PolicyDecision& made) {
    double error2 = 0;
    for (const TensorReport& tensor : report.tensors) {
      if (!made.tensors.contains(tensor.tensor.key)) continue;
      const std::string& codec = made.tensors.at(tensor.tensor.key).steps[0].codec;
      error2 += std::ranges::find(tensor.levels, codec, &LevelReport::codec)->error_norm2;
    }
    return error2;
  };
  EXPECT_LE(squared(decision), squared(uniform) * (1 + 1e-12));
}

TEST(Lgreco, AnEqualReportChangesNothing) {
  const auto controller = Make("lgreco:codec=topk:ratio=0.01");
  ASSERT_TRUE(controller->Begin(kTensors).ok());
  ASSERT_TRUE(controller->Decide(TopKReport(*controller, 200), 210)->has_value());
  EXPECT_FALSE(controller->Decide(TopKReport(*controller, 400, 7.5), 410)->has_value());
}

TEST(Lgreco, ABudgetThatNothingMeetsIsRefusedAndSaysWhatWouldDo) {
  const auto controller = Make("lgreco:codec=topk:ratio=0.01,budget=0.001");
  ASSERT_TRUE(controller->Begin(kTensors).ok());
  const auto decided = controller->Decide(TopKReport(*controller, 200), 210);
  EXPECT_EQ(decided.status().code(), absl::StatusCode::kFailedPrecondition);
  const std::string message(decided.status().message());
  EXPECT_NE(message.find("topk with ratio from 0.001 to 0.1 is 0."), std::string::npos) << message;
  EXPECT_NE(message.find("give a budget of at least that"), std::string::npos) << message;
  // The number that the message gives is one that does.
  const size_t at = message.find("0.1 is ") + 7;
  double least = 0;
  ASSERT_TRUE(absl::SimpleAtod(message.substr(at, message.find(' ', at) - at), &least));
  const auto enough = Make("lgreco:codec=topk:ratio=0.01,budget=" + std::to_string(least * 1.01));
  ASSERT_TRUE(enough->Begin(kTensors).ok());
  EXPECT_TRUE(enough->Decide(TopKReport(*enough, 200), 210).ok());
}

TEST(Lgreco, TheTimeObjectiveSpendsBytesWhereTheyTravelUnnoticed) {
  // Two equal tensors. The bytes of the early one travel while the gradient of the late one is
  // still being made.
  const std::vector<TensorInfo> tensors = {{.key = 1, .elements = 50'000},
                                           {.key = 2, .elements = 50'000}};
  const auto size = Make("lgreco:codec=topk:ratio=0.01");
  const auto time = Make("lgreco:codec=topk:ratio=0.01,objective=time");
  const PolicyDecision uniform = *size->Begin(tensors);
  ASSERT_TRUE(time->Begin(tensors).ok());
  Report report{.round = 200, .rounds = 200};
  for (const TensorInfo& tensor : tensors) {
    report.tensors.push_back(TopKTensor(*size, tensor, 10, 30));
    report.tensors.back().ready_ns = tensor.key == 1 ? 0 : 1e6;
    report.tensors.back().pull_bytes = 1;
  }
  report.link = {.ns_per_byte = 80};
  const auto late_bytes = [&](const PolicyDecision& decision) {
    Report late = report;
    late.tensors.erase(late.tensors.begin());
    return TotalsOf(late, decision).bytes;
  };
  const PolicyDecision by_size = size->Decide(report, 210)->value_or(uniform);
  const PolicyDecision by_time = **time->Decide(report, 210);
  EXPECT_LE(TotalsOf(report, by_time).error, TotalsOf(report, uniform).error * (1 + 1e-12));
  EXPECT_GE(TotalsOf(report, by_time).bytes, TotalsOf(report, by_size).bytes);
  EXPECT_LT(late_bytes(by_time), 0.8 * late_bytes(by_size));
}

TEST(Lgreco, WithoutALinkTheTimeObjectiveGoesBySizeAndSaysSo) {
  const auto controller = Make("lgreco:codec=topk:ratio=0.01,objective=time");
  ASSERT_TRUE(controller->Begin(kTensors).ok());
  const auto decided = controller->Decide(TopKReport(*controller, 200), 210);
  EXPECT_NE((*decided)->reason.find("the link is not known"), std::string::npos);
}

TEST(Accordion, TakesTheLowLevelWhereTheNormChanges) {
  const auto controller = Make("accordion:low=topk:ratio=0.2,high=topk:ratio=0.02");
  EXPECT_EQ(controller->plan().every_rounds, 500u);
  EXPECT_TRUE(controller->Candidates(kTensors[0]).empty());
  EXPECT_EQ(CodecsOf(*controller->Begin(kTensors)), std::vector<std::string>(3, "topk:ratio=0.2"));
  // The first window has none to compare with: everything stays critical.
  Report report = TopKReport(*controller, 500);
  EXPECT_FALSE(controller->Decide(report, 510)->has_value());
  // The norm of key 2 changes by half, that of key 4 by a little less.
  report.round = 1000;
  report.tensors[1].input_norm2 *= 0.25;
  report.tensors[3].input_norm2 *= 0.26;
  const auto decided = controller->Decide(report, 1010);
  ASSERT_TRUE(decided->has_value());
  EXPECT_EQ(CodecsOf(**decided),
            (std::vector<std::string>{"topk:ratio=0.02", "topk:ratio=0.2", "topk:ratio=0.02"}));
  EXPECT_NE((*decided)->tensors.at(2).reason.find("changed by 0.5"), std::string::npos);
}

TEST(Accordion, AFallingLearningRateIsCritical) {
  const auto controller = Make("accordion");
  ASSERT_TRUE(controller->Begin(kTensors).ok());
  Report report = TopKReport(*controller, 500);
  report.learning_rate = 0.1;
  ASSERT_FALSE(controller->Decide(report, 510)->has_value());
  EXPECT_EQ(CodecsOf(**controller->Decide(report, 1010)),
            std::vector<std::string>(3, "topk:ratio=0.01"));
  report.learning_rate = 0.01;
  EXPECT_EQ(CodecsOf(**controller->Decide(report, 1510)),
            std::vector<std::string>(3, "topk:ratio=0.1"));
  report.learning_rate = 0.008;  // as a cosine falls
  EXPECT_EQ(CodecsOf(**controller->Decide(report, 2010)),
            std::vector<std::string>(3, "topk:ratio=0.01"));
}

TEST(LgrecoAccordion, TheBudgetIsAccordionsChoice) {
  const auto controller = Make("lgreco_accordion:low=topk:ratio=0.1,high=topk:ratio=0.01");
  const auto lgreco = Make("lgreco:codec=topk:ratio=0.01");
  ASSERT_TRUE(controller->Begin(kTensors).ok() && lgreco->Begin(kTensors).ok());
  Report report = TopKReport(*controller, 200);
  const PolicyDecision low = **controller->Decide(report, 210);
  report.round = 400;  // equal norms: not critical
  const PolicyDecision high = **controller->Decide(report, 410);
  EXPECT_LT(TotalsOf(report, low).error, TotalsOf(report, high).error);
  EXPECT_GT(TotalsOf(report, low).bytes, TotalsOf(report, high).bytes);
  const Report narrower = TopKReport(*lgreco, 400);
  EXPECT_NEAR(TotalsOf(report, high).error,
              TotalsOf(narrower, **lgreco->Decide(narrower, 410)).error,
              0.05 * TotalsOf(report, high).error);
}

TEST(LevelPolicies, AResumedControllerDecidesAsTheFirstWouldHave) {
  for (const std::string policy :
       {"lgreco:codec=topk:ratio=0.01", "accordion", "lgreco_accordion", "kmeans", "global_topk"}) {
    const auto first = Make(policy);
    ASSERT_TRUE(first->Begin(kTensors).ok());
    ASSERT_TRUE(first->Decide(TopKReport(*first, 200), 210).ok());
    const auto resumed = Make(policy);
    ASSERT_TRUE(resumed->RestoreState(first->SaveState()).ok());
    EXPECT_EQ(resumed->SaveState(), first->SaveState());
    Report next = TopKReport(*first, 400);
    next.tensors[1].input_norm2 *= 9;
    for (LevelReport& level : next.tensors[1].levels) level.error_norm2 *= 9;
    const auto of_first = first->Decide(next, 410), of_resumed = resumed->Decide(next, 410);
    ASSERT_TRUE(of_first.ok() && of_resumed.ok());
    EXPECT_EQ(*of_first, *of_resumed) << policy;
  }
}

TEST(LevelPolicies, AStateOfAnotherPolicyOrADamagedOneChangesNothing) {
  const auto controller = Make("lgreco_accordion");
  ASSERT_TRUE(controller->Begin(kTensors).ok());
  const std::string state = controller->SaveState();
  for (const std::string& bad :
       {std::string(), Make("accordion")->SaveState(), state + " 1",
        state.substr(0, state.size() / 2), std::string("lgreco_accordion 99999999999 1 none")}) {
    EXPECT_EQ(controller->RestoreState(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(controller->SaveState(), state);
  }
}

TEST(LevelPolicies, RefuseWhatMakesNoSense) {
  const auto refuses = [](const std::string& text, const std::string& part) {
    const std::string message = RefusalOf(text);
    EXPECT_NE(message.find(part), std::string::npos) << text << ": " << message;
  };
  refuses("lgrecco", "unknown policy 'lgrecco': did you mean 'lgreco'?");
  refuses("lgreco:objektive=time", "did you mean 'objective'?");
  refuses("lgreco:objective=speed", "unknown value of policy lgreco, option objective 'speed'");
  refuses("lgreco:codec=1bit", "unknown codec for policy lgreco '1bit'");
  refuses("lgreco:codec=1bit", "Valid are qsgd, topk, powersgd");
  refuses("lgreco:codec=qsgd:bits=5", "option bits: expected 2, 4 or 8, got '5'");
  refuses("lgreco:codec=topk:k=100", "levels are values of ratio");
  refuses("lgreco:codec=topk:ratio=2", "at most 1");
  refuses("lgreco:codec=powersgd:rank=2.5", "expected an integer from 1");
  refuses("lgreco:codec=topk:ratio", "expected option=value, got 'ratio'");
  refuses("lgreco:budget=-1", "expected a finite number over 0");
  refuses("lgreco:every=0", "expected an integer from 1 to 1000000");
  refuses("global_topk:codec=qsgd", "expected topk, got 'qsgd'");
  refuses("accordion:low=topk:ratio=0.01,high=topk:ratio=0.1", "high compresses more than low");
  refuses("accordion:low=topk:ratio=0.1,high=qsgd:bits=4", "differ in ratio alone");
  refuses("uniform:every=3", "unknown option of policy uniform 'every'");
}

TEST(Policies, EveryNameMakesAControllerThatSaysItsSpec) {
  for (const std::string_view name : ControllerNames()) {
    const auto controller = Make(std::string(name));
    ASSERT_NE(controller, nullptr);
    EXPECT_EQ(controller->spec(), name);
    const auto same = Make(controller->spec());
    EXPECT_EQ(same->plan(), controller->plan());
  }
}

}  // namespace
}  // namespace slimps
