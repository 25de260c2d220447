// SPDX-License-Identifier: Apache-2.0
#include "server/round/round_ledger.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/simulation/mutant.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

}  // namespace

RoundLedger::RoundLedger(uint32_t num_workers, std::shared_ptr<WaitingBytes> waiting,
                         uint64_t rounds_ahead)
    : num_workers_(num_workers),
      waiting_(waiting != nullptr ? std::move(waiting) : std::make_shared<WaitingBytes>()),
      rounds_ahead_(rounds_ahead),
      leaves_from_(num_workers, kNever),
      away_(num_workers) {}

const RoundLedger::Seen* RoundLedger::FindSeen(uint64_t round, uint32_t worker) const {
  if (round > version_) {
    const uint64_t index = round - version_ - 1;
    return index < open_.size() ? &open_[index][worker].seen : nullptr;
  }
  const uint64_t age = version_ - round;
  return age < applied_.size() ? &applied_[applied_.size() - 1 - age][worker] : nullptr;
}

absl::StatusOr<PushVerdict> RoundLedger::Push(PushRecord push) {
  if (push.worker >= num_workers_) {
    return absl::InvalidArgumentError(
        absl::StrCat("push of worker ", push.worker, ", but the job has ", num_workers_));
  }
  if (push.round == 0) return absl::InvalidArgumentError("push of round 0; rounds begin at 1");
  const Seen* seen = FindSeen(push.round, push.worker);
  if (seen != nullptr && seen->counted) {
    if (seen->checksum == push.checksum && seen->format == push.format) {
      if (simulation::Is(Mutant::kCountRepeat) && push.round <= version_) {
        push.round = version_ + 1;
        return Push(std::move(push));
      }
      return PushVerdict::kDuplicate;
    }
    return absl::AlreadyExistsError(
        absl::StrCat("worker ", push.worker, " pushed round ", push.round, " before with checksum ",
                     absl::Hex(seen->checksum), ", now with ", absl::Hex(push.checksum)));
  }
  if (!IsActive(push.worker, push.round)) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", push.worker, " left from round ",
                                                      leaves_from_[push.worker],
                                                      " but pushes round ", push.round));
  }
  // The round was applied, so the push of this active worker was in it, and only its checksum is
  // forgotten. A worker that was away meanwhile pushes nothing in rounds before its return.
  if (push.round <= version_) {
    if (simulation::Is(Mutant::kForgottenIsError)) return absl::FailedPreconditionError("old");
    return PushVerdict::kDuplicate;
  }
  if (push.round - version_ > rounds_ahead_) {
    if (simulation::Is(Mutant::kAheadIsError)) return absl::FailedPreconditionError("too far");
    if (simulation::Is(Mutant::kAckBeforeCounting)) return PushVerdict::kDuplicate;
    return absl::ResourceExhaustedError(absl::StrCat(
        "worker ", push.worker, " pushes round ", push.round, ", too far ahead of version ",
        version_, "; at most round ", version_ + rounds_ahead_, " is accepted now"));
  }
  const size_t bytes = push.payload.size();
  const bool extends_prefix = push.round == version_ + 1 && push.worker == NextInTurn();
  if (extends_prefix || simulation::Is(Mutant::kNoBound)) {
    // Refusing what extends the prefix could stop the round for ever.
    waiting_->Add(bytes);
  } else if (!waiting_->TryAdd(bytes)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "round ", push.round, " of worker ", push.worker, ": ", bytes, " bytes on top of ",
        waiting_->bytes(), " that wait in the server exceed ", waiting_->most()));
  }
  while (open_.size() < push.round - version_) open_.emplace_back(num_workers_);
  Slot& slot = open_[push.round - version_ - 1][push.worker];
  slot.seen = {
      .counted = true, .checksum = push.checksum, .format = push.format, .left_out = push.left_out};
  slot.payload = std::move(push.payload);
  waiting_bytes_ += bytes;
  return PushVerdict::kAccepted;
}

uint64_t RoundLedger::FirstUncounted(uint32_t worker) const {
  uint64_t round = version_ + 1;
  for (size_t i = 0; i < open_.size(); ++i) {
    if (open_[i][worker].seen.counted) round = version_ + i + 2;
  }
  return round;
}

absl::Status RoundLedger::Leave(uint32_t worker, uint64_t from_round) {
  if (worker >= num_workers_) {
    return absl::InvalidArgumentError(
        absl::StrCat("leave of worker ", worker, ", but the job has ", num_workers_));
  }
  // A second leave from the same round or a later one changes nothing.
  if (leaves_from_[worker] <= (from_round == 0 ? kNever - 1 : from_round)) return absl::OkStatus();
  const uint64_t first = FirstUncounted(worker);
  if (from_round == 0) from_round = first;
  if (from_round < first) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", worker, " leaves from round ",
                                                      from_round, " but round ", first - 1,
                                                      " was counted with it"));
  }
  leaves_from_[worker] = from_round;
  return absl::OkStatus();
}

void RoundLedger::Return(uint32_t worker) {
  if (!away_[worker]) return;
  away_[worker] = false;
  if (worker < released_) LeaveOutOfNext(worker);
}

void RoundLedger::LeaveOutOfNext(uint32_t worker) {
  if (!AwaitsNext(worker)) return;
  if (open_.empty()) open_.emplace_back(num_workers_);
  open_[0][worker].seen = {.counted = true, .left_out = true};
}

void RoundLedger::CloseNextRound() {
  for (uint32_t worker = 0; worker < num_workers_; ++worker) {
    if (!IsActive(worker, version_ + 1) || HasNext(worker)) continue;
    if (open_.empty()) open_.emplace_back(num_workers_);
    open_[0][worker].seen = {.counted = true, .left_out = true};
  }
}

uint32_t RoundLedger::NextInTurn() const {
  uint32_t worker = released_;
  while (worker < num_workers_ && !AwaitsNext(worker)) ++worker;
  return worker;
}

size_t RoundLedger::prefix_bytes() const {
  size_t bytes = 0;
  for (uint32_t worker = released_, end = NextInTurn(); worker < end; ++worker) {
    if (HasNext(worker)) bytes += open_[0][worker].payload.size();
  }
  return bytes;
}

std::vector<Contribution> RoundLedger::Prefix() const {
  std::vector<Contribution> prefix;
  for (uint32_t worker = released_, end = NextInTurn(); worker < end; ++worker) {
    if (!HasNext(worker) || open_[0][worker].seen.left_out) continue;
    const Slot& slot = open_[0][worker];
    prefix.push_back({.format = slot.seen.format, .payload = slot.payload});
  }
  return prefix;
}

void RoundLedger::ReleasePrefix() {
  const size_t bytes = prefix_bytes();
  for (const uint32_t end = NextInTurn(); released_ < end; ++released_) {
    // A worker that left or is away contributed nothing. If that are all, open_ may be empty.
    if (HasNext(released_)) open_[0][released_].payload = Payload();
  }
  waiting_bytes_ -= bytes;
  waiting_->Remove(bytes);
}

bool RoundLedger::NextRoundComplete() const {
  bool any = false;
  for (uint32_t worker = 0; worker < num_workers_; ++worker) {
    any |= HasNext(worker);
    if (simulation::Is(Mutant::kRoundWithoutAWorker) && worker == num_workers_ - 1) continue;
    if (AwaitsNext(worker)) return false;
  }
  return any;  // once everyone has left there are no more rounds
}

std::vector<Contribution> RoundLedger::TakeNextRound() {
  const uint64_t round = version_ + 1;
  Round taken = std::move(open_.front());
  open_.pop_front();
  std::vector<Contribution> contributions;
  std::vector<Seen> remembered(num_workers_);
  size_t bytes = 0;
  for (uint32_t worker = 0; worker < num_workers_; ++worker) {
    remembered[worker] = taken[worker].seen;
    if (worker < released_ || !taken[worker].seen.counted) continue;
    bytes += taken[worker].payload.size();
    if (taken[worker].seen.left_out) continue;
    contributions.push_back(
        {.format = taken[worker].seen.format, .payload = std::move(taken[worker].payload)});
  }
  if (contributions.empty() && released_ == 0) contributions.emplace_back();
  if (simulation::Is(Mutant::kSumInAnotherOrder))
    std::reverse(contributions.begin(), contributions.end());
  waiting_bytes_ -= bytes;
  waiting_->Remove(bytes);
  released_ = 0;
  applied_.push_back(std::move(remembered));
  if (applied_.size() > kRememberedRounds) applied_.pop_front();
  version_ = round;
  return contributions;
}

std::vector<uint32_t> RoundLedger::Contributors(uint64_t round) const {
  std::vector<uint32_t> workers;
  for (uint32_t worker = 0; worker < num_workers_; ++worker) {
    const Seen* const seen = round == 0 ? nullptr : FindSeen(round, worker);
    if (seen != nullptr && seen->counted && seen->format != PayloadFormat::kAbsent) {
      workers.push_back(worker);
    }
  }
  return workers;
}

std::vector<uint32_t> RoundLedger::MissingFromNextRound() const {
  std::vector<uint32_t> missing;
  for (uint32_t worker = 0; worker < num_workers_; ++worker) {
    if (AwaitsNext(worker)) missing.push_back(worker);
  }
  return missing;
}

bool RoundLedger::NextRoundBegun() const {
  const auto counted = [](const Slot& slot) { return slot.seen.counted; };
  return !open_.empty() && std::ranges::any_of(open_[0], counted);
}

uint64_t RoundLedger::CountedUpTo(uint32_t worker) const {
  uint64_t round = version_;
  for (const Round& open : open_) {
    if (!open[worker].seen.counted) break;
    ++round;
  }
  return round;
}

wire::Standing RoundLedger::StandingOf(uint32_t worker) const {
  wire::Standing standing;
  standing.set_next_round(FirstUncounted(worker));
  for (uint64_t round = version_ + 1; round < standing.next_round(); ++round) {
    if (!open_[round - version_ - 1][worker].seen.counted) standing.add_holes(round);
  }
  standing.set_newest(version_ + open_.size());  // open_ ends with a round that has a push
  return standing;
}

void RoundLedger::Save(saved::RoundLedger* fields, PartitionImage* image) const {
  const auto save = [](const Seen& seen, saved::Slot* slot) {
    slot->set_counted(seen.counted);
    slot->set_checksum(seen.checksum);
    slot->set_format(static_cast<wire::Format>(seen.format));
    slot->set_left_out(seen.left_out);
  };
  fields->set_version(version_);
  fields->set_released(released_);
  for (const Round& round : open_) {
    saved::Round& saved = *fields->add_open();
    for (const Slot& slot : round) {
      save(slot.seen, saved.add_slots());
      saved.mutable_slots()->rbegin()->set_part(image->Add(slot.payload));
    }
  }
  for (const std::vector<Seen>& round : applied_) {
    saved::Round& saved = *fields->add_applied();
    for (const Seen& seen : round) save(seen, saved.add_slots());
  }
  fields->mutable_leaves_from()->Add(leaves_from_.begin(), leaves_from_.end());
}

absl::StatusOr<RoundLedger::Round> RoundLedger::RestoreRound(const saved::Round& fields,
                                                             uint32_t released, size_t elements,
                                                             const PartitionImage& image) const {
  if (static_cast<uint32_t>(fields.slots_size()) != num_workers_) {
    return BadImage(
        absl::StrCat("a round of ", fields.slots_size(), " workers, expected ", num_workers_));
  }
  Round round(num_workers_);
  for (uint32_t worker = 0; worker < num_workers_; ++worker) {
    const saved::Slot& saved = fields.slots(static_cast<int>(worker));
    Seen& seen = round[worker].seen;
    seen = {.counted = saved.counted(), .checksum = saved.checksum()};
    seen.left_out = saved.left_out();
    SLIMPS_ASSIGN_OR_RETURN(seen.format, RestoreFormat(saved.format()));
    if (!seen.counted || worker < released) continue;
    SLIMPS_ASSIGN_OR_RETURN(round[worker].payload,
                            image.PayloadOf(seen.format, saved.part(), elements));
  }
  return round;
}

absl::Status RoundLedger::Restore(const saved::RoundLedger& fields, size_t elements,
                                  const PartitionImage& image) {
  if (static_cast<uint32_t>(fields.leaves_from_size()) != num_workers_ ||
      fields.released() > num_workers_ || fields.open_size() > static_cast<int>(rounds_ahead_) ||
      fields.applied_size() > static_cast<int>(kRememberedRounds) ||
      static_cast<uint64_t>(fields.applied_size()) > fields.version()) {
    return BadImage(absl::StrCat("a ledger of ", fields.leaves_from_size(), " workers, ",
                                 fields.open_size(), " open rounds and ", fields.applied_size(),
                                 " applied ones, at version ", fields.version()));
  }
  version_ = fields.version();
  released_ = fields.released();
  leaves_from_.assign(fields.leaves_from().begin(), fields.leaves_from().end());
  for (const saved::Round& saved : fields.open()) {
    const uint32_t released = open_.empty() ? released_ : 0;
    SLIMPS_ASSIGN_OR_RETURN(Round round, RestoreRound(saved, released, elements, image));
    size_t bytes = 0;
    for (const Slot& slot : round) bytes += slot.payload.size();
    waiting_->Add(bytes);
    waiting_bytes_ += bytes;
    open_.push_back(std::move(round));
  }
  for (const saved::Round& saved : fields.applied()) {
    // All of an applied round is released.
    SLIMPS_ASSIGN_OR_RETURN(const Round round, RestoreRound(saved, num_workers_, elements, image));
    std::vector<Seen>& remembered = applied_.emplace_back();
    for (const Slot& slot : round) remembered.push_back(slot.seen);
  }
  // The sum has passed those who were away. They may be back by now.
  for (uint32_t worker = 0; worker < released_; ++worker) LeaveOutOfNext(worker);
  return absl::OkStatus();
}

}  // namespace slimps
