// SPDX-License-Identifier: Apache-2.0
// StepChoice: a worker's choice among the steps of its ladders (decision.h), one for all tensors of
// a round. Source: GraVAC, algorithm 1, lines 5 to 25. The paper measures the gains of this round's
// gradients before it sends any of them. Here pushes leave while the gradients are still being
// made, so a round goes by the smoothed gains of the rounds before it.
//
//   StepChoice choice(decision, /*workers=*/4);
//   const size_t step = choice.Choose();                   // before the round's first push
//   ... encode; add up |x|^2 and, for each step, |C(x)|^2 of the tensors with several steps ...
//   choice.Observe({gain_of_step_0, gain_of_step_1});      // after the round's last push
//   choice.EndIteration(step, iteration_ns);
//   report.steps = choice.TakeReport();                    // every plan().every_rounds
#ifndef SLIMPS_COMPRESS_POLICY_CONTROLLERS_STEP_CHOICE_H_
#define SLIMPS_COMPRESS_POLICY_CONTROLLERS_STEP_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compress/policy/controllers/decision.h"
#include "compress/policy/controllers/report.h"
#include "compress/policy/robust.h"

namespace slimps {

// Thread-compatible. Pure.
class StepChoice final {
 public:
  // `workers` gives the paper's smoothing factor, workers / 100, at most 1.
  StepChoice(const PolicyDecision& decision, uint32_t workers);

  // Takes the next decision. Gains of steps whose codecs have not changed go on; of others, the
  // gain is unknown until it is observed.
  void Follow(const PolicyDecision& decision);

  size_t steps() const { return steps_.size(); }

  // Returns the first step whose smoothed gain is known and at least its min_gain; else the last
  // step. While no gain is known, as in the first round, the step before the last: what it leaves
  // out stays in the residual, and the last one, raw, may take as long as many rounds.
  size_t Choose() const;

  // Takes the gains |C(x)|^2 / |x|^2 of one round, step by step. A shorter list leaves the gains of
  // the other steps as they are.
  void Observe(std::span<const double> gains);

  // Says how long an iteration with `step` took. A few long ones, as with an evaluation or a
  // checkpoint between two rounds, do not move what is reported. REQUIRES: step < steps().
  void EndIteration(size_t step, double iteration_ns);

  // Returns the report since the last one, one entry per step; TakeReport also begins the next.
  std::vector<StepReport> Peek() const;
  std::vector<StepReport> TakeReport();

  // Goes on from what Peek returned under the same decision, in a job that has ended.
  void Resume(std::span<const StepReport> steps);

 private:
  struct Step {
    std::vector<std::string> codecs;  // of all ladders, by rising key
    double min_gain = 0;
    std::optional<double> gain = {};  // smoothed
    uint64_t rounds = 0;              // since the last report
    SampleWindow iteration_ns = SampleWindow();
  };

  double smoothing_;
  std::vector<Step> steps_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_CONTROLLERS_STEP_CHOICE_H_
