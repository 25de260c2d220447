// SPDX-License-Identifier: Apache-2.0
#include "proto/net/shared/payload_sharing.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/net/shared/orphaned_loans.h"

namespace slimps {
namespace {

// Returns a random first lease number. A late return to an earlier process or transport then does
// not end a lease of ours.
uint64_t RandomLease() {
  uint64_t lease = 0;
  return getrandom(&lease, sizeof(lease), 0) == sizeof(lease) ? lease : 1;
}

bool IsAligned(const Payload& payload) {
  return reinterpret_cast<uintptr_t>(payload.bytes().data()) % alignof(float) == 0;
}

}  // namespace

PayloadSharing::PayloadSharing(const PayloadSharingOptions& options, std::shared_ptr<Wakeup> wakeup)
    : options_(options),
      own_pid_(static_cast<uint64_t>(getpid())),
      returns_(std::make_shared<LeaseReturns>(std::move(wakeup))),
      next_lease_(RandomLease()) {
  // A good moment to drop loans of earlier transports whose borrowers have ended.
  if (on()) OrphanedLoans::OfProcess().Sweep();
}

PayloadSharing::~PayloadSharing() { Close(); }

void PayloadSharing::Close() {
  returns_->Close();
  if (!on()) return;
  for (auto& [id, lease] : leases_) {
    if (!absl::IsNotFound(watch_.Add(lease.pid))) {
      OrphanedLoans::OfProcess().Keep(lease.pid, std::move(lease.payload));
    }
  }
  leases_.clear();
  OrphanedLoans::OfProcess().Sweep();
}

// ---- peers and their processes ------------------------------------------------------------------

void PayloadSharing::AddPeer(PeerId peer) {
  Peer& added = peers_[peer];
  added.offered = added.offer_due = on();
}

void PayloadSharing::RemovePeer(PeerId peer) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  const uint64_t pid = found->second.pid;
  peers_.erase(found);
  ForgetIfUnused(pid);
}

absl::Status PayloadSharing::Meet(PeerId id, uint64_t pid) {
  Peer& peer = peers_.at(id);
  SLIMPS_RETURN_IF_ERROR(watch_.Add(pid));
  processes_.try_emplace(pid);
  if (peer.pid == pid) return absl::OkStatus();
  const uint64_t before = std::exchange(peer.pid, pid);
  if (before != 0) {  // a new process has taken its place and knows nothing of us
    peer.offered = peer.accepted = false;
    ForgetIfUnused(before);
  }
  return absl::OkStatus();
}

void PayloadSharing::ForgetIfUnused(uint64_t pid) {
  const auto found = processes_.find(pid);
  if (found == processes_.end() || found->second.leases > 0 || found->second.borrowed > 0 ||
      HasReturnsDue(pid)) {
    return;
  }
  const bool used = std::any_of(peers_.begin(), peers_.end(),
                                [&](const auto& peer) { return peer.second.pid == pid; });
  if (used) return;
  processes_.erase(found);
  watch_.Remove(pid);
}

void PayloadSharing::TakeEndedProcesses() {
  if (!on()) return;
  for (const uint64_t pid : watch_.TakeEnded()) Bury(pid);
}

void PayloadSharing::Bury(uint64_t pid) {
  std::erase_if(leases_, [&](const auto& lease) { return lease.second.pid == pid; });
  std::erase_if(returns_due_, [&](const auto& due) {
    if (due.first.first != pid) return false;
    num_returns_due_ -= due.second.size();
    return true;
  });
  processes_.erase(pid);
  for (auto& [id, peer] : peers_) {
    if (peer.pid == pid) peer = Peer{};  // its successor offers, and we offer to it again
  }
}

// ---- what arrives -------------------------------------------------------------------------------

Payload PayloadSharing::Build(SharingPart part) const {
  part.pid = own_pid_;
  return BuildSharingPart(part);
}

void PayloadSharing::Answer(Peer* peer, const absl::Status& result) {
  peer->answer_due =
      result.ok() ? Build({.kind = SharingKind::kAccept})
                  : Build({.kind = SharingKind::kRefuse, .reason = std::string(result.message())});
}

absl::Status PayloadSharing::HandleControl(PeerId id, std::span<const std::byte> bytes) {
  SLIMPS_ASSIGN_OR_RETURN(const SharingPart part, ParseSharingPart(bytes, options_.limits));
  const auto found = peers_.find(id);
  if (found == peers_.end()) return absl::OkStatus();
  Peer& peer = found->second;
  switch (part.kind) {
    case SharingKind::kOffer:
      Answer(&peer, TryOffer(id, part));
      if (on() && !peer.offered) peer.offered = peer.offer_due = true;
      break;
    case SharingKind::kAccept: {
      const absl::Status taken = TakeAccept(id, part.pid);
      peer.accepted = taken.ok();
      refusal_ = std::string(taken.message());
      break;
    }
    case SharingKind::kRefuse:
      peer.accepted = false;
      refusal_ = absl::StrCat("process ", part.pid, " says: ", absl::CHexEscape(part.reason));
      break;
    case SharingKind::kReturn:
      // A peer that came back may return leases before it says which process it is.
      TakeReturned(peer.pid != 0 ? peer.pid : part.pid, part.leases);
      break;
    case SharingKind::kReferences:
      return absl::InvalidArgumentError("references without the frame that they belong to");
  }
  return absl::OkStatus();
}

// The peer is lent to only if the end of its process would be noticed (Meet watches it).
absl::Status PayloadSharing::TakeAccept(PeerId peer, uint64_t pid) {
  if (!on()) return absl::FailedPreconditionError("accepted, though nothing was offered");
  return Meet(peer, pid);
}

void PayloadSharing::TakeReturned(uint64_t pid, std::span<const uint64_t> leases) {
  for (const uint64_t lease : leases) {
    const auto found = leases_.find(lease);
    if (found != leases_.end() && found->second.pid == pid) EndLease(lease);
  }
}

absl::Status PayloadSharing::TryOffer(PeerId peer, const SharingPart& offer) {
  if (!on()) return absl::FailedPreconditionError("shared memory is switched off");
  SLIMPS_RETURN_IF_ERROR(Meet(peer, offer.pid));
  SLIMPS_RETURN_IF_ERROR(processes_.at(offer.pid).segments.Get(offer.segment).status());
  // The process must still live: then the segment that was opened is this process's, not that of a
  // later one with the same number.
  return watch_.Add(offer.pid);
}

absl::StatusOr<std::vector<PayloadSharing::Borrowed>> PayloadSharing::Borrow(
    PeerId id, std::span<const std::byte> bytes) {
  SLIMPS_ASSIGN_OR_RETURN(const SharingPart part, ParseSharingPart(bytes, options_.limits));
  if (part.kind != SharingKind::kReferences) {
    return absl::InvalidArgumentError(absl::StrCat("a frame behind a sharing part of kind ",
                                                   static_cast<int>(part.kind), ", expected ",
                                                   static_cast<int>(SharingKind::kReferences)));
  }
  const auto peer = peers_.find(id);
  if (!on() || peer == peers_.end()) {
    return absl::FailedPreconditionError("references, though shared memory is switched off");
  }
  if (const absl::Status met = Meet(id, part.pid); !met.ok()) {
    for (const PayloadReference& reference : part.references) {
      AddReturn({.peer = id, .pid = part.pid, .lease = reference.lease});
    }
    Answer(&peer->second, met);
    return met;
  }
  Process& process = processes_.at(part.pid);
  std::vector<Borrowed> borrowed;
  absl::Status unreadable, first_error;
  for (const PayloadReference& reference : part.references) {
    auto owner = std::make_shared<BorrowedBytes>(
        returns_, ReturnedLease{.peer = id, .pid = part.pid, .lease = reference.lease});
    ++process.borrowed;
    auto mapping = process.segments.Get(reference.segment);
    // A failure drops `owner`, which returns the lease.
    unreadable.Update(mapping.status());
    first_error.Update(mapping.status());
    if (!mapping.ok()) continue;
    auto range = (*mapping)->Bytes(reference.offset, reference.bytes);
    first_error.Update(range.status());
    if (!range.ok()) continue;
    owner->Keep(*std::move(mapping));
    borrowed.push_back({reference.payload, Payload(std::move(owner), *range)});
  }
  if (!unreadable.ok()) Answer(&peer->second, unreadable);
  if (!first_error.ok()) return first_error;
  return borrowed;
}

// ---- what leaves --------------------------------------------------------------------------------

std::optional<PayloadSharing::Loan> PayloadSharing::Lend(PeerId peer, const Frame& frame) {
  const auto found = peers_.find(peer);
  if (found == peers_.end() || !found->second.accepted) return std::nullopt;
  const uint64_t pid = found->second.pid;
  Process& process = processes_.at(pid);
  Loan loan;
  SharingPart part{.kind = SharingKind::kReferences, .pid = own_pid_};
  loan.parts = {Payload(), frame[0]};
  for (size_t i = 1; i < frame.size(); ++i) {
    const Payload& payload = frame[i];
    std::optional<SharedRange> range;
    if (payload.size() >= options_.min_bytes && IsAligned(payload) &&
        payload.size() <=
            options_.max_leased_bytes - std::min(process.leased_bytes, options_.max_leased_bytes)) {
      range = options_.memory->Find(payload.bytes());
    }
    if (!range) {
      loan.parts.push_back(payload);
      continue;
    }
    const uint64_t lease = next_lease_++;
    part.references.push_back({.payload = static_cast<uint32_t>(i - 1),
                               .segment = range->segment,
                               .offset = range->offset,
                               .bytes = payload.size(),
                               .lease = lease});
    loan.leases.push_back(lease);
    leases_.emplace(lease, Lease{pid, payload});
    loan.lent_bytes += payload.size();
    process.leased_bytes += payload.size();
    ++process.leases;
  }
  if (loan.leases.empty()) return std::nullopt;
  loan.parts[0] = BuildSharingPart(part);
  for (const Payload& sent : loan.parts) loan.inline_bytes += sent.size();
  return loan;
}

void PayloadSharing::TakeBack(const std::vector<uint64_t>& leases) {
  for (const uint64_t lease : leases) EndLease(lease);
}

void PayloadSharing::EndLease(uint64_t id) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return;
  const uint64_t pid = found->second.pid;
  Process& process = processes_.at(pid);
  process.leased_bytes -= found->second.payload.size();
  --process.leases;
  leases_.erase(found);
  ForgetIfUnused(pid);
}

// ---- what is due --------------------------------------------------------------------------------

void PayloadSharing::AddReturn(const ReturnedLease& lease) {
  if (num_returns_due_ >= kMaxReturnsDue) return;
  returns_due_[{lease.pid, lease.peer}].push_back(lease.lease);
  ++num_returns_due_;
}

bool PayloadSharing::HasReturnsDue(uint64_t pid) const {
  const auto first = returns_due_.lower_bound({pid, PeerId{}});
  return first != returns_due_.end() && first->first.first == pid;
}

// Returns the peer that lent. If it is gone, returns all other peers of its process. Those that
// belong to another transport do not know these leases and ignore them.
std::vector<PeerId> PayloadSharing::PeersFor(const Lender& lender) const {
  const auto [pid, id] = lender;
  const auto found = peers_.find(id);
  if (found != peers_.end() && (found->second.pid == pid || processes_.count(pid) == 0)) {
    return {id};
  }
  std::vector<PeerId> peers;
  for (const auto& [other, peer] : peers_) {
    if (peer.pid == pid) peers.push_back(other);
  }
  return peers;
}

void PayloadSharing::BuildReturns(PeerId peer, const Lender& lender,
                                  std::span<const uint64_t> leases,
                                  std::vector<Control>* controls) const {
  while (!leases.empty()) {
    const auto some = leases.first(std::min(leases.size(), kMaxLeasesPerReturn));
    leases = leases.subspan(some.size());
    Control control{.peer = peer, .kind = SharingKind::kReturn};
    for (const uint64_t lease : some) {
      control.returns.push_back({.peer = lender.second, .pid = lender.first, .lease = lease});
    }
    control.part = Build({.kind = control.kind, .leases = {some.begin(), some.end()}});
    controls->push_back(std::move(control));
  }
}

void PayloadSharing::TakeReturns(const std::function<bool(PeerId)>& may_send,
                                 std::vector<Control>* controls) {
  for (const ReturnedLease& lease : returns_->Take()) {
    AddReturn(lease);
    const auto process = processes_.find(lease.pid);
    if (process != processes_.end() && process->second.borrowed > 0) --process->second.borrowed;
  }
  for (auto due = returns_due_.begin(); due != returns_due_.end();) {
    std::vector<PeerId> peers = PeersFor(due->first);
    // A lender that is not connected now may come back while its process lives.
    bool keep = peers.empty() && processes_.count(due->first.first) != 0;
    if (may_send && std::erase_if(peers, [&](PeerId peer) { return !may_send(peer); }) > 0) {
      keep = peers.empty();
    }
    if (keep) {
      ++due;
      continue;
    }
    for (const PeerId peer : peers) BuildReturns(peer, due->first, due->second, controls);
    num_returns_due_ -= due->second.size();
    due = returns_due_.erase(due);
  }
}

std::vector<PayloadSharing::Control> PayloadSharing::TakeControls(
    const std::function<bool(PeerId)>& may_send) {
  std::vector<Control> controls;
  for (auto& [id, peer] : peers_) {
    if ((peer.answer_due.empty() && !peer.offer_due) || (may_send && !may_send(id))) continue;
    if (!peer.answer_due.empty()) {
      controls.push_back({id, std::exchange(peer.answer_due, {}), SharingKind::kAccept, {}});
    }
    if (std::exchange(peer.offer_due, false)) {
      const SharingPart offer{.kind = SharingKind::kOffer, .segment = options_.memory->greeting()};
      controls.push_back({id, Build(offer), SharingKind::kOffer, {}});
    }
  }
  TakeReturns(may_send, &controls);
  return controls;
}

void PayloadSharing::PutBack(Control control) {
  for (const ReturnedLease& lease : control.returns) {
    // The process is remembered again, if it was known only by these returns.
    if (watch_.Add(lease.pid).ok()) processes_.try_emplace(lease.pid);
    AddReturn(lease);
  }
  const auto found = peers_.find(control.peer);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  if (control.kind == SharingKind::kOffer) peer.offer_due = true;
  if (control.kind == SharingKind::kAccept && peer.answer_due.empty()) {
    peer.answer_due = std::move(control.part);
  }
}

}  // namespace slimps
