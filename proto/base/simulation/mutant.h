// SPDX-License-Identifier: Apache-2.0
// Mutants: bugs that a simulated run can be told to have, each by one line where the real one would
// be. They show what simulation finds. Five are bugs that this project once had. In other builds
// none is there, at no cost.
//
//   if (simulation::Is(Mutant::kCountRepeat)) ...
#ifndef SLIMPS_PROTO_BASE_SIMULATION_MUTANT_H_
#define SLIMPS_PROTO_BASE_SIMULATION_MUTANT_H_

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

namespace slimps::simulation {

enum class Mutant {
  kNone,
  // These five are of this project's history.
  kForgottenIsError,   // a push that was counted long ago, and is repeated, is refused
  kAheadIsError,       // so is one of a round that cannot be taken yet
  kAnyVersionAnswers,  // a pull gets the newest weights instead of those that it names
  kReportOnce,         // the threshold's report is not repeated
  kNoQuietTime,        // the scheduler is gone before a repeated goodbye comes
  // Others.
  kAckBeforeCounting,
  kCountRepeat,
  kRoundWithoutAWorker,
  kSumInAnotherOrder,
  kForgetParked,       // messages that came before the roster
  kForgetWaitingPull,  // one that waited for its round
  kDropPrevious,       // the version before the newest
  kStalePull,          // a worker asks for the round before its newest
  kNoResend,           // what was lost is not sent again
  kNotificationLost,   // one in 64
  kNoBound,            // a server takes pushes for which it has no room
  kNoStagingBound,     // a worker copies gradients for which it has no room
  // These show after a crash.
  kSnapshotWithoutSeen,    // the weights that workers see are saved as those that are stepped
  kSnapshotWithoutState,   // the optimizer's state is not saved
  kReplayOffByOne,         // a worker drops a push that no snapshot has
  kRestartUnnoticed,       // a worker takes a server's new process for the former
  kDurableBeforeWritten,   // a snapshot that is not on the disk yet counts
  kTornSnapshotUsed,       // what can be read of it counts
  kForgottenJournalEntry,  // who took the place of a process that was gone
};

#ifdef SLIMPS_SIMULATION

bool Is(Mutant mutant);
void SetMutant(Mutant mutant);
std::optional<Mutant> MutantNamed(absl::string_view name);
std::vector<absl::string_view> MutantNames();

#else

inline constexpr bool Is(Mutant) { return false; }

#endif

}  // namespace slimps::simulation

namespace slimps {
using simulation::Mutant;
}

#endif  // SLIMPS_PROTO_BASE_SIMULATION_MUTANT_H_
