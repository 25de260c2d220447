// SPDX-License-Identifier: Apache-2.0
// Reads payloads that other processes have lent to this one, and keeps the leases that were let go
// of until they are on their way back.
//
//   auto borrowed = payloads.Borrow(peer, references, &unreadable);   // Payloads into the mapping
//   ... any thread: the last copy of a Payload goes ...
//   payloads.CollectReturns();
//   for (const Lender& lender : payloads.Lenders()) ... payloads.TakeDue(lender)   // send a RETURN
#ifndef SLIMPS_PROTO_NET_SHARED_BORROWED_PAYLOADS_H_
#define SLIMPS_PROTO_NET_SHARED_BORROWED_PAYLOADS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/buffer.h"
#include "proto/net/queue/wakeup.h"
#include "proto/net/shared/lease_returns.h"
#include "proto/net/shared/segment_mapping.h"
#include "proto/net/shared/shared_memory.h"
#include "proto/net/shared/sharing_wire.h"
#include "proto/net/transport.h"

namespace slimps {

// Bounds the leases that were let go of and cannot be returned yet. Beyond it a lease is never
// returned and stays lent. A lender of our kind never has that many out: its bound is
// max_leased_bytes / min_bytes.
inline constexpr size_t kMaxReturnsDue = size_t{1} << 18;

// Thread-compatible. Owned by a PayloadSharing.
class BorrowedPayloads final {
 public:
  struct Borrowed {
    size_t payload = 0;  // its number in the frame
    Payload bytes;
  };
  // The process that lent, and the peer through which it did.
  using Lender = std::pair<uint64_t, PeerId>;

  // A payload that is let go of signals `wakeup`.
  explicit BorrowedPayloads(std::shared_ptr<Wakeup> wakeup);

  // Maps the segment, so that it is known to be readable. Errors are those of SegmentCache::Get.
  [[nodiscard]] absl::Status Open(const SegmentName& segment, uint64_t pid);

  // Returns the payloads for which the REFERENCES stand. All leases fall due when they are let go
  // of, whatever the result. Sets *unreadable to the first error of a segment that cannot be read.
  // InvalidArgument: a reference is out of the segment's range.
  // Any error of SegmentCache::Get.
  [[nodiscard]] absl::StatusOr<std::vector<Borrowed>> Borrow(PeerId peer,
                                                             const SharingPart& references,
                                                             absl::Status* unreadable);

  // Makes the lease due to be returned.
  void AddDue(const ReturnedLease& lease);

  // Makes due what any thread has let go of.
  void CollectReturns();

  // Returns those to whom leases are due.
  std::vector<Lender> Lenders() const;

  // Takes the leases that are due to the lender.
  std::vector<uint64_t> TakeDue(const Lender& lender);

  // True if a payload of the process is borrowed or due to be returned.
  bool HasLender(uint64_t pid) const;

  // Forgets the process. What is borrowed from it stays readable.
  void Forget(uint64_t pid);

  // From now on nothing is returned.
  void Close() { returns_->Close(); }

 private:
  struct Process {
    SegmentCache segments;
    size_t borrowed = 0;  // payloads that it lent us and that we have not let go of
  };

  const std::shared_ptr<LeaseReturns> returns_;
  std::map<uint64_t, Process> processes_;  // by pid
  std::map<Lender, std::vector<uint64_t>> due_;
  size_t num_due_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_SHARED_BORROWED_PAYLOADS_H_
