// SPDX-License-Identifier: Apache-2.0
#include "worker/plan/policy_side.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compress/policy/controllers/messages.h"
#include "compress/policy/measured_rounds.h"
#include "proto/base/status_macros.h"
#include "proto/limits.h"

namespace slimps {
namespace {

// The most that wire::PolicyTensor and wire::PolicyLevel take on the wire, and what a controller's
// state has of a tensor.
constexpr size_t kTensorReportBytes = 72, kLevelReportBytes = 40, kTensorStateBytes = 128;

// False if a tensor of this shape travels as it would without the codec.
bool Takes(const Codec& codec, const TensorInfo& tensor) {
  const int64_t shape[] = {static_cast<int64_t>(tensor.rows), static_cast<int64_t>(tensor.columns)};
  const auto elements = static_cast<int64_t>(tensor.elements);
  return tensor.rows > 0 ? codec.Takes(shape) : codec.Takes({&elements, 1});
}

bool KeyRises(const TensorInfo& a, const TensorInfo& b) { return a.key < b.key; }

}  // namespace

TensorInfo TensorInfoOf(const TensorPlan& tensor) {
  TensorInfo info = TensorInfoOf(tensor.key, tensor.shape());
  info.elements = tensor.elements;
  return info;
}

TensorInfo TensorInfoOf(const Key& key, std::span<const int64_t> shape) {
  TensorInfo info{.key = key.id(), .elements = 1};
  for (const int64_t extent : shape) info.elements *= static_cast<uint64_t>(extent);
  if (shape.size() < 2) return info;
  info.rows = static_cast<uint64_t>(shape[0]);
  info.columns = info.elements / info.rows;
  return info;
}

absl::Status PolicySide::Start(const std::string& policy, uint32_t workers) {
  policy_ = policy;
  workers_ = workers;
  if (policy == kThreshold) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<Controller>> made = MakeController(policy);
  if (!made.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("policy ", policy, ": ", made.status().message(),
                                                   " (or threshold, which has no options)"));
  }
  if (const uint64_t every = (*made)->plan().every_rounds;
      every > 0 && every < MeasuredRounds::kShortestEvery) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy ", policy, ": a window of ", every, " rounds, expected at least ",
                     MeasuredRounds::kShortestEvery, ", in which an answer can come"));
  }
  controller_ = *std::move(made);
  return absl::OkStatus();
}

absl::StatusOr<wire::CodecMap> PolicySide::Decide(std::vector<TensorInfo> tensors) const {
  std::ranges::sort(tensors, KeyRises);
  // A controller begins once, and keys may be initialised in several calls.
  SLIMPS_ASSIGN_OR_RETURN(const std::unique_ptr<Controller> fresh, MakeController(policy_));
  SLIMPS_ASSIGN_OR_RETURN(const PolicyDecision first, fresh->Begin(tensors));
  wire::CodecMap map;
  PutDecision(first, &map);
  map.set_policy(policy_);
  return map;
}

absl::Status PolicySide::CheckReportSize(size_t tensors, size_t levels) const {
  const auto check = [&](const char* what, size_t bytes, size_t most) -> absl::Status {
    if (bytes <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "policy ", policy_, ": ", what, " of ", tensors, " tensors takes up to ", bytes,
        " bytes, expected at most ", most, "; a higher min_elements leaves small tensors out"));
  };
  SLIMPS_RETURN_IF_ERROR(check("a worker's report",
                               tensors * kTensorReportBytes + levels * kLevelReportBytes,
                               kWholeLimits.max_header_bytes - kWholeLimits.max_state_bytes));
  return check("its state", tensors * kTensorStateBytes, kWholeLimits.max_state_bytes);
}

void PolicySide::Begin(std::vector<TensorInfo> tensors, const wire::CodecMap& first) {
  tensors_ = std::move(tensors);
  std::ranges::sort(tensors_, KeyRises);
  coming_.assign({PolicyDecisionOf(first)});
  decisions_.clear();
  Keep(first);
}

absl::Status PolicySide::CheckExchangeable(const Codec& codec) const {
  const auto refuse = [&](const char* expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy ", policy_, ": codec ", codec.spec().name, ": expected ", expected,
                     ", so that pushes can change to another codec in mid-run"));
  };
  if (codec.combine() != Combine::kSum) return refuse("one whose gradients the servers add up");
  if (codec.wants_momentum()) return refuse("one without momentum of its own");
  if (codec.phases() == nullptr) return absl::OkStatus();
  if (plan().ladders) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy ", policy_, ": codec ", codec.spec().name,
                     ": expected one whose pushes take no phases, in which all workers take part; "
                     "here each worker chooses for itself"));
  }
  return absl::OkStatus();
}

absl::StatusOr<const Codec*> PolicySide::FindCodec(const std::string& spec,
                                                   CodecTable* codecs) const {
  SLIMPS_ASSIGN_OR_RETURN(const Codec* const codec, codecs->Find(spec));
  SLIMPS_RETURN_IF_ERROR(CheckExchangeable(*codec));
  return codec;
}

absl::StatusOr<std::vector<PolicySide::Level>> PolicySide::LevelsOf(const TensorInfo& tensor,
                                                                    CodecTable* codecs) const {
  std::vector<Level> levels;
  for (std::string& name : controller_->Candidates(tensor)) {
    SLIMPS_ASSIGN_OR_RETURN(const Codec* const codec, FindCodec(name, codecs));
    if (codec->format() == PayloadFormat::kLowRank && codec->phases() == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("policy ", policy_, ": codec ", codec->spec().name,
                       ": expected one whose error a sample of blocks tells; this one needs whole "
                       "matrices"));
    }
    if (Takes(*codec, tensor)) levels.push_back({codec, std::move(name)});
  }
  return levels;
}

absl::StatusOr<std::vector<const Codec*>> PolicySide::ChoicesOf(const TensorInfo& tensor,
                                                                CodecTable* codecs) const {
  std::vector<const Codec*> choices;
  for (const std::string& name : controller_->Choices(tensor)) {
    SLIMPS_ASSIGN_OR_RETURN(const Codec* const codec, FindCodec(name, codecs));
    choices.push_back(codec);
  }
  return choices;
}

absl::StatusOr<std::vector<const Codec*>> PolicySide::CheckCodecs(CodecTable* codecs) const {
  // Larger than any min_elements, and square enough for every rank.
  const TensorInfo matrix{.elements = uint64_t{1} << 40, .rows = 1 << 20, .columns = 1 << 20};
  SLIMPS_RETURN_IF_ERROR(LevelsOf(matrix, codecs).status());
  SLIMPS_ASSIGN_OR_RETURN(const wire::CodecMap first, Decide({matrix}));
  SLIMPS_RETURN_IF_ERROR(FindCodecs(PolicyDecisionOf(first), codecs));
  SLIMPS_ASSIGN_OR_RETURN(std::vector<const Codec*> choices, ChoicesOf(matrix, codecs));
  std::set<std::string> of_phases;
  for (const Codec* codec : choices) {
    if (codec->phases() != nullptr) of_phases.insert(codec->spec().name);
  }
  if (of_phases.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "policy ", policy_, ": codecs ", absl::StrJoin(of_phases, " and "),
        ": expected at most one whose pushes take phases, since each cuts tensors its own way"));
  }
  return choices;
}

absl::Status PolicySide::FindCodecs(const PolicyDecision& decision, CodecTable* codecs) const {
  for (const auto& [key, tensor] : decision.tensors) {
    for (const LadderStep& step : tensor.steps) {
      SLIMPS_RETURN_IF_ERROR(FindCodec(step.codec, codecs).status());
    }
  }
  return absl::OkStatus();
}

void PolicySide::Follow(const wire::CodecMap& map) {
  coming_.push_back(PolicyDecisionOf(map));
  resumed_.reset();
  Keep(map);
}

void PolicySide::Keep(const wire::CodecMap& map) {
  const auto same = [&](const wire::CodecMap& last) {
    return last.reason() == map.reason() &&
           PolicyDecisionOf(last).tensors == PolicyDecisionOf(map).tensors;
  };
  if (!decisions_.empty() && same(decisions_.back())) return;
  if (decisions_.size() == kKeptDecisions) decisions_.pop_front();
  decisions_.push_back(map);
  decisions_.back().clear_policy_state();
}

void PolicySide::BeginRound(uint64_t round) {
  if (round <= round_) return;
  round_ = round;
  while (!coming_.empty() && coming_.front().from_round <= round) {
    if (!choice_.has_value()) {
      choice_.emplace(coming_.front(), workers_);
    } else {
      choice_->Follow(coming_.front());
    }
    coming_.pop_front();
  }
  step_ = choice_.has_value() && choice_->steps() > 0 ? choice_->Choose() : 0;
}

void PolicySide::EndRound(std::span<const double> gains, absl::Duration iteration) {
  iteration_times_.Add(absl::ToInt64Nanoseconds(iteration));
  if (!choice_.has_value() || choice_->steps() == 0) return;
  choice_->Observe(gains);
  choice_->EndIteration(step_, absl::ToDoubleNanoseconds(iteration));
}

wire::SavedPolicy PolicySide::Save(uint64_t rounds, const wire::CodecMap& newest) const {
  wire::SavedPolicy saved;
  saved.set_policy(policy_);
  saved.set_rounds(rounds_before_ + rounds);
  saved.set_reported_windows(reported_);
  for (const wire::CodecMap& map : decisions_) {
    if (map.from_round() <= rounds) saved.clear_decisions();
    wire::CodecMap* const kept = saved.add_decisions();
    *kept = map;
    kept->set_from_round(map.from_round() - std::min(map.from_round(), rounds));
  }
  wire::CodecMap* const last = saved.mutable_decisions(saved.decisions_size() - 1);
  last->set_version(newest.version());
  last->set_policy_state(newest.policy_state());
  if (choice_.has_value()) PutSteps(choice_->Peek(), &saved);
  return saved;
}

void PolicySide::Resume(const wire::SavedPolicy& saved) {
  rounds_before_ = saved.rounds();
  reported_ = saved.reported_windows();
  coming_.clear();
  decisions_.clear();
  for (const wire::CodecMap& map : saved.decisions()) {
    coming_.push_back(PolicyDecisionOf(map));
    Keep(map);
  }
  choice_.emplace(coming_.front(), workers_);
  coming_.pop_front();
  choice_->Resume(StepsOf(saved));
  choice_->Observe(std::vector<double>(saved.gains().begin(), saved.gains().end()));
  const wire::CodecMap& newest = *saved.decisions().rbegin();
  // Before the scheduler's first decision there is no state: its controller begins anew.
  if (!newest.policy_state().empty()) resumed_ = newest;
}

uint64_t PolicySide::WindowBefore(uint64_t round) const {
  const uint64_t every = plan().every_rounds;
  return every == 0 ? 0 : (round + rounds_before_ - 1) / every;
}

bool PolicySide::IsDue(uint64_t round) const { return WindowBefore(round) > reported_; }

void PolicySide::PutReport(uint64_t round, Report measured, wire::PolicyReport* report) {
  reported_ = WindowBefore(round);
  const uint64_t every = plan().every_rounds;
  measured.round = reported_ * every;
  measured.rounds = every;
  const SampleWindow times = std::exchange(iteration_times_, SampleWindow());
  if (!times.empty()) measured.iteration_ns = static_cast<double>(times.average());
  if (choice_.has_value()) measured.steps = choice_->TakeReport();
  std::map<KeyId, TensorReport> seen;
  for (TensorReport& tensor : measured.tensors) seen[tensor.tensor.key] = std::move(tensor);
  std::vector<TensorReport> all;
  for (const TensorInfo& tensor : tensors_) {
    const auto found = seen.find(tensor.key);
    all.push_back(found == seen.end() ? TensorReport{.tensor = tensor} : std::move(found->second));
  }
  measured.tensors = std::move(all);
  report->set_policy(policy_);
  report->set_rounds_before(rounds_before_);
  if (resumed_.has_value()) *report->mutable_resumed() = *resumed_;
  slimps::PutReport(measured, report);
}

}  // namespace slimps
