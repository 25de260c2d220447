// SPDX-License-Identifier: Apache-2.0
#include "worker/plan/compression_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/policy/measured_rounds.h"
#include "compress/policy/table_rows.h"
#include "proto/base/status_macros.h"
#include "worker/plan/decision_proto.h"

namespace slimps {
namespace {

constexpr const char* kRaw = PlanSide::kRaw;

absl::Status CheckRemeasureEvery(uint64_t rounds) {
  if (rounds == 0 || rounds >= MeasuredRounds::kShortestEvery) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("remeasure_every=", rounds,
                                                 ": expected 0 (never) or at least ",
                                                 MeasuredRounds::kShortestEvery, " rounds"));
}

}  // namespace

CompressionPlan::CompressionPlan(const CompressionPlanOptions& options)
    : options_(options),
      schedule_(static_cast<uint64_t>(std::max(options.pre_steps, 0))),
      push_(wire::PUSH, &schedule_),
      pull_(wire::PULL, &schedule_) {}

absl::StatusOr<std::unique_ptr<CompressionPlan>> CompressionPlan::Create(
    const CompressionPlanOptions& options) {
  SLIMPS_RETURN_IF_ERROR(CheckRemeasureEvery(options.remeasure_every));
  auto plan = std::unique_ptr<CompressionPlan>(new CompressionPlan(options));
  MutexLock lock(&plan->mutex_);
  PlanSide& push = plan->push_;
  PlanSide& pull = plan->pull_;
  SLIMPS_ASSIGN_OR_RETURN(plan->compressor_, plan->codecs_.Find(options.compression));
  SLIMPS_ASSIGN_OR_RETURN(const Codec* const pull_compressor,
                          plan->codecs_.Find(options.pull_compression));
  SLIMPS_RETURN_IF_ERROR(push.Start(options.compression, *plan->compressor_,
                                    options.fixed_threshold_bytes, options.table));
  SLIMPS_RETURN_IF_ERROR(pull.Start(options.pull_compression, *pull_compressor,
                                    options.fixed_pull_threshold_bytes, options.pull_table));
  SLIMPS_RETURN_IF_ERROR(plan->policy_.Start(options.policy, options.workers));
  plan->adapts_ = plan->policy_.on();
  if (plan->adapts_) {
    plan->report_plan_ = plan->policy_.plan();
    SLIMPS_ASSIGN_OR_RETURN(const auto choices, plan->policy_.CheckCodecs(&plan->codecs_));
    for (const Codec* codec : choices) plan->takes_phases_ |= codec->phases() != nullptr;
  }
  plan->takes_phases_ |= plan->compressor_->phases() != nullptr;
  const bool profiles = push.profiled() || pull.profiled();
  const bool automatic = push.automatic() || pull.automatic();
  plan->schedule_.Start(profiles, automatic ? options.remeasure_every : 0);
  plan->is_decided_ = !profiles;
  if (!profiles && (options.compression != kRaw || options.pull_compression != kRaw)) {
    wire::CodecMap& decision = plan->decision_.emplace();
    SetPushDecision(push.newest(), &decision);
    SetPullDecision(pull.newest(), &decision);
    AddRows(push.profile(), wire::PUSH, decision.mutable_table());
    AddRows(pull.profile(), wire::PULL, decision.mutable_table());
  }
  return plan;
}

// ---- what a round does --------------------------------------------------------------------------

bool CompressionPlan::IsProfiled(uint64_t round) const {
  MutexLock lock(&mutex_);
  return schedule_.profiling() && round <= schedule_.pre_steps();
}

bool CompressionPlan::IsMeasured(uint64_t round) const {
  if (IsProfiled(round)) return true;
  MutexLock lock(&mutex_);
  return schedule_.pairs().KindOf(round) != RoundKind::kNotMeasured;
}

bool CompressionPlan::Measures(const PlanSide& side, const TensorPlan& tensor,
                               uint64_t round) const {
  if (options_.is_measured != nullptr && !options_.is_measured(tensor)) return false;
  return side.Measures(tensor, round);
}

bool CompressionPlan::MeasuresPush(const TensorPlan& tensor, uint64_t round) {
  MutexLock lock(&mutex_);
  schedule_.See(tensor);
  return Measures(push_, tensor, round);
}

bool CompressionPlan::MeasuresPull(const TensorPlan& tensor, uint64_t round) {
  // A tensor in half precision is pulled as it is in every round: there is nothing to compare.
  if (tensor.info.dtype() != wire::FLOAT32) return false;
  MutexLock lock(&mutex_);
  return Measures(pull_, tensor, round);
}

bool CompressionPlan::MayGoOn(uint64_t round) const {
  if (!failed_.ok()) return true;
  if (!is_decided_) return round <= schedule_.pre_steps() + 1;
  return !awaited_.has_value() || round < awaited_->from_round;
}

absl::StatusOr<const Codec*> CompressionPlan::CodecFor(const TensorPlan& tensor, uint64_t round,
                                                       absl::Duration timeout) {
  MutexLock lock(&mutex_);
  schedule_.See(tensor);
  const auto may_go_on = [this, round]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return MayGoOn(round); };
  if (!decided_.Await(&mutex_, timeout, may_go_on)) {
    if (!is_decided_ || takes_phases_ || ++awaited_->timeouts < kPatience) {
      return absl::DeadlineExceededError(absl::StrCat(
          "key ", tensor.key.typed_name(), " round ", round, ": no threshold decision within ",
          absl::FormatDuration(timeout), "; not every worker has reported what it measured"));
    }
    // Goes on with what is in force. That is safe: servers take every format, and pulls say what
    // they are.
    awaited_.reset();
    decided_.NotifyAll();
  }
  SLIMPS_RETURN_IF_ERROR(failed_);
  const std::string spec = push_.SpecFor(tensor, round, adapts_ ? policy_.step() : 0);
  if (spec != kRaw) {
    SLIMPS_ASSIGN_OR_RETURN(const Codec* const codec, codecs_.Find(spec));
    if (codec->Takes(tensor.shape())) return codec;
  }
  return codecs_.Find(OwnPrecision(tensor.info.dtype()));
}

std::string CompressionPlan::ChangeCodecFor(const TensorPlan& tensor, uint64_t round) {
  MutexLock lock(&mutex_);
  const std::string spec = options_.pulls_follow_policy
                               ? push_.SpecFor(tensor, round, policy_.step())
                               : pull_.SpecFor(tensor, round);
  if (spec == kRaw) return "";
  const absl::StatusOr<const Codec*> codec = codecs_.Find(spec);
  return codec.ok() && !(*codec)->Takes(tensor.shape()) ? "" : spec;
}

// ---- what was measured --------------------------------------------------------------------------

void CompressionPlan::RecordPush(const TensorPlan& tensor, uint64_t round,
                                 absl::Duration communication, absl::Duration coding) {
  MutexLock lock(&mutex_);
  if (!Measures(push_, tensor, round)) return;
  // The round's choice tells, not the codec that pushed: a tensor's own precision may be the very
  // codec that is compared with.
  const bool compressed = push_.SpecFor(tensor, round) == push_.settled_codec();
  push_.Record(tensor, round, compressed ? StepKind::kCompressed : StepKind::kRaw, communication,
               coding);
}

void CompressionPlan::RecordPull(const TensorPlan& tensor, uint64_t round,
                                 absl::Duration communication, absl::Duration coding) {
  MutexLock lock(&mutex_);
  if (!Measures(pull_, tensor, round)) return;
  const bool raw = pull_.SpecFor(tensor, round) == kRaw;
  pull_.Record(tensor, round, raw ? StepKind::kRaw : StepKind::kCompressed, communication, coding);
}

// ---- reports and decisions ----------------------------------------------------------------------

wire::ThresholdReport CompressionPlan::ProfileReport() {
  schedule_.EndProfile();
  wire::ThresholdReport report;
  push_.ReportProfile(&report);
  pull_.ReportProfile(&report);
  // Round pre_steps + 1 goes out while the tables travel, so that no worker waits if they are
  // quick.
  report.set_ready_round(schedule_.pre_steps() + 1);
  awaited_ = Awaited{.report = report, .from_round = report.ready_round() + 1};
  return report;
}

wire::ThresholdReport CompressionPlan::PairReport(uint64_t pair, uint64_t round) {
  reported_pair_ = pair;
  wire::ThresholdReport report;
  push_.ReportPairs(round, &report);
  pull_.ReportPairs(round, &report);
  report.set_ready_round(round + 1);
  report.set_generation(pair);
  awaited_ = Awaited{.report = report,
                     .from_round = report.ready_round() + MeasuredRounds::kAnnounceRounds};
  return report;
}

std::optional<wire::ThresholdReport> CompressionPlan::TakeReport(uint64_t round) {
  MutexLock lock(&mutex_);
  if (schedule_.profiling()) {
    if (round <= schedule_.pre_steps()) return std::nullopt;
    return ProfileReport();
  }
  const MeasuredRounds& pairs = schedule_.pairs();
  const uint64_t pair = pairs.PairOf(round);
  if (!is_decided_ || pair <= reported_pair_ || round < pairs.ReportRoundOf(pair)) {
    return std::nullopt;
  }
  return PairReport(pair, round);
}

std::optional<wire::ThresholdReport> CompressionPlan::UnansweredReport() const {
  MutexLock lock(&mutex_);
  if (!awaited_.has_value()) return std::nullopt;
  return awaited_->report;
}

std::vector<wire::ThresholdReport> CompressionPlan::TakeLastReports() {
  MutexLock lock(&mutex_);
  std::vector<wire::ThresholdReport> reports;
  if (schedule_.profiling()) reports.push_back(ProfileReport());
  if (schedule_.pairs().on() || (adapts_ && policy_.plan().every_rounds > 0)) {
    reports.emplace_back().set_generation(MeasuredRounds::kLastGeneration);
  }
  return reports;
}

absl::Status CompressionPlan::OnCodecMap(const wire::CodecMap& map) {
  MutexLock lock(&mutex_);
  // The answer to a repeated report may come after a newer decision.
  if (decision_.has_value() && map.version() < decision_->version()) return absl::OkStatus();
  // decision() tells what is in force: of a side that the scheduler does not decide, this worker's
  // own choice.
  wire::CodecMap decision = map;
  if (!map.policy().empty() || adapts_) {
    SLIMPS_RETURN_IF_ERROR(OnPolicyMap(map));
  } else if (push_.automatic() && !map.codec().empty()) {
    SLIMPS_RETURN_IF_ERROR(codecs_.FindAll(map));
    SLIMPS_RETURN_IF_ERROR(push_.Apply(PushDecisionOf(map)));
  } else {
    SetPushDecision(push_.newest(), &decision);
  }
  if (pull_.automatic() && !map.pull_codec().empty()) {
    SLIMPS_RETURN_IF_ERROR(codecs_.Find(map.pull_codec()).status());
    SLIMPS_RETURN_IF_ERROR(pull_.Apply(PullDecisionOf(map)));
  } else {
    SetPullDecision(pull_.newest(), &decision);
  }
  decision_ = std::move(decision);
  schedule_.EndProfile();
  is_decided_ = true;
  // Version g + 1 answers generation g.
  if (awaited_.has_value() && map.version() > awaited_->report.generation()) awaited_.reset();
  decided_.NotifyAll();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<wire::CodecMap>> CompressionPlan::SettledDecision(
    absl::Duration timeout) {
  MutexLock lock(&mutex_);
  const auto answered = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !failed_.ok() || !awaited_.has_value();
  };
  if (!decided_.Await(&mutex_, timeout, answered)) {
    return absl::DeadlineExceededError(
        absl::StrCat("no threshold decision within ", absl::FormatDuration(timeout),
                     "; not every worker has reported what it measured"));
  }
  SLIMPS_RETURN_IF_ERROR(failed_);
  return decision_;
}

absl::Status CompressionPlan::ResumeDecision(const wire::CodecMap& decision, uint64_t rounds) {
  SLIMPS_RETURN_IF_ERROR(OnCodecMap(decision));
  MutexLock lock(&mutex_);
  reported_pair_ = schedule_.pairs().PairOf(rounds);  // the job before has reported it
  return absl::OkStatus();
}

void CompressionPlan::Fail(const absl::Status& why) {
  MutexLock lock(&mutex_);
  if (failed_.ok()) failed_ = why;
  decided_.NotifyAll();
}

std::optional<wire::CodecMap> CompressionPlan::decision() const {
  MutexLock lock(&mutex_);
  return decision_;
}

}  // namespace slimps
