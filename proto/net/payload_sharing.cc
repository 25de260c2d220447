#include "proto/net/payload_sharing.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// What stopped transports had lent to processes that live on: kept until those have ended. Thread-safe.
class OrphanedLoans final {
 public:
  // Never destroyed: a borrower may outlive anything here.
  static OrphanedLoans& OfProcess() {
    static OrphanedLoans* const loans = new OrphanedLoans();
    return *loans;
  }

  // REQUIRES: the caller knows that the process lives.
  void Keep(uint64_t pid, Payload payload) {
    MutexLock lock(&mutex_);
    if (watch_.Add(pid).ok()) loans_.emplace(pid, std::move(payload));
  }
  void Sweep() {
    std::vector<Payload> released;  // after the lock
    MutexLock lock(&mutex_);
    for (const uint64_t pid : watch_.TakeEnded()) {
      const auto [begin, end] = loans_.equal_range(pid);
      for (auto it = begin; it != end; ++it) released.push_back(std::move(it->second));
      loans_.erase(begin, end);
    }
  }

 private:
  Mutex mutex_;
  ProcessWatch watch_ ABSL_GUARDED_BY(mutex_);
  std::multimap<uint64_t, Payload> loans_ ABSL_GUARDED_BY(mutex_);
};

// So that a lease of an earlier process or transport is not taken for one of ours.
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
  if (on()) OrphanedLoans::OfProcess().Sweep();
}

PayloadSharing::~PayloadSharing() { Close(); }

void PayloadSharing::Close() {
  returns_->Close();
  if (!on()) return;
  for (auto& [id, lease] : leases_) {
    if (watch_.Add(lease.pid).ok()) {
      OrphanedLoans::OfProcess().Keep(lease.pid, std::move(lease.payload));
    }
  }
  leases_.clear();
  OrphanedLoans::OfProcess().Sweep();
}

// ---- peers and their processes ------------------------------------------------------------------

void PayloadSharing::AddPeer(PeerId peer) {
  peers_.try_emplace(peer);
  if (on()) Offer(peer);
}

void PayloadSharing::RemovePeer(PeerId peer) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  const uint64_t pid = found->second.pid;
  peers_.erase(found);
  ForgetIfUnused(pid);
}

void PayloadSharing::Send(PeerId peer, SharingPart part) {
  part.pid = own_pid_;
  controls_.push_back({peer, BuildSharingPart(part)});
}

void PayloadSharing::Offer(PeerId peer) {
  peers_.at(peer).offered = true;
  Send(peer, {.kind = SharingKind::kOffer, .segment = options_.memory->greeting()});
}

absl::Status PayloadSharing::Meet(PeerId id, uint64_t pid) {
  Peer& peer = peers_.at(id);
  SLIMPS_RETURN_IF_ERROR(watch_.Add(pid));
  processes_.try_emplace(pid);
  if (peer.pid == pid) return absl::OkStatus();
  const uint64_t before = std::exchange(peer.pid, pid);
  if (before != 0) {  // another process has taken its place, and knows nothing of us
    peer.offered = peer.accepted = false;
    ForgetIfUnused(before);
  }
  return absl::OkStatus();
}

void PayloadSharing::ForgetIfUnused(uint64_t pid) {
  const auto found = processes_.find(pid);
  if (found == processes_.end() || found->second.leases > 0) return;
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
  processes_.erase(pid);
  for (auto& [id, peer] : peers_) {
    if (peer.pid == pid) peer = Peer{};  // its successor will offer, and be offered to
  }
}

// ---- what arrives -------------------------------------------------------------------------------

absl::Status PayloadSharing::HandleControl(PeerId peer, std::span<const std::byte> bytes) {
  SLIMPS_ASSIGN_OR_RETURN(const SharingPart part, ParseSharingPart(bytes, options_.limits));
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return absl::OkStatus();
  switch (part.kind) {
    case SharingKind::kOffer: {
      const absl::Status tried = TryOffer(peer, part);
      if (tried.ok()) {
        Send(peer, {.kind = SharingKind::kAccept});
      } else {
        Send(peer, {.kind = SharingKind::kRefuse, .reason = std::string(tried.message())});
      }
      if (on() && !found->second.offered) Offer(peer);
      break;
    }
    case SharingKind::kAccept:
      // Lent to only if its end would be noticed.
      found->second.accepted = on() && Meet(peer, part.pid).ok();
      break;
    case SharingKind::kRefuse:
      found->second.accepted = false;
      break;
    case SharingKind::kReturn:
      for (const uint64_t lease : part.leases) EndLease(lease);
      break;
    case SharingKind::kReferences:
      return absl::InvalidArgumentError("references without the frame that they belong to");
  }
  return absl::OkStatus();
}

absl::Status PayloadSharing::TryOffer(PeerId peer, const SharingPart& offer) {
  if (!on()) return absl::FailedPreconditionError("shared memory is switched off");
  SLIMPS_RETURN_IF_ERROR(Meet(peer, offer.pid));
  SLIMPS_RETURN_IF_ERROR(processes_.at(offer.pid).segments.Get(offer.segment).status());
  // Alive still, so that it was this process whose segment was opened.
  return watch_.Add(offer.pid);
}

absl::StatusOr<std::vector<PayloadSharing::Borrowed>> PayloadSharing::Borrow(
    PeerId peer, std::span<const std::byte> bytes) {
  SLIMPS_ASSIGN_OR_RETURN(const SharingPart part, ParseSharingPart(bytes, options_.limits));
  if (part.kind != SharingKind::kReferences) {
    return absl::InvalidArgumentError(absl::StrCat("a frame behind a sharing part of kind ",
                                                   static_cast<int>(part.kind), ", expected ",
                                                   static_cast<int>(SharingKind::kReferences)));
  }
  std::vector<Borrowed> borrowed;
  if (!on() || peers_.count(peer) == 0) {
    return absl::FailedPreconditionError("references, though shared memory is switched off");
  }
  const absl::Status met = Meet(peer, part.pid);
  absl::Status first_error = met;
  for (const PayloadReference& reference : part.references) {
    auto owner = std::make_shared<BorrowedBytes>(
        returns_, ReturnedLease{.peer = peer, .pid = part.pid, .lease = reference.lease});
    if (!met.ok()) continue;
    auto mapping = processes_.at(part.pid).segments.Get(reference.segment);
    if (!mapping.ok()) {
      Send(peer, {.kind = SharingKind::kRefuse, .reason = std::string(mapping.status().message())});
      first_error.Update(mapping.status());
      continue;
    }
    auto range = (*mapping)->Bytes(reference.offset, reference.bytes);
    first_error.Update(range.status());
    if (!range.ok()) continue;
    owner->Keep(*std::move(mapping));
    borrowed.push_back({reference.payload, Payload(std::move(owner), *range)});
  }
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
    leases_.emplace(lease, Lease{pid, payload});
    loan.leases.push_back(lease);
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

std::optional<PeerId> PayloadSharing::PeerFor(const ReturnedLease& lease) const {
  if (peers_.count(lease.peer) != 0) return lease.peer;
  for (const auto& [id, peer] : peers_) {
    if (peer.pid == lease.pid) return id;
  }
  return std::nullopt;
}

std::vector<PayloadSharing::Control> PayloadSharing::TakeControls() {
  std::map<PeerId, std::vector<uint64_t>> returned;
  for (const ReturnedLease& lease : returns_->Take()) {
    const std::optional<PeerId> peer = PeerFor(lease);
    if (!peer) continue;
    std::vector<uint64_t>& leases = returned[*peer];
    leases.push_back(lease.lease);
    if (leases.size() < kMaxLeasesPerReturn) continue;
    Send(*peer, {.kind = SharingKind::kReturn, .leases = std::exchange(leases, {})});
  }
  for (auto& [peer, leases] : returned) {
    if (!leases.empty()) {
      Send(peer, {.kind = SharingKind::kReturn, .leases = std::move(leases)});
    }
  }
  return std::exchange(controls_, {});
}

}  // namespace slimps
