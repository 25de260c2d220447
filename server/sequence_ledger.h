// Exactly-once counting for one partition under dist_async and dist_ssp: each worker numbers its own pushes from 1, and
// each push is applied at once. Numbers may arrive out of order within a window, since a retry may overtake.
//
//   per worker:  [ applied, forgotten | applied, remembered ... clock ][ clock+1 .. clock+kWindow: any order ][ refused ]
//
// dist_ssp bounds the staleness s (Ho et al. 2013). A worker's clock is how many of its pushes were applied without a gap:
//
//   slowest = the least clock of the workers that have not left
//   worker at clock c reads once  slowest >= c - s    ReadsFrom; a worker that reads is at most s rounds ahead
//   its push c + 1 is taken once  slowest >= c - s    so who never reads is held back too
//
//   SequenceLedger ledger(workers, /*staleness=*/2);
//   auto verdict = ledger.Push(5, worker, hash);                 // ResourceExhausted: try again later
//   const bool may_read = ledger.slowest() >= ledger.ReadsFrom(worker);
#ifndef SLIMPS_SERVER_SEQUENCE_LEDGER_H_
#define SLIMPS_SERVER_SEQUENCE_LEDGER_H_

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/round_ledger.h"

namespace slimps {

// Thread-compatible. Pure: no I/O, clock or lock.
class SequenceLedger final {
 public:
  static constexpr uint64_t kWindow = 32;

  // nullopt: nobody waits for anybody.
  explicit SequenceLedger(uint32_t num_workers, std::optional<uint32_t> staleness = std::nullopt)
      : staleness_(staleness), workers_(num_workers) {}

  // kAccepted: apply it now, it will not be accepted again. InvalidArgument: no such worker, sequence 0. AlreadyExists:
  // the same sequence came with another checksum, and is remembered. FailedPrecondition: the worker has left.
  // ResourceExhausted: beyond the window, or too far ahead of the slowest (the worker tries again).
  [[nodiscard]] absl::StatusOr<PushVerdict> Push(uint64_t sequence, uint32_t worker,
                                                 uint64_t checksum);

  // From push `from` on nobody waits for `worker`; 0 stands for its first one not yet applied. The earliest counts.
  // FailedPrecondition: that push or a later one was applied.
  [[nodiscard]] absl::Status Leave(uint32_t worker, uint64_t from);

  // How far the slowest must be before `worker` may read; 0: it need not wait.
  uint64_t ReadsFrom(uint32_t worker) const;
  // The least clock of those who have not left; the highest number when all have.
  uint64_t slowest() const { return slowest_; }
  // Who has not left and whose clock is below `clock`.
  std::vector<uint32_t> Below(uint64_t clock) const;

 private:
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  struct Entry {
    uint64_t sequence = 0;
    uint64_t checksum = 0;
  };
  struct Worker {
    uint64_t clock = 0;  // every sequence up to here was applied
    uint64_t leaves_from = kNever;
    uint64_t newest = 0;  // the highest sequence applied
    std::array<Entry, 2 * kWindow> ring =
        {};  // (clock - kWindow, clock + kWindow], by sequence modulo its size

    uint64_t effective_clock() const { return clock >= leaves_from - 1 ? kNever : clock; }
  };

  void FindSlowest();

  const std::optional<uint32_t> staleness_;
  std::vector<Worker> workers_;
  uint64_t slowest_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SEQUENCE_LEDGER_H_
