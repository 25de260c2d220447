// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/controllers/step_choice.h"

#include <algorithm>
#include <string>
#include <utility>

namespace slimps {
namespace {

// The paper's smoothing factor of the moving average is N / 100 for N workers (section III-C).
constexpr double kSmoothingPerWorker = 0.01;

constexpr uint64_t kKeptTimes = SampleWindow::kKept;

}  // namespace

StepChoice::StepChoice(const PolicyDecision& decision, uint32_t workers)
    : smoothing_(std::min(1.0, kSmoothingPerWorker * workers)) {
  Follow(decision);
}

void StepChoice::Follow(const PolicyDecision& decision) {
  std::vector<Step> next;
  for (const auto& [key, tensor] : decision.tensors) {
    if (tensor.steps.size() < 2) continue;
    next.resize(std::max(next.size(), tensor.steps.size()));
    for (size_t i = 0; i < tensor.steps.size(); ++i) {
      next[i].codecs.push_back(tensor.steps[i].codec);
      next[i].min_gain = tensor.steps[i].min_gain;
    }
  }
  for (Step& step : next) {
    const auto same = std::ranges::find(steps_, step.codecs, &Step::codecs);
    if (same != steps_.end()) step.gain = same->gain;
  }
  steps_ = std::move(next);
}

size_t StepChoice::Choose() const {
  for (size_t i = 0; i + 1 < steps_.size(); ++i) {
    if (steps_[i].gain.has_value() && *steps_[i].gain >= steps_[i].min_gain) return i;
  }
  if (steps_.empty()) return 0;
  const bool knows = std::ranges::any_of(steps_, [](const Step& step) { return step.gain >= 0.0; });
  return steps_.size() - (knows ? 1 : 2);
}

void StepChoice::Observe(std::span<const double> gains) {
  for (size_t i = 0; i < std::min(gains.size(), steps_.size()); ++i) {
    std::optional<double>& gain = steps_[i].gain;
    gain = gain.has_value() ? *gain + smoothing_ * (gains[i] - *gain) : gains[i];
  }
}

void StepChoice::EndIteration(size_t step, double iteration_ns) {
  steps_[step].rounds += 1;
  steps_[step].iteration_ns.Add(static_cast<int64_t>(iteration_ns));
}

std::vector<StepReport> StepChoice::Peek() const {
  std::vector<StepReport> report;
  for (const Step& step : steps_) {
    report.push_back({.rounds = step.rounds,
                      .iteration_ns = static_cast<double>(step.iteration_ns.average()),
                      .gain = step.gain.value_or(0)});
  }
  return report;
}

std::vector<StepReport> StepChoice::TakeReport() {
  std::vector<StepReport> report = Peek();
  for (Step& step : steps_) {
    step.rounds = 0;
    step.iteration_ns = SampleWindow();
  }
  return report;
}

void StepChoice::Resume(std::span<const StepReport> steps) {
  for (size_t i = 0; i < std::min(steps.size(), steps_.size()); ++i) {
    steps_[i].rounds = steps[i].rounds;
    if (steps[i].gain > 0) steps_[i].gain = steps[i].gain;
    for (uint64_t round = 0; round < std::min(steps[i].rounds, kKeptTimes); ++round) {
      steps_[i].iteration_ns.Add(static_cast<int64_t>(steps[i].iteration_ns));
    }
  }
}

}  // namespace slimps
