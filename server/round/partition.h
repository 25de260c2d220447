// SPDX-License-Identifier: Apache-2.0
// One partition of a key on its server: fp32 weights by version, optimizer state, and which worker
// has pushed what. It checks pushes, has them counted, and applies them. Its parts:
//
//   push --check--> OpenRounds (dist_sync) ------complete?-----+--> StatefulOptimizer: one pass
//               \-> SequenceLedger (dist_async, dist_ssp) -----+    over memory (aggregate.h)
//                                                                         | next version
//   pull <---- VersionedWeights <---- change, if any ---- MasterWeights <-+
//
// A round of an auxiliary key is combined (CombineRound), and no optimizer steps it. A round that
// is clipped is measured when it is complete, and stepped when its scale is known
// (clipped_rounds.h).
//
// The sum is taken in rank order, so its bits do not depend on the order of arrival. Under
// dist_async and dist_ssp each push is applied as it is counted, and the version counts pushes.
// dist_ssp also bounds who may read.
#ifndef SLIMPS_SERVER_ROUND_PARTITION_H_
#define SLIMPS_SERVER_ROUND_PARTITION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/format/sum.h"
#include "proto/slimps.pb.h"
#include "server/clipping/clipped_rounds.h"
#include "server/round/change_codecs.h"
#include "server/round/master_weights.h"
#include "server/round/open_rounds.h"
#include "server/round/optimizer.h"
#include "server/round/partition_spec.h"
#include "server/round/round_ledger.h"
#include "server/round/sequence_ledger.h"
#include "server/round/stateful_optimizer.h"
#include "server/round/versioned_weights.h"
#include "server/saved/image.h"

namespace slimps {

// What a push carries.
// kNothing: the worker takes no part in the round.
// kClippedGradient: the round's step waits for ScaleRound.
enum class PushedAs { kGradient, kMomentum, kNothing, kClippedGradient };

// Owned by the shard thread. No I/O, clock or lock.
class Partition final {
 public:
  // Makes version 0 from rank 0's value; kAbsent means zeros. Sets spec.hashing to whether `value`
  // carries a checksum.
  // REQUIRES: spec.elements is within its limit; `optimizer` is not null.
  // InvalidArgument or DataLoss: the payload is malformed.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Partition>> Create(
      PartitionSpec spec, const ClaimedPayload& value, std::shared_ptr<const Optimizer> optimizer);

  // Makes the partition that Save has saved, in the state that it had then. `waiting` counts the
  // bytes of open rounds; null: a count of its own. `codecs` has the codecs that pushes named.
  // DataLoss: the image is not one of a partition.
  // InvalidArgument: this build does not know its codec or optimizer.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Partition>> Restore(
      const PartitionImage& image, std::shared_ptr<WaitingBytes> waiting, ChangeCodecs* codecs);

  // Returns all that later rounds and pulls depend on. Copies what is stepped in place, and shares
  // the rest. Throws std::bad_alloc.
  PartitionImage Save(ImageUse use = ImageUse::kSnapshot) const;

  // Returns OK if a partition of this spec was initialised as this one.
  // InvalidArgument: it was not (says what differs).
  [[nodiscard]] absl::Status CheckAlike(const saved::Spec& spec) const;

  // Makes a partition that was initialised as this one, in the state of a checkpoint's image.
  // Errors: those of CheckAlike and Restore.
  [[nodiscard]] absl::StatusOr<std::unique_ptr<Partition>> Successor(const PartitionImage& image,
                                                                     ChangeCodecs* codecs) const;

  // Returns up to which round, or which of its own pushes, all that `worker` pushed was counted
  // and, where it is clipped, its scale is known.
  // REQUIRES: there is such a worker.
  uint64_t CountedUpTo(uint32_t worker) const;

  // Returns in which rounds the pushes of `worker` were counted.
  // FailedPrecondition: the mode has no rounds.
  [[nodiscard]] absl::StatusOr<wire::Standing> StandingOf(uint32_t worker) const;

  // Returns OK if this is the same initialisation again.
  // AlreadyExists: another value or shape.
  [[nodiscard]] absl::Status CheckRepeatedInit(const PartitionSpec& spec, uint64_t checksum) const;

  // Checks the payload and counts it. Under dist_async and dist_ssp also applies it, with its own
  // `hyper`. `change` null: the round's version is pulled as it is. `hyper` nullopt: the
  // optimizer's own numbers hold.
  // Errors, besides the ledgers':
  // InvalidArgument or DataLoss: the payload is malformed.
  // InvalidArgument: `elements` differs from the partition's (an auxiliary key also takes its first
  // rows), `hyper` is out of range, or `change` is given outside dist_sync.
  // InvalidArgument: a payload of a worker that takes no part, or dist_async or dist_ssp.
  // InvalidArgument: `unmasked`, which only momenta have, are no runs (frozen_variance.h).
  // FailedPrecondition: dist_async or dist_ssp without an optimizer. Or a momentum where the
  // optimizer expects a gradient, or the reverse. Or a clipped gradient where none can be clipped:
  // an auxiliary key, a majority, dist_async, dist_ssp, no optimizer, ONEBIT_ADAM.
  // ResourceExhausted: ONEBIT_ADAM takes no push before the round before it is applied.
  [[nodiscard]] absl::StatusOr<PushVerdict> Push(
      uint64_t round, uint32_t worker, size_t elements, ClaimedPayload claimed,
      std::shared_ptr<const ChangeCodec> change = nullptr,
      std::optional<wire::Hyper> hyper = std::nullopt, PushedAs pushed_as = PushedAs::kGradient,
      std::span<const uint32_t> unmasked = {});

  // Says what the mean gradient of a clipped round is multiplied by; 0: the step is skipped.
  // InvalidArgument: round 0, or a scale that is not in 0 to 1.
  // FailedPrecondition: none can be clipped (Push).
  // AlreadyExists: another scale came before.
  // ResourceExhausted: the round is too far ahead.
  [[nodiscard]] absl::StatusOr<PushVerdict> ScaleRound(uint64_t round, uint32_t worker,
                                                       double scale);

  // Takes `worker` out, as the mode's ledger does. Under dist_async it has no effect, because no
  // worker waits for another.
  [[nodiscard]] absl::Status Leave(uint32_t worker, uint64_t from_round);

  // Waits for `worker` no more. Under dist_sync, until Return. Idempotent.
  void SetAway(uint32_t worker);

  // Waits again for `worker`, if it was away (RoundLedger::Return).
  void Return(uint32_t worker) {
    if (!applies_at_once()) rounds_.Return(worker);
  }

  // Replaces the optimizer from the next applied round on (StatefulOptimizer::Replace). Auxiliary
  // keys have none.
  void SetOptimizer(std::shared_ptr<const Optimizer> optimizer);

  // True if the next round can be applied, or measured.
  bool HasCompleteRound() const {
    return rounds_.ledger().NextRoundComplete() &&
           (MustMeasureNext() || !clipped_.AwaitsScale(version() + 1));
  }
  bool MustMeasureNext() const { return clipped_.MustMeasure(version() + 1); }

  // Measures the next round's mean gradient; no worker comes to the round any more.
  // REQUIRES: HasCompleteRound() and MustMeasureNext(). Throws std::bad_alloc, and may then be
  // called again.
  void MeasureNextRound();

  // Returns the newest round whose Norm2 is known.
  uint64_t measured() const {
    const uint64_t next = version() + 1;
    return clipped_.Norm2(next).has_value() ? next : version();
  }

  // Returns the sum of squares of a round's mean gradient; 0: it was not clipped.
  // FailedPrecondition: it is known no more.
  // REQUIRES: round <= measured().
  [[nodiscard]] absl::StatusOr<double> Norm2(uint64_t round) const;

  // Dist_sync: true if somebody has pushed the next round.
  bool NextRoundBegun() const { return rounds_.ledger().NextRoundBegun(); }

  // True if a pull that needs `clock` (dist_ssp) or the next round waits for this worker.
  bool WaitsFor(uint32_t worker, uint64_t clock) const {
    return applies_at_once() ? sequences_.IsBelow(worker, clock)
                             : rounds_.ledger().AwaitsNext(worker);
  }

  // Applies the next round: the version grows by one.
  // REQUIRES: HasCompleteRound() and not MustMeasureNext().
  void ApplyNextRound();

  uint64_t version() const { return weights_.versions().version(); }

  // Returns OK if `version` is the current one or, under dist_sync, the one before.
  // FailedPrecondition: it is neither.
  [[nodiscard]] absl::Status CheckHeld(uint64_t version) const;

  // Returns version `wanted`, of an auxiliary key with its contributors. `held` is the version that
  // the puller can add a change to.
  // REQUIRES: CheckHeld(wanted) is OK.
  WireValue Share(uint64_t wanted, std::optional<uint64_t> held = std::nullopt);

  // Returns a copy of `rows` of version `wanted`, one after another, as workers see them.
  // REQUIRES: CheckHeld(wanted) is OK; rows are rising and below spec().grid().rows().
  WireValue ShareRows(uint64_t wanted, std::span<const uint32_t> rows);

  // Returns a copy of one tensor of the optimizer's state (StatefulOptimizer::Share).
  WireValue ShareState(wire::OptimizerState* state) const;

  // Returns what an answer of `version` says of momenta; nullopt: nothing, or that version is not
  // the current one.
  std::optional<wire::MomentumExchange> MomentumOf(uint64_t version) const {
    return version == this->version() ? optimizer_.exchange() : std::nullopt;
  }

  // Puts back one tensor of the optimizer's state (StatefulOptimizer::Put).
  [[nodiscard]] absl::Status PutState(const wire::OptimizerState& state,
                                      const ClaimedPayload& value);

  // Returns the clock that slowest() must reach before a pull of `worker` that comes now is
  // answered (dist_ssp; sequence_ledger.h). Returns 0 in other modes: no pull waits for a worker.
  uint64_t ReadsFrom(uint32_t worker) const { return sequences_.ReadsFrom(worker); }
  uint64_t slowest() const { return sequences_.slowest(); }

  // Returns why a pull of version `wanted`, which waits for the slowest worker to come to `clock`,
  // is not answered: "version 4 wanted, 3 held; round 4 lacks the push of workers 1, 2".
  std::string DescribeWait(uint64_t wanted, uint64_t clock = 0) const;

  // Returns OK if a pull of version `wanted`, which waits for the slowest worker to come to
  // `clock`, can be answered one day.
  // FailedPrecondition: it waits for a push of a worker of `ended`, who push no more. The message
  // names the round, the worker's last one, and what that worker should have called.
  [[nodiscard]] absl::Status CheckComes(const std::set<uint32_t>& ended, uint64_t wanted,
                                        uint64_t clock) const;

  // Same for a push of `round` that was refused because earlier ones must be counted first.
  [[nodiscard]] absl::Status CheckPushComes(const std::set<uint32_t>& ended, uint64_t round) const;

  bool applies_at_once() const { return spec_.applies_at_once(); }
  const PartitionSpec& spec() const { return spec_; }
  std::span<const float> weights() const { return weights_.current(); }

  // Returns the weights as workers see them, before any conversion to half precision.
  std::span<const float> seen() const { return weights_.versions().current(); }

 private:
  // REQUIRES: spec.waiting.
  Partition(PartitionSpec spec, uint64_t checksum, std::shared_ptr<const Optimizer> optimizer);

  absl::Status CheckPush(size_t elements, const ClaimedPayload& claimed,
                         const std::optional<wire::Hyper>& hyper) const;
  absl::StatusOr<PushVerdict> PushAtOnce(uint64_t sequence, uint32_t worker, ClaimedPayload claimed,
                                         const ChangeCodec* change,
                                         std::optional<wire::Hyper> hyper);
  // Checks that round `round` is one of momenta or of gradients, as `pushed_as` says, and that it
  // can unmask these runs.
  absl::Status CheckPushedAs(uint64_t round, PushedAs pushed_as,
                             std::span<const uint32_t> unmasked) const;
  static absl::StatusOr<std::unique_ptr<Partition>> Restore(const PartitionImage& image,
                                                            PartitionSpec spec, uint64_t checksum,
                                                            ChangeCodecs* codecs);
  // Makes the next version of views_, which hold the round of so many workers.
  void Apply(uint32_t contributors, std::optional<wire::Hyper> hyper,
             const MasterWeights::Next& next);
  void StepRound(uint32_t contributors, std::optional<wire::Hyper> hyper,
                 const MasterWeights::Next& next);
  // Returns FailedPrecondition if rounds cannot be clipped.
  absl::Status CheckCanClip() const;
  void ApplyMomenta(uint32_t contributors, OpenRounds::Choice choice);
  // Without an optimizer the version is the round's sum. Where servers sum integers (lanes.h), they
  // leave it so, and each worker decodes it once. Returns false where they do not, where the sum
  // has no valid payload, or where integers are no smaller.
  bool AnswerByLanes();
  // Fills views_ by the round's contributions, and returns how many workers contributed.
  uint32_t Gather(std::span<const Contribution> contributions);
  absl::Status Annotate(const absl::Status& status) const;

  const PartitionSpec spec_;
  const uint64_t init_checksum_;
  MasterWeights weights_;
  StatefulOptimizer optimizer_;
  OpenRounds rounds_;               // dist_sync
  ClippedRounds clipped_;           // likewise
  SequenceLedger sequences_;        // dist_async, dist_ssp
  std::vector<PayloadView> views_;  // of the round being applied; has room for all workers
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_PARTITION_H_
