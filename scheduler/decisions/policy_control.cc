// SPDX-License-Identifier: Apache-2.0
#include "scheduler/decisions/policy_control.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/policy/controllers/messages.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// The limits of one report. They bound what the scheduler copies.
constexpr int kMaxCodecs = 256;
constexpr size_t kMaxCodecName = 256;  // bytes

bool HasMeasured(const Report& report) {
  return !report.steps.empty() || std::ranges::any_of(report.tensors, [](const TensorReport& one) {
    return one.input_norm2 > 0 || !one.levels.empty();
  });
}

// Checks what a merged report could not afford.
absl::Status CheckSize(uint32_t worker, const wire::PolicyReport& report) {
  const auto refuse = [&](const std::string& what, uint64_t expected, uint64_t got) {
    return absl::InvalidArgumentError(absl::StrCat("policy report of worker ", worker, ": ", what,
                                                   ": expected at most ", expected, ", got ", got));
  };
  if (report.codecs_size() > kMaxCodecs) {
    return refuse("codecs", kMaxCodecs, static_cast<uint64_t>(report.codecs_size()));
  }
  for (const std::string& codec : report.codecs()) {
    if (codec.size() > kMaxCodecName)
      return refuse("bytes of a codec", kMaxCodecName, codec.size());
  }
  for (const wire::PolicyTensor& tensor : report.tensors()) {
    if (tensor.levels_size() <= report.codecs_size()) continue;
    return refuse(absl::StrCat("levels of key ", tensor.key()),
                  static_cast<uint64_t>(report.codecs_size()),
                  static_cast<uint64_t>(tensor.levels_size()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PolicyControl::Check(uint32_t worker, const wire::PolicyReport& report) {
  if (!policy_.empty() && report.policy() != policy_) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy report: worker ", worker, " has policy \"", report.policy(),
                     "\", expected as worker ", worker_, ": \"", policy_, "\""));
  }
  for (const auto& [what, round] :
       {std::pair("round", report.round()), std::pair("rounds", report.rounds()),
        std::pair("rounds before", report.rounds_before())}) {
    if (round <= kMaxReportedRound) continue;
    return absl::InvalidArgumentError(absl::StrCat("policy report: ", what, " ", round,
                                                   ", expected at most ", kMaxReportedRound));
  }
  SLIMPS_RETURN_IF_ERROR(CheckSize(worker, report));
  if (!policy_.empty()) return absl::OkStatus();
  SLIMPS_RETURN_IF_ERROR(MakeController(report.policy()).status());
  policy_ = report.policy();
  worker_ = worker;
  return absl::OkStatus();
}

absl::Status PolicyControl::Start(const std::map<uint32_t, wire::PolicyReport>& reports,
                                  const std::vector<TensorInfo>& tensors) {
  SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<Controller> made, MakeController(policy_));
  PolicyDecision first;
  const auto resumed =
      std::ranges::find_if(reports, [](const auto& one) { return one.second.has_resumed(); });
  if (resumed != reports.end()) {
    const wire::CodecMap& map = resumed->second.resumed();
    SLIMPS_RETURN_IF_ERROR(made->RestoreState(map.policy_state()));
    first = PolicyDecisionOf(map);
    decided_ = true;
  } else {
    SLIMPS_ASSIGN_OR_RETURN(first, made->Begin(tensors));
  }
  controller_ = std::move(made);
  in_force_ = std::move(first);
  return absl::OkStatus();
}

absl::Status PolicyControl::Decide(const std::map<uint32_t, wire::PolicyReport>& reports,
                                   uint64_t from_round, wire::CodecMap* map) {
  std::vector<Report> all, measured;
  uint64_t rounds_before = 0;
  for (const auto& [worker, message] : reports) {
    SLIMPS_ASSIGN_OR_RETURN(Report report, ReportOf(message, worker));
    if (HasMeasured(report)) measured.push_back(report);
    all.push_back(std::move(report));
    rounds_before = std::max(rounds_before, message.rounds_before());
  }
  SLIMPS_ASSIGN_OR_RETURN(const Report merged, MergeReports(measured.empty() ? all : measured));
  if (controller_ == nullptr) {
    std::vector<TensorInfo> tensors;
    for (const TensorReport& tensor : merged.tensors) tensors.push_back(tensor.tensor);
    SLIMPS_RETURN_IF_ERROR(Start(reports, tensors));
  }
  std::string kept;
  // The controller counts all rounds of the job, and workers those since it was resumed.
  const uint64_t job_round = from_round + rounds_before;
  if (!measured.empty() && merged.round > round_ && merged.round < job_round) {
    absl::StatusOr<std::optional<PolicyDecision>> next = controller_->Decide(merged, job_round);
    if (next.ok()) {
      decided_ = true;
      if (next->has_value()) in_force_ = **std::move(next);
    } else if (!decided_ || !absl::IsFailedPrecondition(next.status())) {
      return next.status();
    } else {
      kept = absl::StrCat("kept, since ", next.status().message());
    }
    round_ = merged.round;
  }
  std::string state = controller_->SaveState();
  in_force_.from_round = from_round;
  PutDecision(in_force_, map);
  if (!kept.empty()) map->set_reason(kept);
  map->set_policy(policy_);
  map->set_policy_state(std::move(state));
  return absl::OkStatus();
}

}  // namespace slimps
