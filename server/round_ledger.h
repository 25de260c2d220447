// Exactly-once counting for one partition under dist_sync. Round r turns version r-1 into version r; it is complete when
// the push of each active worker has been counted once. Pushes of rounds version+1 and version+2 are accepted.
//
//   SLIMPS_ASSIGN_OR_RETURN(PushVerdict verdict, ledger.Push({.round = 7, .worker = 2, .checksum = hash, ...}));
//   while (ledger.NextRoundComplete()) Apply(ledger.TakeNextRound());
//
//   push of round   <= version          version+1, version+2             > version+2
//                   checksum decides,   first: accepted, kept            ResourceExhausted
//                   while remembered    repeat: checksum decides
//   checksum equal, or forgotten: acknowledged as a duplicate; different: AlreadyExists.
//
// The next round's first contributions, in rank order and without a gap, may be taken before it is complete (Prefix,
// ReleasePrefix): their payloads are let go of, what is remembered of them stays. Whose push would prolong them is always
// let in; others only while the server's bytes that wait are within their bound. So some worker is always let in, and
// each round ends.
#ifndef SLIMPS_SERVER_ROUND_LEDGER_H_
#define SLIMPS_SERVER_ROUND_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/format/format.h"
#include "proto/base/buffer.h"
#include "server/waiting_bytes.h"

namespace slimps {

enum class PushVerdict { kAccepted, kDuplicate };

struct PushRecord {
  uint64_t round = 0;  // from 1
  uint32_t worker = 0;
  uint64_t checksum = 0;  // of the payload
  PayloadFormat format = PayloadFormat::kAbsent;
  Payload payload;
};

// What one worker gives to a round; kAbsent is a zero.
struct Contribution {
  PayloadFormat format = PayloadFormat::kAbsent;
  Payload payload;
};

// Thread-compatible. Pure: no I/O, clock or lock.
class RoundLedger final {
 public:
  static constexpr uint64_t kRoundsAhead = 2;
  static constexpr size_t kRememberedRounds = 8;  // with their checksums

  // `waiting` is the server's; null: one of this ledger's own. REQUIRES: num_workers > 0.
  explicit RoundLedger(uint32_t num_workers, std::shared_ptr<WaitingBytes> waiting = nullptr);
  ~RoundLedger() { waiting_->Remove(waiting_bytes_); }
  RoundLedger(const RoundLedger&) = delete;
  RoundLedger& operator=(const RoundLedger&) = delete;

  // InvalidArgument: no such worker, round 0. AlreadyExists: this round was counted with another checksum.
  // FailedPrecondition: the worker has left. ResourceExhausted: too far ahead, or too many bytes waiting in the server
  // and not this worker's turn in the next round (the worker tries again).
  [[nodiscard]] absl::StatusOr<PushVerdict> Push(PushRecord push);

  // Rounds from `from_round` on are complete without `worker`; 0 stands for its first round not yet counted. Idempotent.
  // FailedPrecondition: a push of that round or a later one was counted already.
  [[nodiscard]] absl::Status Leave(uint32_t worker, uint64_t from_round);

  bool NextRoundComplete() const;
  // The contributions of the active workers in rank order, but for those released before; the version grows by one.
  // REQUIRES: NextRoundComplete().
  std::vector<Contribution> TakeNextRound();
  // Of the next round, the contributions in rank order that follow those released before, up to the first that is
  // missing.
  std::vector<Contribution> Prefix() const;
  // Lets go of the payloads that Prefix() gives.
  void ReleasePrefix();

  // Of what Prefix() gives.
  size_t prefix_bytes() const;
  // Active workers whose push of the next round has not come.
  std::vector<uint32_t> MissingFromNextRound() const;
  uint64_t version() const { return version_; }
  size_t waiting_bytes() const { return waiting_bytes_; }

 private:
  struct Seen {
    bool counted = false;
    uint64_t checksum = 0;
    PayloadFormat format = PayloadFormat::kAbsent;
  };
  struct Slot {
    Seen seen;
    Payload payload;
  };
  using Round = std::vector<Slot>;  // by worker

  bool IsActive(uint32_t worker, uint64_t round) const { return round < leaves_from_[worker]; }
  const Seen* FindSeen(uint64_t round, uint32_t worker) const;
  uint64_t FirstUncounted(uint32_t worker) const;
  // The first active worker whose push of the next round has not come; else num_workers_.
  uint32_t NextInTurn() const;

  const uint32_t num_workers_;
  const std::shared_ptr<WaitingBytes> waiting_;
  uint64_t version_ = 0;
  size_t waiting_bytes_ = 0;
  uint32_t released_ = 0;   // workers below it have given their payloads of the next round away
  std::deque<Round> open_;  // rounds version+1 on
  std::deque<std::vector<Seen>> applied_;  // the last rounds; back() is `version_`
  std::vector<uint64_t> leaves_from_;      // by worker; kNever
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_LEDGER_H_
