// SPDX-License-Identifier: Apache-2.0
// accordion (Agarwal et al., MLSys 2021): two levels for each tensor, the low compression in
// critical regimes and the high one otherwise (critical_regimes.h). It begins with the low one.
//
// Options:
//   low, high      the two codecs, which differ in their level alone; default topk:ratio=0.1 and
//                  topk:ratio=0.01
//   eta            how much a norm changes in a critical regime; default 0.5, the paper's
//   every          rounds of a window; default 500
//   min_elements   smaller tensors are sent raw; default 256
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/policy/controllers/critical_regimes.h"
#include "compress/policy/controllers/policies.h"
#include "compress/policy/controllers/state_text.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

class Accordion final : public Controller {
 public:
  Accordion(const SpecText& spec, CodecLevels levels, double eta, uint64_t every,
            uint64_t min_elements)
      : spec_(ToSpecText(spec.name, spec.options)),
        plan_{.every_rounds = every},
        levels_(std::move(levels)),
        min_elements_(min_elements),
        regimes_(eta) {}

  std::string spec() const override { return spec_; }
  const ReportPlan& plan() const override { return plan_; }
  std::vector<std::string> Candidates(const TensorInfo& /*tensor*/) const override { return {}; }
  std::vector<std::string> Choices(const TensorInfo& tensor) const override {
    if (tensor.elements < min_elements_) return {};
    return {levels_.First(tensor), levels_.Second(tensor)};
  }

  absl::StatusOr<PolicyDecision> Begin(std::span<const TensorInfo> tensors) override {
    PolicyDecision decision{.from_round = 1, .reason = "accordion: low compression to begin with"};
    for (const TensorInfo& tensor : tensors) {
      if (tensor.elements < min_elements_) continue;
      in_force_[tensor.key] = levels_.First(tensor);
      decision.tensors[tensor.key] = {.steps = {{.codec = in_force_[tensor.key]}},
                                      .reason = "critical: no window to compare with"};
    }
    return decision;
  }

  absl::StatusOr<std::optional<PolicyDecision>> Decide(const Report& report,
                                                       uint64_t from_round) override {
    regimes_.Observe(report);
    std::map<KeyId, std::string> chosen = in_force_;
    size_t critical = 0, all = 0;
    for (const TensorReport& tensor : report.tensors) {
      const TensorInfo& info = tensor.tensor;
      if (info.elements < min_elements_) continue;
      const bool low = regimes_.critical(info.key);
      chosen[info.key] = low ? levels_.First(info) : levels_.Second(info);
      critical += low ? 1 : 0;
      ++all;
    }
    if (chosen == in_force_) return std::nullopt;
    in_force_ = std::move(chosen);
    PolicyDecision decision{
        .from_round = from_round,
        .reason = absl::StrCat("accordion: ", critical, " of ", all, " tensors are critical")};
    for (const auto& [key, codec] : in_force_) {
      decision.tensors[key] = {.steps = {{.codec = codec}}, .reason = regimes_.Reason(key)};
    }
    return decision;
  }

  std::string SaveState() const override {
    StateWriter state;
    state.Add("accordion").Add(in_force_);
    regimes_.SaveTo(state);
    return state.text();
  }

  absl::Status RestoreState(std::string_view text) override {
    StateReader state("accordion", text);
    auto in_force = state.Codecs();
    CriticalRegimes regimes = regimes_;
    regimes.RestoreFrom(state);
    SLIMPS_RETURN_IF_ERROR(state.Finish());
    in_force_ = std::move(in_force);
    regimes_ = std::move(regimes);
    return absl::OkStatus();
  }

 private:
  const std::string spec_;
  const ReportPlan plan_;
  const CodecLevels levels_;
  const uint64_t min_elements_;
  CriticalRegimes regimes_;
  std::map<KeyId, std::string> in_force_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Controller>> MakeAccordion(const SpecText& spec) {
  const OptionReader options(OwnerOf(spec), spec.options);
  static constexpr std::string_view kOptions[] = {"low", "high", "eta", "every", "min_elements"};
  SLIMPS_RETURN_IF_ERROR(options.CheckNames(kOptions));
  SLIMPS_ASSIGN_OR_RETURN(const SpecText low, InnerCodecOption(spec, "low", "topk:ratio=0.1"));
  SLIMPS_ASSIGN_OR_RETURN(const SpecText high, InnerCodecOption(spec, "high", "topk:ratio=0.01"));
  SLIMPS_ASSIGN_OR_RETURN(CodecLevels levels, CodecLevels::About(OwnerOf(spec), low, high));
  SLIMPS_RETURN_IF_ERROR(levels.CheckSecondIsStronger(OwnerOf(spec)));
  SLIMPS_ASSIGN_OR_RETURN(const float eta, options.Float("eta", FloatRange::kPositive, 0.5f));
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t every, EveryOption(spec, 500));
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t min_elements, MinElementsOption(spec));
  return std::make_unique<Accordion>(spec, std::move(levels), static_cast<double>(eta), every,
                                     min_elements);
}

}  // namespace slimps
