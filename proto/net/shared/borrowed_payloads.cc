// SPDX-License-Identifier: Apache-2.0
#include "proto/net/shared/borrowed_payloads.h"

namespace slimps {

BorrowedPayloads::BorrowedPayloads(std::shared_ptr<Wakeup> wakeup)
    : returns_(std::make_shared<LeaseReturns>(std::move(wakeup))) {}

absl::Status BorrowedPayloads::Open(const SegmentName& segment, uint64_t pid) {
  return processes_[pid].segments.Get(segment).status();
}

absl::StatusOr<std::vector<BorrowedPayloads::Borrowed>> BorrowedPayloads::Borrow(
    PeerId peer, const SharingPart& part, absl::Status* unreadable) {
  Process& process = processes_[part.pid];
  std::vector<Borrowed> borrowed;
  absl::Status first_error;
  for (const PayloadReference& reference : part.references) {
    auto owner = std::make_shared<BorrowedBytes>(
        returns_, ReturnedLease{.peer = peer, .pid = part.pid, .lease = reference.lease});
    ++process.borrowed;
    auto mapping = process.segments.Get(reference.segment);
    // A failure drops `owner`, which returns the lease.
    unreadable->Update(mapping.status());
    first_error.Update(mapping.status());
    if (!mapping.ok()) continue;
    auto range = (*mapping)->Bytes(reference.offset, reference.bytes);
    first_error.Update(range.status());
    if (!range.ok()) continue;
    owner->Keep(*std::move(mapping));
    borrowed.push_back({reference.payload, Payload(std::move(owner), *range)});
  }
  if (!first_error.ok()) return first_error;
  return borrowed;
}

void BorrowedPayloads::AddDue(const ReturnedLease& lease) {
  if (num_due_ >= kMaxReturnsDue) return;
  due_[{lease.pid, lease.peer}].push_back(lease.lease);
  ++num_due_;
}

void BorrowedPayloads::CollectReturns() {
  for (const ReturnedLease& lease : returns_->Take()) {
    AddDue(lease);
    const auto process = processes_.find(lease.pid);
    if (process != processes_.end() && process->second.borrowed > 0) --process->second.borrowed;
  }
}

std::vector<BorrowedPayloads::Lender> BorrowedPayloads::Lenders() const {
  std::vector<Lender> lenders;
  for (const auto& [lender, leases] : due_) lenders.push_back(lender);
  return lenders;
}

std::vector<uint64_t> BorrowedPayloads::TakeDue(const Lender& lender) {
  const auto found = due_.find(lender);
  if (found == due_.end()) return {};
  std::vector<uint64_t> leases = std::move(found->second);
  due_.erase(found);
  num_due_ -= leases.size();
  return leases;
}

bool BorrowedPayloads::HasLender(uint64_t pid) const {
  const auto process = processes_.find(pid);
  if (process != processes_.end() && process->second.borrowed > 0) return true;
  const auto first = due_.lower_bound({pid, PeerId{}});
  return first != due_.end() && first->first.first == pid;
}

void BorrowedPayloads::Forget(uint64_t pid) {
  processes_.erase(pid);
  std::erase_if(due_, [&](const auto& due) {
    if (due.first.first != pid) return false;
    num_due_ -= due.second.size();
    return true;
  });
}

}  // namespace slimps
