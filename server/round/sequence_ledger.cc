// SPDX-License-Identifier: Apache-2.0
#include "server/round/sequence_ledger.h"

#include <algorithm>

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
  // It was applied, though its checksum is forgotten. A retry may travel for long.
  if (sequence <= state.clock) return PushVerdict::kDuplicate;
  if (sequence >= state.leaves_from) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", worker, " pushes sequence ",
                                                      sequence, ", but left from ",
                                                      state.leaves_from, " on"));
  }
  if (sequence - state.clock > kWindow) {
    return absl::ResourceExhaustedError(
        absl::StrCat("worker ", worker, " pushes sequence ", sequence, ", too far ahead: only ",
                     state.clock, " are applied without a gap, window ", kWindow));
  }
  if (staleness_.has_value() && sequence > slowest_ && sequence - slowest_ - 1 > *staleness_) {
    return absl::ResourceExhaustedError(absl::StrCat("worker ", worker, " pushes round ", sequence,
                                                     ", too far ahead: the slowest has pushed ",
                                                     slowest_, ", staleness ", *staleness_));
  }
  entry = {.sequence = sequence, .checksum = checksum};
  state.newest = std::max(state.newest, sequence);
  while (state.ring[(state.clock + 1) % state.ring.size()].sequence == state.clock + 1) {
    ++state.clock;
  }
  FindSlowest();
  return PushVerdict::kAccepted;
}

absl::Status SequenceLedger::Leave(uint32_t worker, uint64_t from) {
  if (worker >= workers_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("leave of worker ", worker, ", but the job has ", workers_.size()));
  }
  Worker& state = workers_[worker];
  if (from == 0) from = std::min(state.leaves_from, state.newest + 1);
  if (from <= state.newest) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", worker, " leaves from push ", from,
                                                      " on, but its push ", state.newest,
                                                      " was applied"));
  }
  state.leaves_from = std::min(state.leaves_from, from);
  FindSlowest();
  return absl::OkStatus();
}

uint64_t SequenceLedger::ReadsFrom(uint32_t worker) const {
  if (!staleness_.has_value() || worker >= workers_.size()) return 0;
  const uint64_t clock = workers_[worker].clock;
  return clock > *staleness_ ? clock - *staleness_ : 0;
}

std::vector<uint32_t> SequenceLedger::Below(uint64_t clock) const {
  std::vector<uint32_t> below;
  for (uint32_t i = 0; i < workers_.size(); ++i) {
    if (IsBelow(i, clock)) below.push_back(i);
  }
  return below;
}

void SequenceLedger::FindSlowest() {
  slowest_ = kNever;
  for (const Worker& worker : workers_) slowest_ = std::min(slowest_, worker.effective_clock());
}

void SequenceLedger::Save(saved::SequenceLedger* fields) const {
  for (const Worker& worker : workers_) {
    saved::SequenceWorker& saved = *fields->add_workers();
    saved.set_clock(worker.clock);
    saved.set_leaves_from(worker.leaves_from);
    saved.set_newest(worker.newest);
    for (const Entry& entry : worker.ring) {
      if (entry.sequence == 0) continue;
      saved::Sequence& remembered = *saved.add_remembered();
      remembered.set_sequence(entry.sequence);
      remembered.set_checksum(entry.checksum);
    }
  }
}

absl::Status SequenceLedger::Restore(const saved::SequenceLedger& fields) {
  if (static_cast<size_t>(fields.workers_size()) != workers_.size()) {
    return BadImage(absl::StrCat("sequences of ", fields.workers_size(), " workers, expected ",
                                 workers_.size()));
  }
  for (size_t i = 0; i < workers_.size(); ++i) {
    const saved::SequenceWorker& saved = fields.workers(static_cast<int>(i));
    Worker& worker = workers_[i];
    worker.clock = saved.clock();
    worker.leaves_from = saved.leaves_from();
    worker.newest = saved.newest();
    for (const saved::Sequence& entry : saved.remembered()) {
      worker.ring[entry.sequence() % worker.ring.size()] = {.sequence = entry.sequence(),
                                                            .checksum = entry.checksum()};
    }
  }
  if (!workers_.empty()) FindSlowest();
  return absl::OkStatus();
}

}  // namespace slimps
