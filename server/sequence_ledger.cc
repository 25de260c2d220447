#include "server/sequence_ledger.h"

#include "absl/strings/str_cat.h"

namespace slimps {

absl::StatusOr<PushVerdict> SequenceLedger::Push(uint64_t sequence, uint32_t worker,
                                                 uint64_t checksum) {
  if (worker >= workers_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("push of worker ", worker, ", but the job has ", workers_.size()));
  }
  if (sequence == 0) return absl::InvalidArgumentError("push of sequence 0; they begin at 1");
  Worker& state = workers_[worker];
  Entry& entry = state.ring[sequence % state.ring.size()];
  if (entry.sequence == sequence) {
    if (entry.checksum == checksum) return PushVerdict::kDuplicate;
    return absl::AlreadyExistsError(
        absl::StrCat("worker ", worker, " pushed sequence ", sequence, " before with checksum ",
                     absl::Hex(entry.checksum), ", now with ", absl::Hex(checksum)));
  }
  if (sequence <= state.base) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", worker, " pushes sequence ",
                                                      sequence, ", forgotten since ", state.base,
                                                      " are applied"));
  }
  if (sequence - state.base > kWindow) {
    return absl::ResourceExhaustedError(
        absl::StrCat("worker ", worker, " pushes sequence ", sequence, ", too far ahead: only ",
                     state.base, " are applied without a gap, window ", kWindow));
  }
  entry = {.sequence = sequence, .checksum = checksum};
  while (state.ring[(state.base + 1) % state.ring.size()].sequence == state.base + 1) ++state.base;
  return PushVerdict::kAccepted;
}

}  // namespace slimps
