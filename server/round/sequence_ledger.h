// SPDX-License-Identifier: Apache-2.0
// Counts each push of one partition exactly once under dist_async and dist_ssp. Each worker numbers
// its own pushes from 1, and each push is applied at once. Numbers may arrive out of order within a
// window, because one push may overtake another that is being retried.
//
//   numbers of one worker:
//   [ applied, forgotten | applied, remembered .. clock ][ clock+1 .. clock+kWindow ][ refused ]
//                                                          in any order
//
// dist_ssp bounds the staleness s (Ho et al. 2013). A worker's clock is the number of its pushes
// that were applied without a gap:
//
//   slowest = the least clock of the workers that have not left
//   a worker at clock c may read once  slowest >= c - s   (ReadsFrom): at most s rounds ahead
//   its push c + 1 is accepted once    slowest >= c - s   so a worker that never reads waits too
//
//   SequenceLedger ledger(workers, /*staleness=*/2);
//   auto verdict = ledger.Push(5, worker, hash);               // ResourceExhausted: again later
//   const bool may_read = ledger.slowest() >= ledger.ReadsFrom(worker);
#ifndef SLIMPS_SERVER_ROUND_SEQUENCE_LEDGER_H_
#define SLIMPS_SERVER_ROUND_SEQUENCE_LEDGER_H_

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/round/round_ledger.h"
#include "server/saved/image.h"

namespace slimps {

// Thread-compatible. Pure: no I/O, clock or lock.
class SequenceLedger final {
 public:
  static constexpr uint64_t kWindow = 32;

  // `staleness` nullopt: no worker waits for another.
  explicit SequenceLedger(uint32_t num_workers, std::optional<uint32_t> staleness = std::nullopt)
      : staleness_(staleness), workers_(num_workers) {}

  // Counts push number `sequence` of `worker`. kAccepted: apply it now; it will not be accepted
  // again. kDuplicate: it was applied before.
  // InvalidArgument: no such worker, or sequence 0.
  // AlreadyExists: the sequence came before with another checksum that is still remembered.
  // FailedPrecondition: the worker has left.
  // ResourceExhausted: beyond the window, or too far ahead of the slowest. The worker tries again.
  [[nodiscard]] absl::StatusOr<PushVerdict> Push(uint64_t sequence, uint32_t worker,
                                                 uint64_t checksum);

  // Makes no worker wait for `worker` from its push number `from` on. 0 stands for the number after
  // its highest applied one. The earliest of several calls holds.
  // InvalidArgument: no such worker.
  // FailedPrecondition: that push or a later one was applied.
  [[nodiscard]] absl::Status Leave(uint32_t worker, uint64_t from);

  // Returns how far slowest() must be before `worker` may read. 0: it need not wait.
  uint64_t ReadsFrom(uint32_t worker) const;

  // Returns the least clock of the workers that have not left. A worker that leaves from push n on
  // counts until its push n-1 was applied. Returns the highest number when all have left.
  uint64_t slowest() const { return slowest_; }

  // Returns up to which number all pushes of `worker` were applied.
  // REQUIRES: there is such a worker.
  uint64_t CountedUpTo(uint32_t worker) const { return workers_[worker].clock; }

  void Save(saved::SequenceLedger* fields) const;

  // Takes over what Save saved.
  // REQUIRES: nothing was counted.
  // DataLoss: the ledger saved is one of other workers.
  [[nodiscard]] absl::Status Restore(const saved::SequenceLedger& fields);

  // True if slowest() counts the worker and its clock is below `clock`.
  // REQUIRES: there is such a worker.
  bool IsBelow(uint32_t worker, uint64_t clock) const {
    return workers_[worker].effective_clock() < clock;
  }

  // Returns the workers of which IsBelow is true.
  std::vector<uint32_t> Below(uint64_t clock) const;

 private:
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  struct Entry {
    uint64_t sequence = 0;
    uint64_t checksum = 0;
  };
  struct Worker {
    uint64_t clock = 0;  // all up to here were applied
    uint64_t leaves_from = kNever;
    uint64_t newest = 0;  // the highest sequence applied
    // Holds (clock - kWindow, clock + kWindow], by sequence modulo its size.
    std::array<Entry, 2 * kWindow> ring = {};

    uint64_t effective_clock() const { return clock >= leaves_from - 1 ? kNever : clock; }
  };

  void FindSlowest();

  const std::optional<uint32_t> staleness_;
  std::vector<Worker> workers_;
  uint64_t slowest_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_SEQUENCE_LEDGER_H_
