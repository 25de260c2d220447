// SPDX-License-Identifier: Apache-2.0
// gravac (Tyagi and Swany, "GraVAC: Adaptive Compression for Communication-Efficient Distributed DL
// Training", 2023, algorithm 1). It raises the compression factor theta (1 / ratio) window by
// window as long as that pays. Compression pays if more gradient arrives per time:
//
//   gain = |C(x)|^2 / |x|^2, smoothed;  compression throughput = gain / iteration time
//
// In each round the workers choose (step_choice.h, the paper's lines 5 to 25) the highest of three
// factors whose gain is at least epsilon, and send raw if none is. Before any gain is known, in the
// first round, they take the least factor:
//
//   candidate   the factor that is being evaluated
//   ideal       the evaluated factor with the highest compression throughput
//   least       the smallest factor in use, at first theta_min
//
// Here, at the end of each window (lines 28 to 41), the controller
// - notes the throughput of each factor that was used, and of raw (factor 1, gain 1)
// - makes the candidate the least, if their gains differ by at most omega of the least's
// - moves the candidate one factor up, if it was used and its throughput is over the ideal's by
//   more than omega. It then is the ideal
// - else returns from it to the ideal, and tries the next factor again after kRestWindows
// - leaves a candidate alone whose gain is below epsilon: workers only measure it
//
// Three things differ from the paper. Its line 33 scales up in every window, and its workers choose
// between candidate and least alone, so that a candidate beyond epsilon throws all rounds back to
// the least factor. Its line 35 takes theta_s after line 33 has raised it; the text means what
// was evaluated. Its line 37 compares the two highest throughputs of all factors; here the
// candidate is compared with the ideal, so that a throughput that falls ends the search, too.
//
// Epsilon. The paper has 0.7 and 0.9, for gradients in which topk keeps most of |x|^2. With error
// feedback, x holds all that was not sent before, and the squares of so many small elements are
// most of it. For lenet on MNIST (two workers, rate 0.05, topk by tensor, 300 rounds) the gain
// settles at 0.63, 0.20 and 0.06 for factors 10, 40 and 160, while the test accuracy is 91.5, 91.1
// and 89.6 %, and 92.2 % for raw. With 0.7 every round would be raw. The default, 0.2, permits
// about 40 there, the last factor that costs about a point at that stage.
//
// Options:
//   codec          a codec with a ratio: topk, mstopk, redsync or randomk, without the ratio;
//                  default topk
//   theta_min      the first factor; default 10
//   theta_max      the last one; default 1000
//   policy         exponential: theta_min times 2, 4, 16, 256, ...; geometric: times 2, 4, 8, ...;
//                  default geometric
//   epsilon        the least gain of a factor in use; default 0.2
//   omega          what counts as equal; default 0.01, the paper's
//   window         rounds of a window; default 500, the paper's
//   min_elements   smaller tensors are sent raw; default 256
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compress/policy/controllers/policies.h"
#include "compress/policy/controllers/state_text.h"
#include "compress/spec/names.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr uint64_t kRestWindows = 4;

struct GravacOptions {
  SpecText spec, codec;
  std::vector<double> factors;  // rising
  double epsilon = 0, omega = 0;
  uint64_t window = 0, min_elements = 0;
};

// What CheckGraVAC changes.
struct Place {
  size_t least = 0, ideal = 0, candidate = 0;  // indices of factors
  uint64_t rest = 0;  // windows until the candidate moves up again from the ideal
};

class Gravac final : public Controller {
 public:
  explicit Gravac(GravacOptions options)
      : options_(std::move(options)),
        plan_{.every_rounds = options_.window, .ladders = true},
        throughputs_(options_.factors.size(), 0) {
    place_.candidate = Above(0);
  }

  std::string spec() const override { return ToCodecSpec(options_.spec); }
  const ReportPlan& plan() const override { return plan_; }
  std::vector<std::string> Candidates(const TensorInfo& /*tensor*/) const override { return {}; }

  absl::StatusOr<PolicyDecision> Begin(std::span<const TensorInfo> tensors) override {
    for (const TensorInfo& tensor : tensors) {
      if (tensor.elements >= options_.min_elements) keys_.push_back(tensor.key);
    }
    std::ranges::sort(keys_);
    return DecisionFrom(1, "the first window");
  }

  absl::StatusOr<std::optional<PolicyDecision>> Decide(const Report& report,
                                                       uint64_t from_round) override {
    const std::vector<size_t> ladder = Ladder();
    if (report.steps.size() != ladder.size() + 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("policy gravac: a report of ", report.steps.size(), " steps, expected ",
                       ladder.size() + 1, " as in the decision in force"));
    }
    for (size_t i = 0; i < ladder.size(); ++i) {
      const StepReport& step = report.steps[i];
      if (step.rounds > 0 && step.iteration_ns > 0) {
        throughputs_[ladder[i]] = step.gain / step.iteration_ns;
      }
    }
    const std::string reason = EndWindow(report.steps);
    if (Ladder() == ladder) return std::nullopt;
    return DecisionFrom(from_round, reason);
  }

  std::string SaveState() const override {
    StateWriter state;
    state.Add("gravac").Add(uint64_t{place_.least}).Add(uint64_t{place_.ideal});
    state.Add(uint64_t{place_.candidate}).Add(place_.rest);
    for (const double throughput : throughputs_) state.Add(throughput);
    state.Add(uint64_t{keys_.size()});
    for (const KeyId key : keys_) state.Add(uint64_t{key});
    return state.text();
  }

  absl::Status RestoreState(std::string_view text) override {
    StateReader state("gravac", text);
    Place place{.least = state.Uint(), .ideal = state.Uint()};
    place.candidate = state.Uint();
    place.rest = state.Uint();
    std::vector<double> throughputs;
    for (size_t i = 0; i < throughputs_.size(); ++i) throughputs.push_back(state.Real());
    std::vector<KeyId> keys;
    for (uint64_t left = state.Uint(); left > 0 && state.ok(); --left) keys.push_back(state.Uint());
    SLIMPS_RETURN_IF_ERROR(state.Finish());
    if (std::max({place.least, place.ideal, place.candidate}) >= options_.factors.size()) {
      return absl::InvalidArgumentError("state of policy gravac: it is one of other factors");
    }
    place_ = place;
    throughputs_ = std::move(throughputs);
    keys_ = std::move(keys);
    return absl::OkStatus();
  }

 private:
  size_t Above(size_t factor) const { return std::min(factor + 1, options_.factors.size() - 1); }

  // Returns the factors among which workers choose, highest first.
  std::vector<size_t> Ladder() const {
    std::vector<size_t> ladder = {place_.candidate, place_.ideal, place_.least};
    std::ranges::sort(ladder, std::greater());
    ladder.erase(std::unique(ladder.begin(), ladder.end()), ladder.end());
    return ladder;
  }

  // The paper's CheckGraVAC. Returns what it found, in words.
  std::string EndWindow(std::span<const StepReport> steps) {
    const StepReport& candidate = steps[0];
    const StepReport& least = steps[steps.size() - 2];
    const double candidate_factor = options_.factors[place_.candidate];
    if (place_.candidate == place_.ideal) return Rest();
    if (candidate.gain < options_.epsilon || candidate.rounds == 0) {
      return absl::StrFormat("factor %.4g has a gain of %.3g, epsilon is %.3g", candidate_factor,
                             candidate.gain, options_.epsilon);
    }
    if (std::abs(least.gain - candidate.gain) <= options_.omega * least.gain) {
      place_.least = place_.candidate;
    }
    const double gained = throughputs_[place_.candidate], ideal = throughputs_[place_.ideal];
    std::string found = absl::StrFormat(
        "factor %.4g has a gain of %.3g and a compression throughput of %.4g a second, factor "
        "%.4g ",
        candidate_factor, candidate.gain, 1e9 * gained, options_.factors[place_.ideal]);
    found += ideal > 0 ? absl::StrFormat("has %.4g", 1e9 * ideal) : "was not used";
    if (gained > ideal * (1 + options_.omega)) {
      place_.ideal = place_.candidate;
      place_.candidate = Above(place_.candidate);
    } else {
      place_.candidate = place_.ideal;
      place_.rest = kRestWindows;
    }
    place_.ideal = std::max(place_.ideal, place_.least);
    place_.candidate = std::max(place_.candidate, place_.ideal);
    return found;
  }

  // A window in which no factor is evaluated.
  std::string Rest() {
    if (place_.rest > 0 && --place_.rest > 0) return "";
    place_.candidate = Above(place_.ideal);
    return absl::StrFormat("factor %.4g is tried again", options_.factors[place_.candidate]);
  }

  std::string CodecAt(size_t factor) const {
    SpecText codec = options_.codec;
    codec.options["ratio"] = absl::StrFormat("%.4g", 1 / options_.factors[factor]);
    return ToCodecSpec(codec);
  }

  PolicyDecision DecisionFrom(uint64_t round, const std::string& reason) const {
    TensorDecision tensor{.steps = {}, .reason = "as all tensors"};
    std::string factors;
    for (const size_t factor : Ladder()) {
      tensor.steps.push_back({.codec = CodecAt(factor), .min_gain = options_.epsilon});
      absl::StrAppend(&factors, factors.empty() ? "" : ", ", options_.factors[factor]);
    }
    tensor.steps.push_back({});
    PolicyDecision decision{.from_round = round,
                            .reason = absl::StrCat("gravac: ", reason,
                                                   "; workers choose among "
                                                   "factors ",
                                                   factors, " and raw")};
    for (const KeyId key : keys_) decision.tensors[key] = tensor;
    return decision;
  }

  const GravacOptions options_;
  const ReportPlan plan_;
  std::vector<double> throughputs_;  // by factor, in 1 / ns; 0: not known
  std::vector<KeyId> keys_;          // of the tensors that are compressed
  Place place_;
};

// Returns theta_min, its multiples by the policy, and theta_max.
std::vector<double> FactorsBetween(double least, double most, bool geometric) {
  std::vector<double> factors = {least};
  for (double scale = 2; least * scale < most; scale *= geometric || scale == 2 ? 2 : scale) {
    factors.push_back(least * scale);
  }
  if (most > least) factors.push_back(most);
  return factors;
}

absl::StatusOr<SpecText> SparseCodecOption(const SpecText& spec) {
  static constexpr std::string_view kCodecs[] = {"topk", "mstopk", "redsync", "randomk"};
  SLIMPS_ASSIGN_OR_RETURN(SpecText codec, InnerCodecOption(spec, "codec", "topk"));
  if (std::ranges::find(kCodecs, std::string_view(codec.name)) == std::end(kCodecs)) {
    return UnknownName(absl::StrCat("codec for ", OwnerOf(spec)), codec.name, kCodecs);
  }
  if (codec.options.contains("ratio") || codec.options.contains("k")) {
    return absl::InvalidArgumentError(
        absl::StrCat(OwnerOf(spec), ", option codec: expected no ratio and no k, got ",
                     ToInnerCodec(codec), "; theta_min and theta_max give the ratios"));
  }
  return codec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Controller>> MakeGravac(const SpecText& spec) {
  const OptionReader options(OwnerOf(spec), spec.options);
  static constexpr std::string_view kOptions[] = {
      "codec", "theta_min", "theta_max", "policy", "epsilon", "omega", "window", "min_elements"};
  static constexpr std::string_view kPolicies[] = {"exponential", "geometric"};
  SLIMPS_RETURN_IF_ERROR(options.CheckNames(kOptions));
  GravacOptions made{.spec = spec};
  SLIMPS_ASSIGN_OR_RETURN(made.codec, SparseCodecOption(spec));
  SLIMPS_ASSIGN_OR_RETURN(const float least, options.Float("theta_min", FloatRange::kPositive, 10));
  SLIMPS_ASSIGN_OR_RETURN(const float most,
                          options.Float("theta_max", FloatRange::kPositive, 1000));
  if (least < 1) return options.BadValue("theta_min", "a number from 1", absl::StrCat(least));
  if (most < least) {
    return options.BadValue("theta_max", absl::StrCat("at least theta_min, ", least),
                            absl::StrCat(most));
  }
  SLIMPS_ASSIGN_OR_RETURN(const size_t policy, options.Choice("policy", kPolicies, 1));
  made.factors = FactorsBetween(static_cast<double>(least), static_cast<double>(most), policy == 1);
  SLIMPS_ASSIGN_OR_RETURN(const float epsilon, options.Float("epsilon", FloatRange::kFactor, 0.2f));
  SLIMPS_ASSIGN_OR_RETURN(const float omega, options.Float("omega", FloatRange::kFactor, 0.01f));
  made.epsilon = static_cast<double>(epsilon);
  made.omega = static_cast<double>(omega);
  SLIMPS_ASSIGN_OR_RETURN(made.window, options.Uint("window", 1, 1'000'000, 500));
  SLIMPS_ASSIGN_OR_RETURN(made.min_elements, MinElementsOption(spec));
  return std::make_unique<Gravac>(std::move(made));
}

}  // namespace slimps
