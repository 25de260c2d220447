// SPDX-License-Identifier: Apache-2.0
#include "proto/net/shared/payload_sharing.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/net/shared/orphaned_loans.h"

namespace slimps {

PayloadSharing::PayloadSharing(const PayloadSharingOptions& options, std::shared_ptr<Wakeup> wakeup)
    : options_(options),
      own_pid_(static_cast<uint64_t>(getpid())),
      lent_(options.min_bytes, options.max_leased_bytes),
      borrowed_(std::move(wakeup)) {
  // A good moment to drop loans of earlier transports whose borrowers have ended.
  if (on()) OrphanedLoans::OfProcess().Sweep();
}

PayloadSharing::~PayloadSharing() { Close(); }

void PayloadSharing::Close() {
  borrowed_.Close();
  if (!on()) return;
  for (LentPayloads::Lease& lease : lent_.TakeAll()) {
    if (!absl::IsNotFound(peers_.Watch(lease.pid))) {
      OrphanedLoans::OfProcess().Keep(lease.pid, std::move(lease.payload));
    }
  }
  OrphanedLoans::OfProcess().Sweep();
}

// ---- peers and their processes ------------------------------------------------------------------

void PayloadSharing::AddPeer(PeerId id) {
  SharingPeer& added = peers_.Add(id);
  added.offered = added.offer_due = on();
}

void PayloadSharing::RemovePeer(PeerId id) {
  const SharingPeer* const peer = peers_.Find(id);
  if (peer == nullptr) return;
  const uint64_t pid = peer->pid;
  peers_.Remove(id);
  ForgetIfUnused(pid);
}

absl::Status PayloadSharing::Meet(PeerId id, uint64_t pid) {
  const uint64_t before = peers_.Find(id)->pid;
  SLIMPS_RETURN_IF_ERROR(peers_.Identify(id, pid));
  if (before != pid) ForgetIfUnused(before);
  return absl::OkStatus();
}

void PayloadSharing::ForgetIfUnused(uint64_t pid) {
  if (lent_.HasBorrower(pid) || borrowed_.HasLender(pid) || peers_.HasPeerOf(pid)) return;
  Forget(pid);
  peers_.Unwatch(pid);
}

void PayloadSharing::TakeEndedProcesses() {
  if (!on()) return;
  for (const uint64_t pid : peers_.TakeEnded()) Forget(pid);
}

void PayloadSharing::Forget(uint64_t pid) {
  lent_.Forget(pid);
  borrowed_.Forget(pid);
}

// ---- what arrives -------------------------------------------------------------------------------

Payload PayloadSharing::Build(SharingPart part) const {
  part.pid = own_pid_;
  return BuildSharingPart(part);
}

void PayloadSharing::Answer(SharingPeer* peer, const absl::Status& result) {
  peer->answer_due =
      result.ok() ? Build({.kind = SharingKind::kAccept})
                  : Build({.kind = SharingKind::kRefuse, .reason = std::string(result.message())});
}

absl::Status PayloadSharing::HandleControl(PeerId id, std::span<const std::byte> bytes) {
  SLIMPS_ASSIGN_OR_RETURN(const SharingPart part, ParseSharingPart(bytes, options_.limits));
  SharingPeer* const peer = peers_.Find(id);
  if (peer == nullptr) return absl::OkStatus();
  switch (part.kind) {
    case SharingKind::kOffer:
      Answer(peer, TryOffer(id, part));
      if (on() && !peer->offered) peer->offered = peer->offer_due = true;
      break;
    case SharingKind::kAccept: {
      const absl::Status taken = TakeAccept(id, part.pid);
      peer->accepted = taken.ok();
      refusal_ = std::string(taken.message());
      break;
    }
    case SharingKind::kRefuse:
      peer->accepted = false;
      refusal_ = absl::StrCat("process ", part.pid, " says: ", absl::CHexEscape(part.reason));
      break;
    case SharingKind::kReturn: {
      // A peer that came back may return leases before it says which process it is.
      const uint64_t pid = peer->pid != 0 ? peer->pid : part.pid;
      // It cannot end leases of other processes.
      for (const uint64_t lease : part.leases) {
        if (lent_.IsLentTo(pid, lease)) EndLease(lease);
      }
      break;
    }
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

absl::Status PayloadSharing::TryOffer(PeerId peer, const SharingPart& offer) {
  if (!on()) return absl::FailedPreconditionError("shared memory is switched off");
  SLIMPS_RETURN_IF_ERROR(Meet(peer, offer.pid));
  SLIMPS_RETURN_IF_ERROR(borrowed_.Open(offer.segment, offer.pid));
  // The process must still live: then the segment that was opened is this process's, not that of a
  // later one with the same number.
  return peers_.Watch(offer.pid);
}

absl::StatusOr<std::vector<PayloadSharing::Borrowed>> PayloadSharing::Borrow(
    PeerId id, std::span<const std::byte> bytes) {
  SLIMPS_ASSIGN_OR_RETURN(const SharingPart part, ParseSharingPart(bytes, options_.limits));
  if (part.kind != SharingKind::kReferences) {
    return absl::InvalidArgumentError(absl::StrCat("a frame behind a sharing part of kind ",
                                                   static_cast<int>(part.kind), ", expected ",
                                                   static_cast<int>(SharingKind::kReferences)));
  }
  SharingPeer* const peer = peers_.Find(id);
  if (!on() || peer == nullptr) {
    return absl::FailedPreconditionError("references, though shared memory is switched off");
  }
  if (const absl::Status met = Meet(id, part.pid); !met.ok()) {
    for (const PayloadReference& reference : part.references) {
      borrowed_.AddDue({.peer = id, .pid = part.pid, .lease = reference.lease});
    }
    Answer(peer, met);
    return met;
  }
  absl::Status unreadable;
  absl::StatusOr<std::vector<Borrowed>> borrowed = borrowed_.Borrow(id, part, &unreadable);
  if (!unreadable.ok()) Answer(peer, unreadable);
  return borrowed;
}

// ---- what leaves --------------------------------------------------------------------------------

std::optional<PayloadSharing::Loan> PayloadSharing::Lend(PeerId id, const Frame& frame) {
  const SharingPeer* const peer = peers_.Find(id);
  if (peer == nullptr || !peer->accepted) return std::nullopt;
  return lent_.Lend(*options_.memory, peer->pid, own_pid_, frame);
}

void PayloadSharing::TakeBack(const std::vector<uint64_t>& leases) {
  for (const uint64_t lease : leases) EndLease(lease);
}

void PayloadSharing::EndLease(uint64_t lease) {
  if (const std::optional<uint64_t> borrower = lent_.End(lease)) ForgetIfUnused(*borrower);
}

std::vector<PayloadSharing::Control> PayloadSharing::TakeControls(
    const std::function<bool(PeerId)>& may_send) {
  std::vector<Control> controls;
  for (auto& [id, peer] : peers_.all()) {
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

void PayloadSharing::TakeReturns(const std::function<bool(PeerId)>& may_send,
                                 std::vector<Control>* controls) {
  borrowed_.CollectReturns();
  for (const BorrowedPayloads::Lender& lender : borrowed_.Lenders()) {
    const auto [pid, id] = lender;
    std::vector<PeerId> ways = peers_.WaysTo(id, pid);
    // A lender that is not connected now may come back while its process lives.
    bool keep = ways.empty() && peers_.Knows(pid);
    if (may_send && std::erase_if(ways, [&](PeerId way) { return !may_send(way); }) > 0) {
      keep = ways.empty();
    }
    if (keep) continue;
    const std::vector<uint64_t> leases = borrowed_.TakeDue(lender);
    for (const PeerId way : ways) BuildReturns(way, lender, leases, controls);
  }
}

void PayloadSharing::BuildReturns(PeerId peer, const BorrowedPayloads::Lender& lender,
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

void PayloadSharing::PutBack(Control control) {
  for (const ReturnedLease& lease : control.returns) {
    // The process is remembered again, if it was known only by these returns.
    peers_.Watch(lease.pid).IgnoreError();
    borrowed_.AddDue(lease);
  }
  SharingPeer* const peer = peers_.Find(control.peer);
  if (peer == nullptr) return;
  if (control.kind == SharingKind::kOffer) peer->offer_due = true;
  if (control.kind == SharingKind::kAccept && peer->answer_due.empty()) {
    peer->answer_due = std::move(control.part);
  }
}

}  // namespace slimps
