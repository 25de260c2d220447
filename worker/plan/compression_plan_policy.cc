// SPDX-License-Identifier: Apache-2.0
// CompressionPlan: what it does for a policy that adapts.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/policy/controllers/messages.h"
#include "compress/policy/measured_rounds.h"
#include "proto/base/status_macros.h"
#include "worker/plan/compression_plan.h"
#include "worker/plan/decision_proto.h"

namespace slimps {

absl::Status CompressionPlan::BeginPolicy(const std::vector<const TensorPlan*>& tensors) {
  if (!adapts_) return absl::OkStatus();
  MutexLock lock(&mutex_);
  if (policy_.is_resumed()) return absl::OkStatus();
  std::vector<TensorInfo> infos;
  size_t levels = 0;
  for (const TensorPlan* tensor : tensors) {
    infos.push_back(TensorInfoOf(*tensor));
    SLIMPS_ASSIGN_OR_RETURN(const auto found, policy_.LevelsOf(infos.back(), &codecs_));
    levels += found.size();
  }
  SLIMPS_RETURN_IF_ERROR(policy_.CheckReportSize(infos.size(), levels));
  SLIMPS_ASSIGN_OR_RETURN(wire::CodecMap map, policy_.Decide(infos));
  SLIMPS_RETURN_IF_ERROR(policy_.FindCodecs(PolicyDecisionOf(map), &codecs_));
  SetPullDecision(pull_.newest(), &map);
  policy_.Begin(std::move(infos), map);
  push_.StartPolicy(CodecMap(PushDecisionOf(map)));
  decision_ = std::move(map);
  return absl::OkStatus();
}

absl::Status CompressionPlan::OnPolicyMap(const wire::CodecMap& map) {
  if (!adapts_ || map.policy() != options_.policy) {
    return absl::InvalidArgumentError(absl::StrCat("codec map: decided by policy \"", map.policy(),
                                                   "\", expected \"", options_.policy, "\""));
  }
  SLIMPS_RETURN_IF_ERROR(policy_.FindCodecs(PolicyDecisionOf(map), &codecs_));
  const bool is_new = map.version() > push_.newest().version;
  SLIMPS_RETURN_IF_ERROR(push_.Apply(PushDecisionOf(map)));
  if (is_new) policy_.Follow(map);
  return absl::OkStatus();
}

std::vector<wire::CodecMap> CompressionPlan::decisions() const {
  MutexLock lock(&mutex_);
  return {policy_.decisions().begin(), policy_.decisions().end()};
}

absl::StatusOr<wire::SavedPolicy> CompressionPlan::SavePolicy(uint64_t rounds,
                                                              absl::Duration timeout) {
  MutexLock lock(&mutex_);
  const auto answered = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !failed_.ok() || !awaited_.has_value();
  };
  if (!decided_.Await(&mutex_, timeout, answered)) {
    return absl::DeadlineExceededError(
        absl::StrCat("policy ", options_.policy, ": no decision within ",
                     absl::FormatDuration(timeout), "; not every worker has reported"));
  }
  SLIMPS_RETURN_IF_ERROR(failed_);
  if (!decision_.has_value()) return wire::SavedPolicy();  // there are no keys yet
  return policy_.Save(rounds, *decision_);
}

absl::Status CompressionPlan::ResumePolicy(const wire::SavedPolicy& saved) {
  MutexLock lock(&mutex_);
  if (saved.decisions_size() == 0 || !adapts_) {
    return absl::InvalidArgumentError("saved policy: expected a decision, got none");
  }
  for (const wire::CodecMap& map : saved.decisions()) {
    SLIMPS_RETURN_IF_ERROR(policy_.FindCodecs(PolicyDecisionOf(map), &codecs_));
  }
  CodecMap decided(PushDecisionOf(saved.decisions(0)));
  for (int i = 1; i < saved.decisions_size(); ++i) {
    SLIMPS_RETURN_IF_ERROR(decided.Apply(PushDecisionOf(saved.decisions(i))));
  }
  push_.StartPolicy(std::move(decided));
  policy_.Resume(saved);
  decision_ = *saved.decisions().rbegin();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PolicySide::Level>> CompressionPlan::LevelsOf(const TensorPlan& tensor) {
  if (!adapts_) return std::vector<PolicySide::Level>();
  MutexLock lock(&mutex_);
  return policy_.LevelsOf(TensorInfoOf(tensor), &codecs_);
}

absl::StatusOr<std::vector<const Codec*>> CompressionPlan::ChoicesOf(const TensorInfo& tensor) {
  MutexLock lock(&mutex_);
  return policy_.ChoicesOf(tensor, &codecs_);
}

absl::StatusOr<std::vector<const Codec*>> CompressionPlan::StepsFor(const TensorPlan& tensor,
                                                                    uint64_t round) {
  std::vector<const Codec*> steps;
  MutexLock lock(&mutex_);
  for (const std::string& name : push_.StepsFor(tensor, round)) {
    SLIMPS_ASSIGN_OR_RETURN(const Codec* const codec, codecs_.Find(name));
    steps.push_back(codec);
  }
  return steps;
}

void CompressionPlan::BeginRound(uint64_t round, const std::optional<EndedRound>& before) {
  MutexLock lock(&mutex_);
  if (before.has_value()) policy_.EndRound(before->gains, before->iteration);
  policy_.BeginRound(round);
}

bool CompressionPlan::PolicyReportIsDue(uint64_t round) const {
  MutexLock lock(&mutex_);
  return adapts_ && policy_.IsDue(round);
}

wire::ThresholdReport CompressionPlan::TakePolicyReport(uint64_t round, Report measured) {
  if (options_.learning_rate != nullptr) measured.learning_rate = options_.learning_rate(round - 1);
  measured.pulls_follow_pushes = options_.pulls_follow_policy;
  MutexLock lock(&mutex_);
  wire::ThresholdReport report;
  report.set_generation(policy_.WindowBefore(round));
  report.set_ready_round(round + 1);
  policy_.PutReport(round, std::move(measured), report.mutable_policy());
  for (wire::PolicyTensor& tensor : *report.mutable_policy()->mutable_tensors()) {
    const uint64_t raw_bytes = tensor.elements() * sizeof(float);
    const auto codec = codecs_.Find(std::string(pull_.newest().CodecFor(tensor.key(), raw_bytes)));
    if (!codec.ok() || options_.pulls_follow_policy) continue;
    tensor.set_pull_bytes((*codec)->MaxPayloadBytes(tensor.elements()));
  }
  push_.ForgetBefore(round - std::min(round, policy_.plan().every_rounds));
  awaited_ = Awaited{.report = report,
                     .from_round = report.ready_round() + MeasuredRounds::kAnnounceRounds};
  return report;
}

}  // namespace slimps
