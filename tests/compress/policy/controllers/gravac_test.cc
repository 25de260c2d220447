// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/controllers/controller.h"
#include "compress/policy/controllers/step_choice.h"
#include "tests/compress/policy/controllers/controller_test_util.h"

namespace slimps {
namespace {

const std::vector<TensorInfo> kTensors = {
    {.key = 1, .elements = 10'000}, {.key = 2, .elements = 10}, {.key = 3, .elements = 50'000}};
constexpr char kPolicy[] = "gravac:theta_min=10,theta_max=1000,epsilon=0.3,window=100";

std::vector<std::string> LadderOf(const PolicyDecision& decision) {
  std::vector<std::string> ladder;
  for (const LadderStep& step : decision.tensors.at(1).steps) ladder.push_back(step.codec);
  return ladder;
}

using Ladder = std::vector<std::string>;

// A job whose gain and iteration time depend on the factor that a round uses.
class Job {
 public:
  Job(Controller& controller, double (*gain)(double), double (*iteration_ns)(double))
      : controller_(controller),
        gain_(gain),
        iteration_ns_(iteration_ns),
        decision_(*controller.Begin(kTensors)),
        choice_(decision_, 4) {}

  // Runs a window. Returns the ladder in force after it.
  Ladder Window() {
    for (int i = 0; i < 100; ++i, ++round_) {
      const size_t step = choice_.Choose();
      std::vector<double> gains;
      for (const std::string& codec : LadderOf(decision_)) gains.push_back(gain_(FactorOf(codec)));
      choice_.Observe(gains);
      choice_.EndIteration(step, iteration_ns_(FactorOf(LadderOf(decision_)[step])));
    }
    const Report report{.round = round_, .rounds = 100, .steps = choice_.TakeReport()};
    auto next = controller_.Decide(report, round_ + 5);
    EXPECT_TRUE(next.ok()) << next.status();
    if (next.ok() && next->has_value()) {
      decision_ = **std::move(next);
      choice_.Follow(decision_);
    }
    return LadderOf(decision_);
  }

  std::string UsedNow() const { return LadderOf(decision_)[choice_.Choose()]; }
  const PolicyDecision& decision() const { return decision_; }

 private:
  static double FactorOf(const std::string& codec) {
    const double ratio = NumberIn(codec, "ratio");
    return ratio == 0 ? 1 : 1 / ratio;
  }

  Controller& controller_;
  double (*gain_)(double);
  double (*iteration_ns_)(double);
  PolicyDecision decision_;
  StepChoice choice_;
  uint64_t round_ = 0;
};

double SlowlyFalling(double factor) { return factor == 1 ? 1 : std::pow(factor, -0.1); }
double BoundByTheLink(double factor) { return 1e8 / factor + 1e5; }

TEST(Gravac, BeginsWithTheFirstFactorAndTheNextAsCandidate) {
  const auto controller = Make(kPolicy);
  EXPECT_TRUE(controller->plan().ladders);
  EXPECT_EQ(controller->plan().every_rounds, 100u);
  const PolicyDecision decision = *controller->Begin(kTensors);
  EXPECT_EQ(LadderOf(decision), (Ladder{"topk:ratio=0.05", "topk:ratio=0.1", "none"}));
  EXPECT_EQ(decision.tensors.at(1).steps[0].min_gain, static_cast<double>(0.3f));
  EXPECT_EQ(decision.tensors.at(1).steps[2].min_gain, 0);
  EXPECT_EQ(decision.tensors.at(1).steps, decision.tensors.at(3).steps);
  EXPECT_FALSE(decision.tensors.contains(2));
}

TEST(Gravac, ScalesUpWindowByWindowWhileThatPays) {
  const auto controller = Make(kPolicy);
  Job job(*controller, SlowlyFalling, BoundByTheLink);
  EXPECT_EQ(job.Window(),
            (Ladder{"topk:ratio=0.025", "topk:ratio=0.05", "topk:ratio=0.1", "none"}));
  EXPECT_EQ(job.Window(),
            (Ladder{"topk:ratio=0.0125", "topk:ratio=0.025", "topk:ratio=0.1", "none"}));
  EXPECT_NE(job.decision().reason.find("compression throughput"), std::string::npos);
  for (int i = 0; i < 10; ++i) job.Window();
  EXPECT_EQ(job.UsedNow(), "topk:ratio=0.001");  // theta_max
}

TEST(Gravac, TheExponentialPolicySquaresItsSteps) {
  const auto controller = Make(std::string(kPolicy) + ",policy=exponential");
  Job job(*controller, SlowlyFalling, BoundByTheLink);
  Ladder candidates = {LadderOf(job.decision())[0]};
  for (int i = 0; i < 3; ++i) candidates.push_back(job.Window()[0]);
  // 20, 40, 160 and then theta_max, since 2560 is over it.
  EXPECT_EQ(candidates, (Ladder{"topk:ratio=0.05", "topk:ratio=0.025", "topk:ratio=0.00625",
                                "topk:ratio=0.001"}));
}

TEST(Gravac, StopsBelowEpsilonAndKeepsTheBestFactor) {
  // The gain falls below 0.3 between 40 and 80.
  const auto gain = [](double factor) { return factor > 50 ? 0.2 : 0.8; };
  const auto controller = Make(kPolicy);
  Job job(*controller, gain, BoundByTheLink);
  for (int i = 0; i < 8; ++i) job.Window();
  EXPECT_EQ(LadderOf(job.decision())[0], "topk:ratio=0.0125");  // measured only
  EXPECT_EQ(job.UsedNow(), "topk:ratio=0.025");
}

TEST(Gravac, ReturnsFromAFactorThatDoesNotPay) {
  // From 40 on the iteration is bound by computing: only the gain changes, to the worse.
  const auto time = [](double factor) { return factor >= 40 ? 1e6 : 1e8 / factor; };
  const auto controller = Make(kPolicy);
  Job job(*controller, SlowlyFalling, time);
  for (int i = 0; i < 3; ++i) job.Window();
  EXPECT_EQ(LadderOf(job.decision()), (Ladder{"topk:ratio=0.025", "topk:ratio=0.1", "none"}));
  EXPECT_EQ(job.UsedNow(), "topk:ratio=0.025");
  // After a rest it is tried again.
  Ladder ladder;
  for (int i = 0; i < 4; ++i) ladder = job.Window();
  EXPECT_EQ(ladder[0], "topk:ratio=0.0125");
}

TEST(Gravac, EqualGainsRaiseTheLeastFactor) {
  const auto controller = Make(kPolicy);
  Job job(
      *controller, [](double) { return 0.9; }, BoundByTheLink);
  EXPECT_EQ(job.Window(), (Ladder{"topk:ratio=0.025", "topk:ratio=0.05", "none"}));
}

TEST(Gravac, InACriticalPeriodWorkersSendRaw) {
  static bool critical = false;
  critical = false;
  const auto gain = [](double) { return critical ? 0.1 : 0.6; };
  const auto controller = Make(kPolicy);
  Job job(*controller, gain, BoundByTheLink);
  job.Window();
  job.Window();
  EXPECT_NE(job.UsedNow(), "none");
  critical = true;
  job.Window();
  EXPECT_EQ(job.UsedNow(), "none");
  critical = false;
  job.Window();
  EXPECT_NE(job.UsedNow(), "none");
}

TEST(Gravac, AResumedControllerGoesOn) {
  const auto first = Make(kPolicy);
  Job job(*first, SlowlyFalling, BoundByTheLink);
  job.Window();
  const auto resumed = Make(kPolicy);
  ASSERT_TRUE(resumed->RestoreState(first->SaveState()).ok());
  const Report report{.round = 300,
                      .rounds = 100,
                      .steps = {{.rounds = 100, .iteration_ns = 1e6, .gain = 0.7}, {}, {}, {}}};
  const auto of_first = first->Decide(report, 305), of_resumed = resumed->Decide(report, 305);
  ASSERT_TRUE(of_first->has_value());
  EXPECT_EQ(*of_first, *of_resumed);
  EXPECT_EQ(resumed->SaveState(), first->SaveState());
  EXPECT_FALSE(Make("gravac:theta_max=10")->RestoreState(first->SaveState()).ok());
}

TEST(Gravac, AReportOfAnotherLadderIsRefused) {
  const auto controller = Make(kPolicy);
  ASSERT_TRUE(controller->Begin(kTensors).ok());
  EXPECT_EQ(controller->Decide({.steps = {{}, {}}}, 9).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Gravac, RefusesWhatMakesNoSense) {
  const auto refuses = [](const std::string& text, const std::string& part) {
    const std::string message = RefusalOf(text);
    EXPECT_NE(message.find(part), std::string::npos) << text << ": " << message;
  };
  refuses("gravac:codec=qsgd", "unknown codec for policy gravac 'qsgd'");
  refuses("gravac:codec=topk:ratio=0.1", "theta_min and theta_max give the ratios");
  refuses("gravac:theta_min=0.5", "expected a number from 1, got '0.5'");
  refuses("gravac:theta_max=5", "expected at least theta_min, 10, got '5'");
  refuses("gravac:epsilon=1", "expected a number from 0 to below 1");
  refuses("gravac:policy=linear", "did you mean");
  refuses("gravac:windows=5", "did you mean 'window'?");
}

}  // namespace
}  // namespace slimps
