// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/controllers/controller.h"
#include "compress/policy/controllers/iteration_model.h"
#include "tests/compress/policy/controllers/controller_test_util.h"

namespace slimps {
namespace {

const std::vector<TensorInfo> kTensors = {{.key = 1, .elements = 20'000},
                                          {.key = 2, .elements = 100},
                                          {.key = 3, .elements = 2'000'000},
                                          {.key = 4, .elements = 200'000}};
const std::vector<std::string> kFixed = {"fp16", "1bit", "qsgd:bits=4", "qsgd:bits=8",
                                         "topk:ratio=0.01"};

// What the codecs of these tests do to a tensor: bytes and error as a part of raw ones, and ns per
// element to encode.
struct Effect {
  double bytes, error, encode_ns;
};

Effect EffectOf(const std::string& codec) {
  if (codec == "fp16") return {0.5, 1e-7, 0.1};
  if (codec == "1bit") return {1 / 32.0, 0.4, 0.3};
  if (codec == "topk:ratio=0.01") return {0.015, 0.8, 2.0};
  const double bits = NumberIn(codec, "bits");
  return {bits / 32, std::pow(2, -bits), 0.5};
}

// `bytes_per_ns`: of the link. The small tensors are the first to be ready.
Report ReportOn(const Controller& controller, double bytes_per_ns, uint64_t round = 20) {
  Report report{.workers = 4, .round = round, .rounds = 20};
  report.pulls_follow_pushes = true;
  report.link = {.startup_ns = 2e5, .ns_per_byte = 1 / bytes_per_ns};
  const double energy[] = {50, 1, 3, 10};
  for (size_t i = 0; i < kTensors.size(); ++i) {
    const TensorInfo& info = kTensors[i];
    TensorReport tensor{
        .tensor = info, .ready_ns = 2.5e5 * static_cast<double>(i + 1), .input_norm2 = energy[i]};
    for (const std::string& codec : controller.Candidates(info)) {
      const Effect effect = EffectOf(codec);
      tensor.levels.push_back({.codec = codec,
                               .error_norm2 = effect.error * energy[i],
                               .payload_bytes = static_cast<uint64_t>(
                                   effect.bytes * static_cast<double>(info.raw_bytes())),
                               .encode_ns = effect.encode_ns * static_cast<double>(info.elements),
                               .decode_ns = 0.1 * static_cast<double>(info.elements)});
    }
    report.tensors.push_back(std::move(tensor));
  }
  return report;
}

// Returns the predicted time and the error of codecs by key.
struct Outcome {
  double ns = 0, error = 0;
};

template <typename CodecOf>
Outcome OutcomeOf(const Report& report, CodecOf codec_of) {
  TimedProblem problem{.link = report.link, .workers = report.workers};
  Allocation allocation;
  Outcome outcome;
  for (const TensorReport& tensor : report.tensors) {
    problem.tensors.push_back(TimedTensorOf(report, tensor, RawLevel::kLast));
    const auto level =
        std::ranges::find(tensor.levels, codec_of(tensor.tensor.key), &LevelReport::codec);
    allocation.push_back(static_cast<size_t>(level - tensor.levels.begin()));
    outcome.error += problem.tensors.back().levels[allocation.back()].error;
  }
  outcome.ns = PredictIterationNs(problem, allocation);
  return outcome;
}

Outcome OutcomeOf(const Report& report, const PolicyDecision& decision) {
  return OutcomeOf(report, [&](KeyId key) {
    const auto tensor = decision.tensors.find(key);
    return tensor == decision.tensors.end() ? std::string("none") : tensor->second.steps[0].codec;
  });
}

std::string WithCodecs(const std::string& budget) {
  return "joint:budget=" + budget + ",codecs=fp16|1bit|qsgd:bits=4|qsgd:bits=8|topk:ratio=0.01";
}

TEST(Joint, IsNeverSlowerThanAFixedCodecWithinTheBudget) {
  for (const std::string budget : {"1bit", "qsgd:bits=4", "topk:ratio=0.01", "0.01"}) {
    for (const double bytes_per_ns : {0.0125, 0.0375, 0.125, 10.0}) {
      const auto controller = Make(WithCodecs(budget));
      const PolicyDecision first = *controller->Begin(kTensors);
      EXPECT_EQ(CodecsOf(first), std::vector<std::string>(3, budget == "0.01" ? "none" : budget));
      const Report report = ReportOn(*controller, bytes_per_ns);
      const auto decided = controller->Decide(report, 30);
      ASSERT_TRUE(decided.ok());
      const Outcome found = OutcomeOf(report, decided->value_or(first));
      const double limit =
          budget == "0.01" ? 0.01 * 63
                           : OutcomeOf(report, [&](KeyId) { return budget; }).error * (1 + 1e-9);
      EXPECT_LE(found.error, limit) << budget;
      for (const std::string& codec : kFixed) {
        const Outcome fixed = OutcomeOf(report, [&](KeyId) { return codec; });
        if (fixed.error <= limit) {
          EXPECT_LE(found.ns, 1.02 * fixed.ns) << budget << " " << codec << " " << bytes_per_ns;
        }
      }
    }
  }
}

TEST(Joint, AFastLinkNeedsNoCompression) {
  const auto controller = Make(WithCodecs("1bit"));
  ASSERT_TRUE(controller->Begin(kTensors).ok());
  const auto decided = controller->Decide(ReportOn(*controller, 1000), 30);
  ASSERT_TRUE(decided->has_value());
  // The first tensor has arrived before the others are there, however it is sent.
  EXPECT_EQ((*decided)->tensors.at(3).steps[0].codec, "none");
  EXPECT_EQ((*decided)->tensors.at(4).steps[0].codec, "none");
}

TEST(Joint, FollowsALinkThatBecomesSlow) {
  const auto controller = Make(WithCodecs("qsgd:bits=4"));
  ASSERT_TRUE(controller->Begin(kTensors).ok());
  ASSERT_TRUE(controller->Decide(ReportOn(*controller, 1000), 30)->has_value());
  EXPECT_FALSE(controller->Decide(ReportOn(*controller, 0.0125, 40), 50)->has_value());
  const auto decided = controller->Decide(ReportOn(*controller, 0.0125, 60), 70);
  ASSERT_TRUE(decided->has_value());
  EXPECT_EQ((*decided)->from_round, 70u);
  EXPECT_NE((*decided)->tensors.at(3).steps[0].codec, "none");
  EXPECT_NE((*decided)->reason.find("ms an iteration predicted instead of"), std::string::npos);
}

TEST(Joint, FollowsALinkThatBecomesFast) {
  const auto controller = Make(WithCodecs("qsgd:bits=4"));
  ASSERT_TRUE(controller->Begin(kTensors).ok());
  ASSERT_TRUE(controller->Decide(ReportOn(*controller, 0.0125), 30).ok());
  ASSERT_TRUE(controller->Decide(ReportOn(*controller, 1000, 40), 50).ok());
  const auto decided = controller->Decide(ReportOn(*controller, 1000, 60), 70);
  ASSERT_TRUE(decided->has_value());
  EXPECT_EQ((*decided)->tensors.at(3).steps[0].codec, "none");
  EXPECT_EQ((*decided)->tensors.at(4).steps[0].codec, "none");
}

// The report of a link of which small payloads tell only that a byte takes `ns` or less: an
// iteration computes for most of its time.
Report Unsure(const Controller& controller, double ns, uint64_t round) {
  Report report = ReportOn(controller, 1 / ns, round);
  report.iteration_ns = 2e9;
  return report;
}

TEST(Joint, ProbesWithRawTensorsWhereThatCostsLittleAndGoesBack) {
  const auto controller = Make(WithCodecs("qsgd:bits=4"));
  PolicyDecision in_force = *controller->Begin(kTensors);
  std::vector<size_t> probes;
  for (size_t window = 1; window <= 12; ++window) {
    const Report report = Unsure(*controller, 2, 20 * window);
    const auto decided = controller->Decide(report, 20 * window + 10);
    ASSERT_TRUE(decided.ok());
    if (!decided->has_value()) continue;
    const Outcome before = OutcomeOf(report, in_force), after = OutcomeOf(report, **decided);
    if ((*decided)->reason.find("a probe") == std::string::npos) {
      EXPECT_LT(after.ns, before.ns) << window;
    } else {
      probes.push_back(window);
      Report slower = report;
      slower.link.ns_per_byte *= 2;
      EXPECT_LE(OutcomeOf(slower, **decided).ns,
                OutcomeOf(slower, in_force).ns + 0.05 * report.iteration_ns)
          << window;
      EXPECT_LE(after.error, before.error) << window;
      EXPECT_EQ((*decided)->tensors.at(3).steps[0].codec, "none") << window;
    }
    in_force = **decided;
  }
  ASSERT_GE(probes.size(), 2u);
  EXPECT_GE(probes[1], probes[0] + 4) << "few windows are probes";
}

// `report_of`: the report of a round.
template <typename ReportOf>
void ExpectNoProbe(ReportOf report_of) {
  const auto controller = Make(WithCodecs("qsgd:bits=4"));
  ASSERT_TRUE(controller->Begin(kTensors).ok());
  for (uint64_t round = 20; round <= 400; round += 20) {
    const auto decided = controller->Decide(report_of(*controller, round), round + 10);
    ASSERT_TRUE(decided.ok());
    if (decided->has_value()) {
      EXPECT_EQ((*decided)->reason.find("a probe"), std::string::npos) << round;
    }
  }
}

TEST(Joint, DoesNotProbeWhereTwiceTheTimePerByteWouldCostMuch) {
  ExpectNoProbe([](const Controller& controller, uint64_t round) {
    Report report = Unsure(controller, 2, round);
    report.iteration_ns = 6e8;  // 5 % of it are enough as long as a byte takes 2 ns
    return report;
  });
}

TEST(Joint, ASlowLinkIsNotProbed) {
  ExpectNoProbe([](const Controller& controller, uint64_t round) {
    return ReportOn(controller, 0.0125, round);
  });
}

// Reports windows of the same link, whose iterations took so many ms. After a decision it reports
// one more, in which the decision before was in force, too.
class Measured {
 public:
  Measured() {
    auto first = controller_->Begin(kTensors);
    EXPECT_TRUE(first.ok());
    first_ = CodecsOf(*first);
  }

  // Returns the decision's codecs, or nullopt where nothing changes.
  std::optional<std::vector<std::string>> Window(double ms) {
    const auto decision = Report20(ms);
    if (!decision.has_value()) return std::nullopt;
    reason_ = decision->reason;
    Resume();
    EXPECT_EQ(Report20(kOfTwoDecisions), std::nullopt);
    return CodecsOf(*decision);
  }

  // Continues with a controller that is restored from this one's state.
  void Resume() {
    auto resumed = Make(WithCodecs("qsgd:bits=4"));
    EXPECT_TRUE(resumed->RestoreState(controller_->SaveState()).ok());
    controller_ = std::move(resumed);
  }

  const std::vector<std::string>& first() const { return first_; }
  const std::string& reason() const { return reason_; }

 private:
  static constexpr double kOfTwoDecisions = 100;

  std::optional<PolicyDecision> Report20(double ms) {
    round_ += 20;
    Report report = ReportOn(*controller_, 1000, round_);
    report.iteration_ns = ms * 1e6;
    const auto decided = controller_->Decide(report, round_ + 10);
    EXPECT_TRUE(decided.ok());
    return decided.value_or(std::nullopt);
  }

  std::unique_ptr<Controller> controller_ = Make(WithCodecs("qsgd:bits=4"));
  std::vector<std::string> first_;
  std::string reason_;
  uint64_t round_ = 0;
};

TEST(Joint, TakesBackWhatIsMeasuredToBeSlowerAndTriesItAgainLater) {
  Measured job;
  const auto tried = job.Window(2);
  ASSERT_TRUE(tried.has_value());
  ASSERT_NE(*tried, job.first());
  job.Resume();
  EXPECT_EQ(job.Window(2.5), job.first());
  EXPECT_NE(job.reason().find("taken back, since it was 2.00 measured before"), std::string::npos);
  job.Resume();
  for (int window = 1; window <= 4; ++window) EXPECT_EQ(job.Window(2.05), std::nullopt) << window;
  EXPECT_EQ(job.Window(2.05), tried);
  EXPECT_EQ(job.Window(1.9), std::nullopt);
}

TEST(Joint, WhatIsTakenBackAgainIsTriedLaterAndLater) {
  Measured job;
  const auto tried = job.Window(2);
  for (const int doubt : {4, 8, 16, 32, 64, 64}) {
    EXPECT_EQ(job.Window(2.5), job.first());
    job.Resume();
    for (int i = 1; i <= doubt; ++i) ASSERT_EQ(job.Window(2), std::nullopt) << i << " of " << doubt;
    EXPECT_EQ(job.Window(2), tried) << doubt;
  }
  EXPECT_EQ(job.Window(1.9), std::nullopt);  // it proves itself
}

TEST(Joint, GoesOnAtOnceIfIterationsBecomeSlowerOrFaster) {
  for (const double changed : {2.3, 1.7}) {
    Measured job;
    const auto tried = job.Window(2);
    EXPECT_EQ(job.Window(2.5), job.first());
    EXPECT_EQ(job.Window(1.9), std::nullopt);
    EXPECT_EQ(job.Window(changed), tried) << changed;
    EXPECT_EQ(job.Window(changed), std::nullopt);
  }
}

TEST(Joint, SmallGainsChangeNothingAndABrokenBudgetDoes) {
  // The window at 40 is the first after a change.
  for (const uint64_t broken : {40u, 60u, 80u}) {
    const auto controller = Make(WithCodecs("qsgd:bits=4"));
    ASSERT_TRUE(controller->Begin(kTensors).ok());
    Report report = ReportOn(*controller, 0.0125);
    ASSERT_TRUE(controller->Decide(report, 30)->has_value());
    report.link.ns_per_byte *= 1.01;
    for (report.round = 40; report.round < broken; report.round += 20) {
      EXPECT_FALSE(controller->Decide(report, report.round + 10)->has_value()) << report.round;
    }
    // The tensor that was compressed most now has most of the error.
    for (LevelReport& level : report.tensors[2].levels) {
      level.error_norm2 *= level.codec == "qsgd:bits=4" ? 1 : 1000;
    }
    report.tensors[2].input_norm2 *= 1000;
    const auto decided = controller->Decide(report, report.round + 10);
    ASSERT_TRUE(decided.ok());
    ASSERT_TRUE(decided->has_value()) << broken;
    const double budget = OutcomeOf(report, [](KeyId) { return std::string("qsgd:bits=4"); }).error;
    EXPECT_LE(OutcomeOf(report, **decided).error, budget * (1 + 1e-9));
  }
}

TEST(Joint, WhatIsInForceMayExceedTheBudgetByLittle) {
  for (const double excess : {1.04, 1.06}) {
    const auto controller = Make(WithCodecs("0.01"));
    ASSERT_TRUE(controller->Begin(kTensors).ok());
    Report report = ReportOn(*controller, 0.0125);
    const auto first = controller->Decide(report, 30);
    ASSERT_TRUE(first->has_value());
    const double budget = 0.01 * 63;  // one tensor is too small
    const double smaller = OutcomeOf(report, **first).error / (excess * budget);
    for (TensorReport& tensor : report.tensors) tensor.input_norm2 *= smaller;
    report.round = 40;
    EXPECT_EQ(controller->Decide(report, 50)->has_value(), excess > 1.05) << excess;
  }
}

TEST(Joint, WithoutALinkItSaysWhatWouldDo) {
  const auto controller = Make("joint");
  ASSERT_TRUE(controller->Begin(kTensors).ok());
  const auto decided = controller->Decide({.round = 20}, 30);
  EXPECT_EQ(decided.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(decided.status().message().find("lgreco with objective=size"), std::string::npos);
}

TEST(Joint, CandidatesSuitTheTensor) {
  const auto controller = Make("joint:codecs=powersgd:rank=4|1bit,budget=powersgd:rank=8");
  EXPECT_EQ(controller->Candidates({.key = 1, .elements = 4096, .rows = 64, .columns = 64}),
            (std::vector<std::string>{"powersgd:rank=4", "1bit", "powersgd:rank=8"}));
  EXPECT_EQ(controller->Candidates({.key = 1, .elements = 4096}), std::vector<std::string>{"1bit"});
  EXPECT_TRUE(controller->Candidates({.key = 1, .elements = 100}).empty());
}

TEST(Joint, AResumedControllerGoesOn) {
  const auto first = Make(WithCodecs("qsgd:bits=4")), resumed = Make(WithCodecs("qsgd:bits=4"));
  ASSERT_TRUE(first->Begin(kTensors).ok());
  ASSERT_TRUE(first->Decide(ReportOn(*first, 0.0125), 30)->has_value());
  ASSERT_TRUE(resumed->RestoreState(first->SaveState()).ok());
  for (const auto& controller : {first.get(), resumed.get()}) {
    EXPECT_FALSE(controller->Decide(ReportOn(*first, 0.0125, 40), 50)->has_value());
  }
  EXPECT_EQ(*resumed->Decide(ReportOn(*first, 1000, 60), 70),
            *first->Decide(ReportOn(*first, 1000, 60), 70));
}

TEST(Joint, RefusesWhatMakesNoSense) {
  const auto refuses = [](const std::string& text, const std::string& part) {
    const std::string message = RefusalOf(text);
    EXPECT_NE(message.find(part), std::string::npos) << text << ": " << message;
  };
  refuses("joint:budget=0", "expected a number over 0, or a codec, got '0'");
  refuses("joint:budget=-3", "a number over 0, or a codec");
  refuses("joint:codecs=1bit|", "expected a codec, got nothing");
  refuses("joint:codecs=topk:ratio", "expected option=value");
  refuses("joint:budgets=1bit", "did you mean 'budget'?");
}

}  // namespace
}  // namespace slimps
