// SPDX-License-Identifier: Apache-2.0
#include "proto/net/shared/lent_payloads.h"

#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "proto/net/shared/sharing_wire.h"

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

LentPayloads::LentPayloads(size_t min_bytes, size_t max_leased_bytes)
    : min_bytes_(min_bytes), max_leased_bytes_(max_leased_bytes), next_lease_(RandomLease()) {}

std::optional<SharedRange> LentPayloads::FindLendable(const SharedMemory& memory, const Sum& lent,
                                                      const Payload& payload) const {
  const size_t room = max_leased_bytes_ - std::min(lent.bytes, max_leased_bytes_);
  if (payload.size() < min_bytes_ || !IsAligned(payload) || payload.size() > room) {
    return std::nullopt;
  }
  return memory.Find(payload.bytes());
}

std::optional<LentPayloads::Loan> LentPayloads::Lend(const SharedMemory& memory, uint64_t pid,
                                                     uint64_t own_pid, const Frame& frame) {
  Sum& lent = by_process_[pid];
  Loan loan;
  SharingPart part{.kind = SharingKind::kReferences, .pid = own_pid};
  loan.parts = {Payload(), frame[0]};
  for (size_t i = 1; i < frame.size(); ++i) {
    const Payload& payload = frame[i];
    const std::optional<SharedRange> range = FindLendable(memory, lent, payload);
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
    lent.bytes += payload.size();
    ++lent.leases;
  }
  if (loan.leases.empty()) return std::nullopt;
  loan.parts[0] = BuildSharingPart(part);
  for (const Payload& sent : loan.parts) loan.inline_bytes += sent.size();
  return loan;
}

std::optional<uint64_t> LentPayloads::End(uint64_t lease) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return std::nullopt;
  const uint64_t pid = found->second.pid;
  Sum& lent = by_process_.at(pid);
  lent.bytes -= found->second.payload.size();
  --lent.leases;
  leases_.erase(found);
  return pid;
}

bool LentPayloads::IsLentTo(uint64_t pid, uint64_t lease) const {
  const auto found = leases_.find(lease);
  return found != leases_.end() && found->second.pid == pid;
}

bool LentPayloads::HasBorrower(uint64_t pid) const {
  const auto found = by_process_.find(pid);
  return found != by_process_.end() && found->second.leases > 0;
}

void LentPayloads::Forget(uint64_t pid) {
  if (HasBorrower(pid)) {
    std::erase_if(leases_, [&](const auto& lease) { return lease.second.pid == pid; });
  }
  by_process_.erase(pid);
}

std::vector<LentPayloads::Lease> LentPayloads::TakeAll() {
  by_process_.clear();
  std::vector<Lease> all;
  all.reserve(leases_.size());
  for (auto& [id, lease] : std::exchange(leases_, {})) all.push_back(std::move(lease));
  return all;
}

}  // namespace slimps
