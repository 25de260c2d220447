// SPDX-License-Identifier: Apache-2.0
// joint: each tensor's codec and level, or raw, so that the predicted iteration time is least and
// the total error stays within a budget. The model of the iteration has the link, the overlap with
// computing, and what encoding and decoding take (iteration_model.h). It is solved anew after every
// window, so it follows the link and the gradients.
//
// The decision in force stays as long as it is within the budget and the best one is not faster by
// more than kWorthwhile: a change costs the workers' residuals some of their meaning, and measured
// times scatter. Errors do so, too, since they are of samples: what is in force may exceed the
// budget, up to kTolerated. The budget's codec is the first, for it is within the budget on any
// link.
//
// A change that makes iterations slower is taken back, and the model is not followed for a while
// (change_trial.h). In the window after a change two decisions were in force: it tells of neither,
// and changes nothing as long as the budget holds.
//
// Small payloads tell little of a link: what they take is nearly all start-up, and the link may be
// faster than it seems. So, when kWindowsBeforeProbe windows have changed nothing, one window sends
// as many tensors raw as cost at most kProbeCost of the predicted time, if there are enough of them
// to tell more. On a slow link there are not, and its figures need no probe. Few bytes may also
// pass faster than many: a probe is to be within its cost on a link kProbeDoubt times as slow.
//
// Options:
//   budget         a codec, whose error for all tensors together is the budget; or a number, the
//                  total error as a part of |x|^2; default qsgd:bits=4;norm=max. With norm=l2, qsgd
//                  errs by more than |x|^2, and sending next to nothing would be within that
//   codecs         the codecs to choose from, with | between them; raw and the budget's codec are
//                  always among them; default: kCodecs
//   every          rounds between decisions; default 20
//   min_elements   smaller tensors are sent raw; default 256
#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "compress/policy/controllers/change_trial.h"
#include "compress/policy/controllers/iteration_model.h"
#include "compress/policy/controllers/policies.h"
#include "compress/policy/controllers/state_text.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr std::string_view kCodecs =
    "fp16|1bit|qsgd:bits=8;norm=max|qsgd:bits=4;norm=max|qsgd:bits=2;norm=max|topk:ratio=0.05|"
    "topk:ratio=0.01|topk:ratio=0.001";
constexpr std::string_view kBudget = "qsgd:bits=4;norm=max";
constexpr double kWorthwhile = 0.02;
constexpr double kTolerated = 1.05;  // of the budget
constexpr uint64_t kWindowsBeforeProbe = 3;
constexpr double kProbeCost = 0.05;
constexpr double kProbeDoubt = 2;
constexpr double kProbeBytes = 2;  // a probe pushes this many times the bytes, or more

struct JointOptions {
  SpecText spec;
  std::vector<SpecText> codecs;
  std::string budget_codec = "";  // a codec spec; empty: budget_part holds
  double budget_part = 0;         // of |x|^2
  uint64_t every = 0, min_elements = 0;
};

class Joint final : public Controller {
 public:
  explicit Joint(JointOptions options)
      : options_(std::move(options)), plan_{.every_rounds = options_.every} {}

  std::string spec() const override { return ToCodecSpec(options_.spec); }
  const ReportPlan& plan() const override { return plan_; }

  std::vector<std::string> Candidates(const TensorInfo& tensor) const override {
    std::vector<std::string> specs;
    if (tensor.elements < options_.min_elements) return specs;
    for (const SpecText& codec : options_.codecs) {
      if (SuitsTensor(codec, tensor)) specs.push_back(ToCodecSpec(codec));
    }
    return specs;
  }

  absl::StatusOr<PolicyDecision> Begin(std::span<const TensorInfo> tensors) override {
    PolicyDecision decision{
        .from_round = 1,
        .reason = absl::StrCat("joint: ", First(), " until something is measured")};
    for (const TensorInfo& tensor : tensors) {
      if (tensor.elements < options_.min_elements) continue;
      const std::vector<std::string> suitable = Candidates(tensor);
      const bool has_first = std::ranges::find(suitable, First()) != suitable.end();
      in_force_[tensor.key] = has_first ? First() : "none";
      decision.tensors[tensor.key] = {.steps = {{.codec = in_force_[tensor.key]}},
                                      .reason = "not measured yet"};
    }
    return decision;
  }

  absl::StatusOr<std::optional<PolicyDecision>> Decide(const Report& report,
                                                       uint64_t from_round) override {
    if (!KnowsLink(report)) {
      return absl::FailedPreconditionError(
          "policy joint: the report does not tell what a byte of a push and of a pull take; lgreco "
          "with objective=size needs no link");
    }
    const Measured measured = MeasuredIn(report);
    const Allocation raw = RawOf(measured);
    const Allocation now = AllocationOf(measured, in_force_);
    const bool valid = WithinBudget(measured, now);
    if (std::exchange(changed_, false)) {
      if (valid) return std::nullopt;
    } else {
      if (auto back = TakeBack(report, measured, {now, raw}, from_round)) return back;
      if (trial_.Doubts(report.iteration_ns) && valid) return std::nullopt;
    }
    std::vector<Allocation> known = {raw, measured.fixed};
    if (WithinBudget(measured, now, 1)) known.push_back(now);
    const Allocation best = Fastest(measured.problem, known);
    const Times times = PredictedTimes(report, measured.problem, {best, now, raw});
    const double worthwhile = std::exchange(probing_, false) ? 0 : kWorthwhile;
    if (best != now && (!valid || times.now > times.best * (1 + worthwhile))) {
      quiet_windows_ = 0;
      if (valid) trial_.Begin(in_force_, report.iteration_ns);
      return Take(report, measured, best, times, from_round);
    }
    if (++quiet_windows_ <= kWindowsBeforeProbe) return std::nullopt;
    quiet_windows_ = 0;
    const Allocation probe = ProbeOf(report, measured, now);
    if (probe == now) return std::nullopt;
    probing_ = true;
    PolicyDecision decision =
        Take(report, measured, probe, PredictedTimes(report, measured.problem, {probe, now, raw}),
             from_round);
    absl::StrAppend(&decision.reason, "; a probe, since the link may have become faster");
    changed_ = false;  // rounds enough to tell of the link
    return decision;
  }

  std::string SaveState() const override {
    StateWriter state;
    state.Add("joint").Add(in_force_).Add(quiet_windows_);
    state.Add(uint64_t{changed_}).Add(uint64_t{probing_});
    trial_.SaveTo(state);
    return state.text();
  }

  absl::Status RestoreState(std::string_view text) override {
    StateReader state("joint", text);
    auto in_force = state.Codecs();
    const uint64_t quiet_windows = state.Uint(), changed = state.Uint(), probing = state.Uint();
    ChangeTrial trial;
    trial.RestoreFrom(state);
    SLIMPS_RETURN_IF_ERROR(state.Finish());
    in_force_ = std::move(in_force);
    quiet_windows_ = quiet_windows;
    changed_ = changed != 0;
    probing_ = probing != 0;
    trial_ = std::move(trial);
    return absl::OkStatus();
  }

 private:
  // All tensors of the report, also those that are always raw: they use the link, too.
  struct Measured {
    std::vector<const TensorReport*> tensors;
    TimedProblem problem;
    Allocation fixed;  // the budget's codec for every tensor; raw where that is not measured
    double input_norm2 = 0;
  };
  struct Times {
    double best = 0, now = 0, raw = 0;  // predicted, in ns
  };
  struct Compared {
    const Allocation &best, &now, &raw;
  };

  // Returns what was in force before the newest change if the change has made iterations slower.
  std::optional<PolicyDecision> TakeBack(const Report& report, const Measured& measured,
                                         const std::pair<Allocation, Allocation>& now_and_raw,
                                         uint64_t from_round) {
    if (!trial_.is_open()) return std::nullopt;
    const Allocation before = AllocationOf(measured, trial_.before());
    if (!WithinBudget(measured, before)) {
      trial_.Forget();
      return std::nullopt;
    }
    if (!trial_.Fails(report.iteration_ns)) return std::nullopt;
    quiet_windows_ = 0;
    const auto& [now, raw] = now_and_raw;
    PolicyDecision decision =
        Take(report, measured, before, PredictedTimes(report, measured.problem, {before, now, raw}),
             from_round);
    absl::StrAppendFormat(&decision.reason, "; taken back, since it was %.2f measured before",
                          trial_.before_ns() / 1e6);
    return decision;
  }

  std::string First() const {
    return options_.budget_codec.empty() ? "none" : options_.budget_codec;
  }

  // The model begins with the first gradient. What the measured iteration takes beside that, the
  // forward pass above all, is the same for all allocations.
  static Times PredictedTimes(const Report& report, const TimedProblem& problem,
                              const Compared& compared) {
    const double now = PredictIterationNs(problem, compared.now);
    const double beside = std::max(0.0, report.iteration_ns - now);
    return {.best = beside + PredictIterationNs(problem, compared.best),
            .now = beside + now,
            .raw = beside + PredictIterationNs(problem, compared.raw)};
  }

  // Each tensor's last level is raw.
  static std::string CodecOf(const TensorReport& tensor, size_t level) {
    return level < tensor.levels.size() ? tensor.levels[level].codec : "none";
  }

  static size_t LevelOf(const TensorReport& tensor, const std::string& codec) {
    const auto level = std::ranges::find(tensor.levels, codec, &LevelReport::codec);
    return static_cast<size_t>(level - tensor.levels.begin());
  }

  static Allocation RawOf(const Measured& measured) {
    Allocation raw;
    for (const TensorReport* tensor : measured.tensors) raw.push_back(tensor->levels.size());
    return raw;
  }

  static Allocation AllocationOf(const Measured& measured,
                                 const std::map<KeyId, std::string>& codecs) {
    Allocation allocation;
    for (const TensorReport* tensor : measured.tensors) {
      const auto codec = codecs.find(tensor->tensor.key);
      allocation.push_back(
          LevelOf(*tensor, codec == codecs.end() ? std::string("none") : codec->second));
    }
    return allocation;
  }

  static double ErrorOf(const Measured& measured, const Allocation& allocation) {
    double error = 0;
    for (size_t i = 0; i < allocation.size(); ++i) {
      error += measured.problem.tensors[i].levels[allocation[i]].error;
    }
    return error;
  }

  static bool WithinBudget(const Measured& measured, const Allocation& allocation,
                           double tolerated = kTolerated) {
    return ErrorOf(measured, allocation) <=
           Ceiling({.budget = tolerated * measured.problem.budget});
  }

  Measured MeasuredIn(const Report& report) const {
    Measured measured;
    measured.problem = {.link = report.link, .workers = report.workers};
    for (const TensorReport& tensor : report.tensors) {
      measured.tensors.push_back(&tensor);
      measured.problem.tensors.push_back(TimedTensorOf(report, tensor, RawLevel::kLast));
      measured.fixed.push_back(LevelOf(tensor, options_.budget_codec));
      if (!tensor.levels.empty()) measured.input_norm2 += tensor.input_norm2;
    }
    if (options_.budget_codec.empty()) {
      measured.problem.budget = options_.budget_part * measured.input_norm2;
    } else {
      measured.problem.budget = ErrorOf(measured, measured.fixed);
    }
    return measured;
  }

  // Returns `now` with tensors raw, the largest first, as long as the time is within a probe's
  // cost; `now` if that makes too few bytes to tell more of the link.
  static Allocation ProbeOf(const Report& report, const Measured& measured, const Allocation& now) {
    TimedProblem problem = measured.problem;
    problem.link.ns_per_byte *= kProbeDoubt;
    const double predicted = PredictIterationNs(problem, now);
    const double allowed = predicted + kProbeCost * std::max(report.iteration_ns, predicted);
    std::vector<size_t> largest_first(now.size());
    std::iota(largest_first.begin(), largest_first.end(), 0);
    std::ranges::stable_sort(largest_first, std::ranges::greater(),
                             [&](size_t i) { return measured.tensors[i]->tensor.elements; });
    Allocation probe = now;
    for (const size_t i : largest_first) {
      const size_t before = std::exchange(probe[i], measured.tensors[i]->levels.size());
      if (PredictIterationNs(problem, probe) > allowed) probe[i] = before;
    }
    const bool tells = PushBytes(problem, probe) >= kProbeBytes * PushBytes(problem, now);
    return tells ? probe : now;
  }

  static double PushBytes(const TimedProblem& problem, const Allocation& allocation) {
    double bytes = 0;
    for (size_t i = 0; i < allocation.size(); ++i) {
      bytes += problem.tensors[i].levels[allocation[i]].push_bytes;
    }
    return bytes;
  }

  PolicyDecision Take(const Report& report, const Measured& measured, const Allocation& best,
                      const Times& times, uint64_t from_round) {
    changed_ = true;
    PolicyDecision decision{
        .from_round = from_round,
        .reason = absl::StrFormat(
            "joint: %.2f ms an iteration predicted instead of %.2f, raw %.2f, measured %.2f; error "
            "%.3g of |x|^2, budget %.3g",
            times.best / 1e6, times.now / 1e6, times.raw / 1e6, report.iteration_ns / 1e6,
            Part(ErrorOf(measured, best), measured), Part(measured.problem.budget, measured))};
    if (!WithinBudget(measured, AllocationOf(measured, in_force_))) {
      decision.reason += ", which what was in force exceeds";
    }
    for (size_t i = 0; i < best.size(); ++i) {
      const TensorReport& tensor = *measured.tensors[i];
      const KeyId key = tensor.tensor.key;
      if (tensor.tensor.elements < options_.min_elements) continue;
      const TimedLevel& level = measured.problem.tensors[i].levels[best[i]];
      in_force_[key] = CodecOf(tensor, best[i]);
      decision.tensors[key] = {
          .steps = {{.codec = in_force_[key]}},
          .reason = absl::StrFormat(
              "%.0f bytes, %.3g ms to encode; error %.3g of |x|^2 of all tensors", level.push_bytes,
              level.encode_ns / 1e6, Part(level.error, measured))};
    }
    for (const auto& [key, codec] : in_force_) {
      decision.tensors.try_emplace(
          key, TensorDecision{.steps = {{.codec = codec}}, .reason = "not measured: as before"});
    }
    return decision;
  }

  static double Part(double error, const Measured& measured) {
    return measured.input_norm2 > 0 ? error / measured.input_norm2 : 0;
  }

  const JointOptions options_;
  const ReportPlan plan_;
  std::map<KeyId, std::string> in_force_;
  uint64_t quiet_windows_ = 0;  // since a decision changed something
  bool changed_ = false;        // the newest window's report brought a decision, no probe
  bool probing_ = false;        // the decision in force is a probe
  ChangeTrial trial_;
};

// Reads budget=NUMBER or budget=CODEC.
absl::Status ReadBudget(const SpecText& spec, JointOptions& made) {
  const OptionReader options(OwnerOf(spec), spec.options);
  const std::string text = options.Text("budget", kBudget);
  double part = 0;
  const char* const end = text.data() + text.size();
  if (const auto read = std::from_chars(text.data(), end, part);
      read.ec == std::errc() && read.ptr == end) {
    if (!(part > 0 && part < 1e9)) {
      return options.BadValue("budget", "a number over 0, or a codec", text);
    }
    made.budget_part = part;
    return absl::OkStatus();
  }
  SLIMPS_ASSIGN_OR_RETURN(const SpecText codec, InnerCodecOption(spec, "budget", kBudget));
  made.budget_codec = ToCodecSpec(codec);
  const auto same = [&](const SpecText& other) { return ToCodecSpec(other) == made.budget_codec; };
  if (std::ranges::none_of(made.codecs, same)) made.codecs.push_back(codec);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Controller>> MakeJoint(const SpecText& spec) {
  const OptionReader options(OwnerOf(spec), spec.options);
  static constexpr std::string_view kOptions[] = {"budget", "codecs", "every", "min_elements"};
  SLIMPS_RETURN_IF_ERROR(options.CheckNames(kOptions));
  JointOptions made{.spec = spec};
  const std::string owner = absl::StrCat(OwnerOf(spec), ", option codecs");
  const std::vector<std::string> texts = absl::StrSplit(options.Text("codecs", kCodecs), '|');
  for (const std::string& text : texts) {
    SLIMPS_ASSIGN_OR_RETURN(SpecText codec, ParseInnerCodec(owner, text));
    if (codec.name != "none") made.codecs.push_back(std::move(codec));
  }
  SLIMPS_RETURN_IF_ERROR(ReadBudget(spec, made));
  SLIMPS_ASSIGN_OR_RETURN(made.every, EveryOption(spec, 20));
  SLIMPS_ASSIGN_OR_RETURN(made.min_elements, MinElementsOption(spec));
  return std::make_unique<Joint>(std::move(made));
}

}  // namespace slimps
