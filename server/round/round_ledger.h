// SPDX-License-Identifier: Apache-2.0
// Counts each push of one partition exactly once under dist_sync. Round r turns version r-1 into
// version r. A round is complete when the push of each active worker has been counted. Pushes of
// rounds version+1 to version+A are accepted (A = rounds_ahead, 2 unless the server has snapshots).
//
//   SLIMPS_ASSIGN_OR_RETURN(PushVerdict verdict, ledger.Push({.round = 7, .worker = 2, ...}));
//   while (ledger.NextRoundComplete()) Apply(ledger.TakeNextRound());
//
// A worker that is away (SetAway) is not waited for: rounds are complete without it. A push may
// also say that its worker is left out of the round. Neither counts among a round's contributions.
//
//   push of round   <= version          version+1 .. version+A           > version+A
//                   checksum decides,   first: accepted, kept            ResourceExhausted
//                   while remembered    repeat: checksum decides
//
// "Checksum decides": an equal or forgotten checksum is acknowledged as a duplicate; another
// checksum is AlreadyExists.
//
// The prefix of the next round is its first contributions in rank order, up to the first that is
// missing. The caller may take the prefix before the round is complete (Prefix, ReleasePrefix). The
// ledger then drops the payloads and keeps their checksums. A push that would extend the prefix is
// always accepted. Any other push is accepted only while the bytes that wait in the server stay
// within their bound. So some worker is always accepted, and each round ends.
#ifndef SLIMPS_SERVER_ROUND_ROUND_LEDGER_H_
#define SLIMPS_SERVER_ROUND_ROUND_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/format/format.h"
#include "proto/base/buffer.h"
#include "proto/partition_limits.h"
#include "server/round/waiting_bytes.h"
#include "server/saved/image.h"

namespace slimps {

enum class PushVerdict { kAccepted, kDuplicate };

struct PushRecord {
  uint64_t round = 0;  // from 1
  uint32_t worker = 0;
  uint64_t checksum = 0;  // of the payload
  PayloadFormat format = PayloadFormat::kAbsent;
  Payload payload;
  bool left_out = false;  // takes no part in the round; kAbsent
};

// What one worker gives to a round. kAbsent counts as zero.
struct Contribution {
  PayloadFormat format = PayloadFormat::kAbsent;
  Payload payload;
};

// Thread-compatible. Pure: no I/O, clock or lock.
class RoundLedger final {
 public:
  static constexpr size_t kRememberedRounds = 8;  // whose checksums are kept

  // `waiting` counts the bytes of the whole server. Null: the ledger makes a count of its own.
  // REQUIRES: num_workers > 0.
  explicit RoundLedger(uint32_t num_workers, std::shared_ptr<WaitingBytes> waiting = nullptr,
                       uint64_t rounds_ahead = kRoundsAhead);
  ~RoundLedger() { waiting_->Remove(waiting_bytes_); }
  RoundLedger(const RoundLedger&) = delete;
  RoundLedger& operator=(const RoundLedger&) = delete;

  // Counts the push of one worker for one round.
  // InvalidArgument: no such worker, or round 0.
  // AlreadyExists: the round was counted for this worker with another checksum.
  // FailedPrecondition: the worker has left.
  // ResourceExhausted: the round is too far ahead, or too many bytes wait in the server and the
  // push does not extend the prefix. The worker tries again.
  [[nodiscard]] absl::StatusOr<PushVerdict> Push(PushRecord push);

  // Makes rounds from `from_round` on complete without `worker`. 0 stands for the worker's first
  // round that was not counted yet. Idempotent; the earliest round of several calls holds.
  // InvalidArgument: no such worker.
  // FailedPrecondition: a push of that round or a later one was counted already.
  [[nodiscard]] absl::Status Leave(uint32_t worker, uint64_t from_round);

  // Waits for the pushes of `worker` no more, until Return. What was counted stays.
  // REQUIRES: there is such a worker.
  void SetAway(uint32_t worker) { away_[worker] = true; }

  // Waits for its pushes again. Where the sum of the next round has passed it already, it is left
  // out of that round.
  // REQUIRES: there is such a worker.
  void Return(uint32_t worker);

  // True if the push of every active worker that is not away was counted for the next round, and
  // there is one. False once all workers have left.
  bool NextRoundComplete() const;

  // Returns the contributions in rank order, without those released before; one of kAbsent if all
  // workers were left out. The version grows by one.
  // REQUIRES: NextRoundComplete().
  std::vector<Contribution> TakeNextRound();

  // Returns the contributions of the next round in rank order that follow those released before, up
  // to the first that is missing.
  std::vector<Contribution> Prefix() const;

  // Drops the payloads that Prefix() returns.
  void ReleasePrefix();

  // Leaves workers whose push of the next round is not waited for out of it for good, also if they
  // return.
  // REQUIRES: NextRoundComplete().
  void CloseNextRound();

  // Returns how many bytes ReleasePrefix would drop.
  size_t prefix_bytes() const;

  // Returns the workers whose push of an applied round had a payload, in rank order; none for
  // round 0.
  // REQUIRES: `round` is version() or one of the kRememberedRounds - 1 rounds before it.
  std::vector<uint32_t> Contributors(uint64_t round) const;

  // Returns the workers whose push of the next round is waited for.
  std::vector<uint32_t> MissingFromNextRound() const;

  // True if the push of the next round is waited for. REQUIRES: there is such a worker.
  bool AwaitsNext(uint32_t worker) const {
    return IsActive(worker, version_ + 1) && !away_[worker] && !HasNext(worker);
  }

  // True if the push of `round` or of an earlier one is waited for.
  // REQUIRES: there is such a worker.
  bool AwaitsUpTo(uint32_t worker, uint64_t round) const {
    const uint64_t first = CountedUpTo(worker) + 1;
    return first <= round && IsActive(worker, first) && !away_[worker];
  }

  // True if some push of the next round was counted.
  bool NextRoundBegun() const;

  // Returns up to which round all pushes of `worker` were counted, or were not expected.
  uint64_t CountedUpTo(uint32_t worker) const;

  // Returns in which rounds the pushes of `worker` were counted.
  wire::Standing StandingOf(uint32_t worker) const;

  // Saves everything. Payloads are shared, not copied.
  void Save(saved::RoundLedger* fields, PartitionImage* image) const;

  // Takes over what Save saved, of payloads for `elements` elements.
  // REQUIRES: nothing was counted.
  // DataLoss: the image has no such ledger.
  [[nodiscard]] absl::Status Restore(const saved::RoundLedger& fields, size_t elements,
                                     const PartitionImage& image);

  uint64_t version() const { return version_; }
  size_t waiting_bytes() const { return waiting_bytes_; }

 private:
  struct Seen {
    bool counted = false;
    uint64_t checksum = 0;
    PayloadFormat format = PayloadFormat::kAbsent;
    bool left_out = false;
  };
  struct Slot {
    Seen seen;
    Payload payload;
  };
  using Round = std::vector<Slot>;  // by worker

  // Restores one open round, in which workers below `released` have no payload any more.
  absl::StatusOr<Round> RestoreRound(const saved::Round& fields, uint32_t released, size_t elements,
                                     const PartitionImage& image) const;
  bool IsActive(uint32_t worker, uint64_t round) const { return round < leaves_from_[worker]; }
  // Counts nothing as the worker's push of the next round, if that is waited for.
  void LeaveOutOfNext(uint32_t worker);
  const Seen* FindSeen(uint64_t round, uint32_t worker) const;
  uint64_t FirstUncounted(uint32_t worker) const;
  // True if the push of the next round was counted.
  bool HasNext(uint32_t worker) const { return !open_.empty() && open_[0][worker].seen.counted; }
  // Returns the first worker, from released_ on, whose push of the next round is waited for.
  // Returns num_workers_ if there is none.
  uint32_t NextInTurn() const;

  const uint32_t num_workers_;
  const std::shared_ptr<WaitingBytes> waiting_;
  const uint64_t rounds_ahead_;
  uint64_t version_ = 0;
  size_t waiting_bytes_ = 0;
  uint32_t released_ = 0;                  // workers below it: payload of the next round released
  std::deque<Round> open_;                 // rounds from version+1 on
  std::deque<std::vector<Seen>> applied_;  // the last rounds; back() is of round version_
  std::vector<uint64_t> leaves_from_;      // by worker: the first round without it, or kNever
  std::vector<bool> away_;                 // by worker
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_ROUND_LEDGER_H_
