// SPDX-License-Identifier: Apache-2.0
#include "proto/base/simulation/mutant.h"

#include <utility>

namespace slimps::simulation {
namespace {

constexpr std::pair<Mutant, absl::string_view> kNames[] = {
    {Mutant::kForgottenIsError, "forgotten_is_error"},
    {Mutant::kAheadIsError, "ahead_is_error"},
    {Mutant::kAnyVersionAnswers, "any_version_answers"},
    {Mutant::kReportOnce, "report_once"},
    {Mutant::kNoQuietTime, "no_quiet_time"},
    {Mutant::kAckBeforeCounting, "ack_before_counting"},
    {Mutant::kCountRepeat, "count_repeat"},
    {Mutant::kRoundWithoutAWorker, "round_without_a_worker"},
    {Mutant::kSumInAnotherOrder, "sum_in_another_order"},
    {Mutant::kForgetParked, "forget_parked"},
    {Mutant::kForgetWaitingPull, "forget_waiting_pull"},
    {Mutant::kDropPrevious, "drop_previous"},
    {Mutant::kStalePull, "stale_pull"},
    {Mutant::kNoResend, "no_resend"},
    {Mutant::kNotificationLost, "notification_lost"},
    {Mutant::kNoBound, "no_bound"},
    {Mutant::kNoStagingBound, "no_staging_bound"},
    {Mutant::kSnapshotWithoutSeen, "snapshot_without_seen"},
    {Mutant::kSnapshotWithoutState, "snapshot_without_state"},
    {Mutant::kReplayOffByOne, "replay_off_by_one"},
    {Mutant::kRestartUnnoticed, "restart_unnoticed"},
    {Mutant::kDurableBeforeWritten, "durable_before_written"},
    {Mutant::kTornSnapshotUsed, "torn_snapshot_used"},
    {Mutant::kForgottenJournalEntry, "forgotten_journal_entry"},
};

Mutant chosen = Mutant::kNone;

}  // namespace

bool Is(Mutant mutant) { return chosen == mutant; }

void SetMutant(Mutant mutant) { chosen = mutant; }

std::optional<Mutant> MutantNamed(absl::string_view name) {
  for (const auto& [mutant, known] : kNames) {
    if (known == name) return mutant;
  }
  return std::nullopt;
}

std::vector<absl::string_view> MutantNames() {
  std::vector<absl::string_view> names;
  for (const auto& [mutant, name] : kNames) names.push_back(name);
  return names;
}

}  // namespace slimps::simulation
