// SPDX-License-Identifier: Apache-2.0
#include "scheduler/decisions/threshold_decision.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/policy/measured_rounds.h"
#include "compress/policy/table_rows.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

absl::StatusOr<ThresholdTable> TableOf(const wire::ThresholdReport& report,
                                       wire::Direction direction, const std::string& codec) {
  for (const wire::ThresholdRow& row : report.rows()) {
    if (row.direction() != direction) continue;
    for (const double ms : {row.t_c_ms(), row.t_cq_ms(), row.t_pq_ms()}) {
      if (!std::isfinite(ms) || ms < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("size ", row.bytes(), ": time of ", ms, " ms, expected a number from 0"));
      }
    }
  }
  return ThresholdTable::FromRows(codec, RowsOf(report.rows(), direction));
}

absl::Status CheckDirections(const wire::ThresholdReport& report) {
  for (const wire::ThresholdRow& row : report.rows()) {
    if (wire::Direction_IsValid(row.direction())) continue;
    return absl::InvalidArgumentError(absl::StrCat("threshold report, size ", row.bytes(),
                                                   ": direction ", row.direction(),
                                                   ", expected 0 (push) or 1 (pull)"));
  }
  std::set<wire::Direction> told;
  for (const wire::ThresholdInForce& one : report.in_force()) {
    if (wire::Direction_IsValid(one.direction()) && told.insert(one.direction()).second) continue;
    return absl::InvalidArgumentError(absl::StrCat("threshold report, in force: direction ",
                                                   one.direction(),
                                                   ", expected 0 (push) or 1 (pull), each once"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ThresholdDecision::CheckCodecs(uint32_t worker,
                                            const wire::ThresholdReport& report) const {
  const auto other = std::ranges::find_if(reports_, [&](const auto& known) {
    return known.first != worker && known.second.generation == report.generation();
  });
  if (other == reports_.end()) return absl::OkStatus();
  const auto check = [&](const char* what, const std::string& got,
                         const std::string& expected) -> absl::Status {
    if (got == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("threshold report: worker ", worker, " measured ", what, " codec \"", got,
                     "\", expected as worker ", other->first, ": \"", expected, "\""));
  };
  if (report.has_policy() != other->second.policy.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "threshold report: worker ", report.has_policy() ? worker : other->first,
        " has a policy, and worker ", report.has_policy() ? other->first : worker, " has none"));
  }
  SLIMPS_RETURN_IF_ERROR(check("push", report.codec(), other->second.push.codec()));
  return check("pull", report.pull_codec(), other->second.pull.codec());
}

absl::Status ThresholdDecision::Add(uint32_t worker, const wire::ThresholdReport& report) {
  const uint64_t generation = report.generation();
  if (generation == MeasuredRounds::kLastGeneration) {
    Leave(worker);
    return absl::OkStatus();
  }
  if (decided_generation_.has_value() && generation <= *decided_generation_) {
    return absl::OkStatus();
  }
  const auto known = reports_.find(worker);
  if (known != reports_.end() && known->second.generation >= generation) return absl::OkStatus();
  for (const auto& [what, round] :
       {std::pair("ready round", report.ready_round()), std::pair("generation", generation)}) {
    if (round <= kMaxReportedRound) continue;
    return absl::InvalidArgumentError(absl::StrCat("threshold report: ", what, " ", round,
                                                   ", expected at most ", kMaxReportedRound));
  }
  SLIMPS_RETURN_IF_ERROR(CheckDirections(report));
  SLIMPS_RETURN_IF_ERROR(CheckCodecs(worker, report));
  SLIMPS_ASSIGN_OR_RETURN(ThresholdTable push, TableOf(report, wire::PUSH, report.codec()));
  SLIMPS_ASSIGN_OR_RETURN(ThresholdTable pull, TableOf(report, wire::PULL, report.pull_codec()));
  if (report.has_policy()) SLIMPS_RETURN_IF_ERROR(policy_.Check(worker, report.policy()));
  Report& kept = reports_[worker];
  kept = {std::move(push), std::move(pull), report.ready_round(), generation, {}, std::nullopt};
  if (report.has_policy()) kept.policy = report.policy();
  for (const wire::ThresholdInForce& one : report.in_force()) {
    kept.in_force[one.direction()] =
        one.has_threshold() ? std::optional(one.threshold_bytes()) : std::nullopt;
  }
  return DecideIfComplete();
}

void ThresholdDecision::Leave(uint32_t worker) {
  left_.insert(worker);
  // Without a decision the others go on, after a while, by the one in force.
  (void)DecideIfComplete();
}

std::vector<uint32_t> ThresholdDecision::Unreported() const {
  const auto is_for_next = [this](uint32_t worker) {
    const auto report = reports_.find(worker);
    return report != reports_.end() &&
           (!decided_generation_.has_value() || report->second.generation > *decided_generation_);
  };
  std::vector<uint32_t> missing;
  bool somebody_waits = false;
  for (uint32_t worker = 0; worker < num_workers_; ++worker) {
    if (left_.contains(worker)) continue;
    if (is_for_next(worker)) {
      somebody_waits = true;
    } else {
      missing.push_back(worker);
    }
  }
  return somebody_waits ? missing : std::vector<uint32_t>();
}

std::optional<uint64_t> ThresholdDecision::CompleteGeneration() const {
  std::optional<uint64_t> complete;
  for (uint32_t worker = 0; worker < num_workers_; ++worker) {
    if (left_.contains(worker)) continue;
    const auto report = reports_.find(worker);
    if (report == reports_.end()) return std::nullopt;
    complete = std::min(complete.value_or(report->second.generation), report->second.generation);
  }
  if (complete.has_value() && decided_generation_.has_value() &&
      *complete <= *decided_generation_) {
    return std::nullopt;
  }
  return complete;
}

absl::Status ThresholdDecision::DecideIfComplete() {
  const std::optional<uint64_t> generation = CompleteGeneration();
  if (!generation.has_value()) return absl::OkStatus();
  std::map<uint32_t, wire::PolicyReport> policies;
  uint64_t ready_round = 0;
  for (const auto& [worker, report] : reports_) {
    if (report.generation < *generation) continue;  // an old report of a worker that left
    if (report.policy.has_value()) policies[worker] = *report.policy;
    ready_round = std::max(ready_round, report.ready_round);
  }
  wire::CodecMap map;
  map.set_version(*generation + 1);
  map.set_from_round(ready_round + (*generation == 0 ? 1 : MeasuredRounds::kAnnounceRounds));
  if (decision_.has_value()) {
    map.set_from_round(std::max(map.from_round(), decision_->from_round()));
  }
  if (policies.empty()) {
    DecideThresholds(*generation, &map);
  } else {
    SLIMPS_RETURN_IF_ERROR(policy_.Decide(policies, map.from_round(), &map));
  }
  decision_ = std::move(map);
  decided_generation_ = generation;
  return absl::OkStatus();
}

void ThresholdDecision::DecideThresholds(uint64_t generation, wire::CodecMap* map) {
  std::vector<ThresholdTable> push, pull;
  for (const auto& [worker, report] : reports_) {
    if (report.generation < generation) continue;
    push.push_back(report.push);
    pull.push_back(report.pull);
  }
  const ThresholdTable average = ThresholdTable::Average(push);
  const ThresholdTable pull_average = ThresholdTable::Average(pull);
  map->set_codec_below("none");
  const auto threshold = Decide(average, wire::PUSH, generation, &push_, map);
  map->set_has_threshold(threshold.has_value());
  map->set_threshold_bytes(threshold.value_or(0));
  const auto pull_threshold = Decide(pull_average, wire::PULL, generation, &pull_, map);
  map->set_has_pull_threshold(pull_threshold.has_value());
  map->set_pull_threshold_bytes(pull_threshold.value_or(0));
}

std::optional<uint64_t> ThresholdDecision::Decide(const ThresholdTable& average,
                                                  wire::Direction direction, uint64_t generation,
                                                  Followed* followed, wire::CodecMap* map) const {
  if (average.codec().empty()) return std::nullopt;
  AddRows(average, direction, map->mutable_table());
  const std::vector<ThresholdRow> rows = average.Rows();
  const bool known = followed->codec == average.codec();
  if (!known && !AreComparable(rows)) return std::nullopt;
  followed->codec = average.codec();
  *(direction == wire::PUSH ? map->mutable_codec() : map->mutable_pull_codec()) = followed->codec;
  if (known) return followed->threshold.Move(rows);
  for (const auto& [worker, report] : reports_) {
    const auto told = report.in_force.find(direction);
    if (report.generation < generation || told == report.in_force.end()) continue;
    followed->threshold = FollowedThreshold(told->second);
    return followed->threshold.Move(rows);
  }
  const std::optional<uint64_t> best = BestThreshold(rows);
  followed->threshold = FollowedThreshold(best);
  return best;
}

}  // namespace slimps
