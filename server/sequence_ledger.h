// Exactly-once counting for one partition under dist_async: each worker numbers its own pushes from 1, and each push is
// applied at once. Numbers may arrive out of order within a window, since a retry may overtake.
//
//   per worker:  [ applied, remembered | applied ... base ][ base+1 .. base+kWindow: any order ][ refused ]
#ifndef SLIMPS_SERVER_SEQUENCE_LEDGER_H_
#define SLIMPS_SERVER_SEQUENCE_LEDGER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/round_ledger.h"

namespace slimps {

// Thread-compatible. Pure: no I/O, clock or lock.
class SequenceLedger final {
 public:
  static constexpr uint64_t kWindow = 32;

  explicit SequenceLedger(uint32_t num_workers) : workers_(num_workers) {}

  // kAccepted: apply it now, it will not be accepted again. InvalidArgument: no such worker, sequence 0. AlreadyExists:
  // the same sequence came with another checksum. FailedPrecondition: too old to remember. ResourceExhausted: beyond
  // the window (the worker tries again).
  [[nodiscard]] absl::StatusOr<PushVerdict> Push(uint64_t sequence, uint32_t worker,
                                                 uint64_t checksum);

 private:
  struct Entry {
    uint64_t sequence = 0;
    uint64_t checksum = 0;
  };
  struct Worker {
    uint64_t base = 0;  // every sequence up to here was applied
    std::array<Entry, 2 * kWindow> ring =
        {};  // (base - kWindow, base + kWindow], by sequence modulo its size
  };

  std::vector<Worker> workers_;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SEQUENCE_LEDGER_H_
