// SPDX-License-Identifier: Apache-2.0
// Keeps the payloads that are lent to other processes, each under a lease, and counts them for each
// process.
//
//   std::optional<LentPayloads::Loan> loan = lent.Lend(pid, own_pid, frame);  // send loan->parts
//   lent.End(lease);                                                          // it was returned
#ifndef SLIMPS_PROTO_NET_SHARED_LENT_PAYLOADS_H_
#define SLIMPS_PROTO_NET_SHARED_LENT_PAYLOADS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "proto/base/buffer.h"
#include "proto/frame.h"
#include "proto/net/shared/shared_memory.h"

namespace slimps {

// Thread-compatible. Owned by a PayloadSharing.
class LentPayloads final {
 public:
  // A frame with payloads replaced by references.
  struct Loan {
    Frame parts;              // to be sent as one message
    size_t inline_bytes = 0;  // the size of `parts`
    size_t lent_bytes = 0;
    std::vector<uint64_t> leases;
  };
  struct Lease {
    uint64_t pid = 0;
    Payload payload;
  };

  // Lends payloads of at least `min_bytes`, and at most `max_leased_bytes` to one process.
  LentPayloads(size_t min_bytes, size_t max_leased_bytes);

  // Lends what can be lent of the frame to the process `pid`. The references name `own_pid` as
  // their sender. Returns nullopt if nothing can be lent.
  std::optional<Loan> Lend(const SharedMemory& memory, uint64_t pid, uint64_t own_pid,
                           const Frame& frame);

  // Ends the lease. Returns the process that had borrowed; nullopt if there is no such lease.
  std::optional<uint64_t> End(uint64_t lease);

  // True if the payload on this lease is lent to the process.
  bool IsLentTo(uint64_t pid, uint64_t lease) const;

  // True if anything is lent to the process.
  bool HasBorrower(uint64_t pid) const;

  bool empty() const { return leases_.empty(); }

  // Forgets the process and ends all its leases.
  void Forget(uint64_t pid);

  // Ends all leases and returns them.
  std::vector<Lease> TakeAll();

 private:
  struct Sum {
    size_t bytes = 0;
    size_t leases = 0;
  };

  std::optional<SharedRange> FindLendable(const SharedMemory& memory, const Sum& lent,
                                          const Payload& payload) const;

  const size_t min_bytes_;
  const size_t max_leased_bytes_;
  uint64_t next_lease_;
  std::unordered_map<uint64_t, Lease> leases_;
  std::map<uint64_t, Sum> by_process_;  // of leases_, by pid
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_SHARED_LENT_PAYLOADS_H_
