// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/controllers/level_controller.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compress/policy/controllers/iteration_model.h"
#include "compress/policy/controllers/state_text.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

double Ratio(double a, double b) { return b > 0 ? a / b : 0; }

}  // namespace

LevelController::LevelController(LevelPolicy policy)
    : policy_(std::move(policy)),
      plan_{.every_rounds = policy_.allocator == Allocator::kUniform ? 0 : policy_.every} {}

std::vector<std::string> LevelController::Candidates(const TensorInfo& tensor) const {
  const bool measured = plan_.every_rounds > 0 && tensor.elements >= policy_.min_elements;
  return measured ? policy_.levels.For(tensor) : std::vector<std::string>{};
}

std::vector<std::string> LevelController::Choices(const TensorInfo& tensor) const {
  if (plan_.every_rounds > 0) return Candidates(tensor);
  if (tensor.elements < policy_.min_elements) return {};
  return {policy_.levels.First(tensor)};
}

double LevelController::ErrorOf(double norm2) const {
  return policy_.allocator == Allocator::kOneThreshold ? norm2 : std::sqrt(norm2);
}

std::string LevelController::UniformCodec(const TensorInfo& tensor) const {
  const bool high = policy_.regimes.has_value() && !policy_.regimes->critical(tensor.key);
  return high ? policy_.levels.Second(tensor) : policy_.levels.First(tensor);
}

absl::StatusOr<PolicyDecision> LevelController::Begin(std::span<const TensorInfo> tensors) {
  PolicyDecision decision{
      .from_round = 1,
      .reason = absl::StrCat(policy_.spec.name, ": the uniform setting",
                             plan_.every_rounds > 0 ? ", nothing is measured yet"
                                                    : " for each tensor, never measured")};
  for (const TensorInfo& tensor : tensors) {
    if (tensor.elements < policy_.min_elements) continue;
    in_force_[tensor.key] = UniformCodec(tensor);
    decision.tensors[tensor.key] = {.steps = {{.codec = in_force_[tensor.key]}},
                                    .reason = "uniform"};
  }
  return decision;
}

LevelController::Measured LevelController::MeasuredIn(const Report& report) const {
  Measured measured;
  for (const TensorReport& tensor : report.tensors) {
    const auto uniform =
        std::ranges::find(tensor.levels, UniformCodec(tensor.tensor), &LevelReport::codec);
    if (uniform == tensor.levels.end()) continue;
    Levels levels;
    for (const LevelReport& level : tensor.levels) {
      levels.push_back({ErrorOf(level.error_norm2), static_cast<double>(level.payload_bytes)});
    }
    measured.tensors.push_back(&tensor);
    measured.problem.tensors.push_back(std::move(levels));
    measured.uniform.push_back(static_cast<size_t>(uniform - tensor.levels.begin()));
    measured.input += ErrorOf(tensor.input_norm2);
  }
  measured.problem.budget = policy_.budget.has_value()
                                ? *policy_.budget * measured.input
                                : TotalError(measured.problem.tensors, measured.uniform);
  return measured;
}

absl::StatusOr<Allocation> LevelController::Allocate(const Report& report,
                                                     const Measured& measured) const {
  const AllocationProblem& problem = measured.problem;
  Allocation reference = measured.uniform;
  if (!WithinBudget(problem, reference)) {
    reference.clear();
    for (const Levels& levels : problem.tensors) {
      const auto exact = std::ranges::min_element(levels, {}, &Level::error);
      reference.push_back(static_cast<size_t>(exact - levels.begin()));
    }
  }
  if (!WithinBudget(problem, reference)) {
    const double least = Ratio(TotalError(problem.tensors, reference), measured.input);
    return absl::FailedPreconditionError(absl::StrFormat(
        "policy %s: no allocation meets budget=%.3g: the least error of %s is %.3g of the error of "
        "sending nothing; give a budget of at least that, or a codec setting that compresses less",
        policy_.spec.name, *policy_.budget, policy_.levels.ToString(), least));
  }
  std::vector<uint64_t> sizes;
  for (const TensorReport* tensor : measured.tensors) sizes.push_back(tensor->tensor.elements);
  switch (policy_.allocator) {
    case Allocator::kUniform:
      return reference;
    case Allocator::kClusters:
      return ByClusters(problem, sizes, policy_.clusters, reference);
    case Allocator::kOneThreshold:
      return OneThreshold(problem, reference);
    case Allocator::kLeastCost:
      return policy_.objective == Objective::kTime && KnowsLink(report)
                 ? AllocateTime(report, measured, reference)
                 : LeastCost(problem, reference);
  }
  return reference;
}

Allocation LevelController::AllocateTime(const Report& report, const Measured& measured,
                                         const Allocation& reference) const {
  TimedProblem timed{.tensors = {},
                     .budget = measured.problem.budget,
                     .link = report.link,
                     .workers = report.workers};
  for (const TensorReport* tensor : measured.tensors) {
    timed.tensors.push_back(TimedTensorOf(report, *tensor, RawLevel::kNotAmongThem));
    for (auto& level : timed.tensors.back().levels) level.error = ErrorOf(level.error);
  }
  const Allocation smallest = LeastCost(measured.problem, reference);
  return Fastest(timed, std::vector{smallest, reference});
}

std::string LevelController::Summary(const Report& report, const Measured& measured,
                                     const Allocation& chosen) const {
  const auto& tensors = measured.problem.tensors;
  const double bytes = TotalCost(tensors, chosen);
  std::string text = absl::StrFormat(
      "%s: %.0f bytes a round instead of %s %.0f, %.3g times fewer, at an error of %.3g of the "
      "budget and %.3g of that of sending nothing",
      policy_.spec.name, bytes, policy_.regimes.has_value() ? "accordion's" : "uniform's",
      TotalCost(tensors, measured.uniform), Ratio(TotalCost(tensors, measured.uniform), bytes),
      Ratio(TotalError(tensors, chosen), measured.problem.budget),
      Ratio(TotalError(tensors, chosen), measured.input));
  if (policy_.objective == Objective::kTime && !KnowsLink(report)) {
    text += "; by size, since the link is not known yet";
  }
  return text;
}

PolicyDecision LevelController::DecisionFor(const Report& report, const Measured& measured,
                                            const Allocation& chosen) const {
  PolicyDecision decision{.reason = Summary(report, measured, chosen)};
  for (const auto& [key, codec] : in_force_) {
    decision.tensors[key] = {.steps = {{.codec = codec}}, .reason = "not measured: as before"};
  }
  for (size_t i = 0; i < measured.tensors.size(); ++i) {
    const TensorReport& tensor = *measured.tensors[i];
    const LevelReport& level = tensor.levels[chosen[i]];
    const LevelReport& uniform = tensor.levels[measured.uniform[i]];
    std::string reason = absl::StrFormat("%d bytes for uniform's %d, error %.3g of |x|^2 for %.3g",
                                         level.payload_bytes, uniform.payload_bytes,
                                         Ratio(level.error_norm2, tensor.input_norm2),
                                         Ratio(uniform.error_norm2, tensor.input_norm2));
    if (policy_.regimes.has_value()) {
      absl::StrAppend(&reason, "; ", policy_.regimes->Reason(tensor.tensor.key));
    }
    decision.tensors[tensor.tensor.key] = {.steps = {{.codec = level.codec}},
                                           .reason = std::move(reason)};
  }
  return decision;
}

absl::StatusOr<std::optional<PolicyDecision>> LevelController::Decide(const Report& report,
                                                                      uint64_t from_round) {
  if (policy_.regimes.has_value()) policy_.regimes->Observe(report);
  const Measured measured = MeasuredIn(report);
  SLIMPS_ASSIGN_OR_RETURN(const Allocation chosen, Allocate(report, measured));
  PolicyDecision decision = DecisionFor(report, measured, chosen);
  decision.from_round = from_round;
  std::map<KeyId, std::string> codecs;
  for (const auto& [key, tensor] : decision.tensors) codecs[key] = tensor.steps[0].codec;
  if (codecs == in_force_) return std::nullopt;
  in_force_ = std::move(codecs);
  return decision;
}

std::string LevelController::SaveState() const {
  StateWriter state;
  state.Add(policy_.spec.name).Add(in_force_);
  if (policy_.regimes.has_value()) policy_.regimes->SaveTo(state);
  return state.text();
}

absl::Status LevelController::RestoreState(std::string_view text) {
  StateReader state(policy_.spec.name, text);
  auto in_force = state.Codecs();
  auto regimes = policy_.regimes;
  if (regimes.has_value()) regimes->RestoreFrom(state);
  SLIMPS_RETURN_IF_ERROR(state.Finish());
  in_force_ = std::move(in_force);
  policy_.regimes = std::move(regimes);
  return absl::OkStatus();
}

}  // namespace slimps
