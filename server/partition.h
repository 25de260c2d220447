// One partition of a key on its server: fp32 weights by version, optimizer state, and who has pushed what.
//
//   push --Check--> ledger: counted once --complete?--> ApplyNextRound: one pass over memory (aggregate.h)
//
// The order of the sum is that of the ranks, so the bits do not depend on the order of arrival. Where many bytes wait in
// the server, what has come of a round without a gap in the ranks is summed before the rest is there (partial_sum.h). Under dist_async each
// push is applied as it is counted, and the version counts pushes; dist_ssp is the same with a bound on who may read.
//
// Each push names how the version that its round makes is to be pulled (ChangeCodec); where they differ, the lowest rank's
// counts. With w the weights and w_seen what workers see of them:
//   as it is, half precision   the weights themselves, in that precision: w_seen is what it makes of w, and nothing is
//                              left behind
//   as a change                x = w - w_seen of the version before; w_seen += decode(encode(x)). The encoded x goes to
//                              those who hold the version before, w_seen in fp32 to all others
//
// A push may also bring the learning rate and weight decay of its round's step; of a round's, those of the lowest rank that
// brings them count. Under dist_async and dist_ssp each push's own do.
//
// A round in which nobody pushed but rows (rows.h) steps those rows alone, whoever of the workers pushed them, and leaves
// other rows and their state as they are; one in which all workers contributed nothing steps none and does not count as
// an update. Without an optimizer the sum, zero in all other rows, replaces the weights, as any round's does.
//
// So every worker that pulls a version gets the same bits of it, whatever it held. A change that cannot be encoded, or
// is no smaller than the weights, makes its version one that is pulled as it is. From the first change on, w is kept
// beside w_seen and stepped in place.
#ifndef SLIMPS_SERVER_PARTITION_H_
#define SLIMPS_SERVER_PARTITION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/format/format.h"
#include "compress/format/rows.h"
#include "compress/format/sum.h"
#include "proto/base/buffer.h"
#include "proto/base/key.h"
#include "proto/frame.h"
#include "proto/slimps.pb.h"
#include "server/change_codecs.h"
#include "server/change_encoder.h"
#include "server/optimizer.h"
#include "server/partial_sum.h"
#include "server/round_ledger.h"
#include "server/sequence_ledger.h"
#include "server/versioned_weights.h"
#include "server/waiting_bytes.h"

namespace slimps {

// Fixed by Init.
struct PartitionSpec {
  KeyId key = 0;
  uint32_t index = 0;
  std::string name;  // of the key, typed
  uint64_t offset = 0;
  size_t elements = 0;
  size_t row_elements = 1;            // of a whole row of the key
  wire::DType dtype = wire::FLOAT32;  // of pulled values; weights are fp32
  LayerKind layer = LayerKind::kOther;
  wire::StoreMode mode = wire::DIST_SYNC;
  uint32_t staleness = 0;  // dist_ssp
  Combine combine = Combine::kSum;
  uint32_t num_workers = 1;
  std::shared_ptr<WaitingBytes> waiting = nullptr;  // the server's; null: the partition's own
  PayloadHashing hashing = PayloadHashing::kXxh3;   // of what is pulled; Create sets it

  RowGrid grid() const { return RowGrid::At(offset, elements, row_elements); }
};

// A payload as it came, not yet believed.
struct ClaimedPayload {
  PayloadFormat format = PayloadFormat::kAbsent;
  Payload payload;
  uint64_t checksum = 0;
};

// InvalidArgument: no format that this build decodes.
[[nodiscard]] absl::StatusOr<PayloadFormat> FormatFromWire(wire::Format format);

// What a store that keeps no sums is told.
absl::Status NeedsOptimizer(wire::StoreMode mode);
// PullItem.rows. InvalidArgument: not whole numbers, or not rising, or beyond the partition's.
[[nodiscard]] absl::StatusOr<std::vector<uint32_t>> ParsePulledRows(const std::string& bytes,
                                                                    const RowGrid& grid);

// "key s:conv1.weight partition 3"
std::string DescribePartition(const std::string& key_name, uint32_t index);

// Owned by the shard thread. No I/O, clock or lock.
class Partition final {
 public:
  // Version 0 from rank 0's value; kAbsent is zeros. `optimizer` may not be null. InvalidArgument or DataLoss: the payload
  // is malformed. REQUIRES: spec.elements met its limit.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Partition>> Create(
      PartitionSpec spec, const ClaimedPayload& value, std::shared_ptr<const Optimizer> optimizer);

  // OK: the same initialisation again. AlreadyExists: another value or shape.
  [[nodiscard]] absl::Status CheckRepeatedInit(const PartitionSpec& spec, uint64_t checksum) const;

  // Checks the payload and counts it; under dist_async and dist_ssp applies it too. `change` is null where the round's
  // version is to be pulled as it is, `hyper` nullopt where the optimizer's own numbers are to hold. Besides the ledgers'
  // errors: InvalidArgument or DataLoss (malformed payload, `elements` not those of the partition, `hyper` out of range,
  // `change` elsewhere than under dist_sync), FailedPrecondition (dist_async or dist_ssp without an optimizer).
  [[nodiscard]] absl::StatusOr<PushVerdict> Push(
      uint64_t round, uint32_t worker, size_t elements, ClaimedPayload claimed,
      std::shared_ptr<const ChangeCodec> change = nullptr,
      std::optional<wire::Hyper> hyper = std::nullopt);
  [[nodiscard]] absl::Status Leave(uint32_t worker, uint64_t from_round);
  // From the next round that is applied. The state is kept when the kind is; another kind begins with none.
  void SetOptimizer(std::shared_ptr<const Optimizer> optimizer);

  bool HasCompleteRound() const;
  // REQUIRES: HasCompleteRound().
  void ApplyNextRound();

  uint64_t version() const { return weights_.version(); }
  // OK: `version` is the current one or, under dist_sync, the one before. FailedPrecondition: it is neither.
  [[nodiscard]] absl::Status CheckHeld(uint64_t version) const;
  // Version `wanted`. `held` is the version that the puller can add a change to. REQUIRES: CheckHeld(wanted) is OK.
  WireValue Share(uint64_t wanted, std::optional<uint64_t> held = std::nullopt);
  // The parts of `rows` of version `wanted`, one after another, as workers see them. REQUIRES: CheckHeld(wanted) is OK;
  // rising, below spec().grid().rows().
  WireValue ShareRows(uint64_t wanted, std::span<const uint32_t> rows);
  // A copy of the optimizer's `state.tensor`-th tensor, and all else that `state` says of it; kAbsent where there is
  // none.
  WireValue ShareState(wire::OptimizerState* state) const;
  // OK: put, or `state.load` was before. FailedPrecondition: of another optimizer. InvalidArgument or DataLoss: malformed.
  [[nodiscard]] absl::Status PutState(const wire::OptimizerState& state,
                                      const ClaimedPayload& value);
  // dist_ssp: a pull of `worker` that comes now may be answered once the clock of the slowest has come to ReadsFrom
  // (sequence_ledger.h). Elsewhere ReadsFrom is 0.
  uint64_t ReadsFrom(uint32_t worker) const { return sequences_.ReadsFrom(worker); }
  uint64_t slowest() const { return sequences_.slowest(); }
  // Why a pull of version `wanted`, which waits for the slowest to come to `clock`, is not answered:
  // "version 4 wanted, 3 held; round 4 lacks the pushes of workers 1, 2"
  std::string DescribeWait(uint64_t wanted, uint64_t clock = 0) const;
  // Each push is applied as it comes, and there are no rounds in common.
  bool applies_at_once() const { return spec_.mode != wire::DIST_SYNC; }

  const PartitionSpec& spec() const { return spec_; }
  std::span<const float> weights() const { return apart_ ? master_.floats() : weights_.current(); }
  // As workers see them, before any conversion to half precision.
  std::span<const float> seen() const { return weights_.current(); }

 private:
  // REQUIRES: spec.waiting.
  Partition(PartitionSpec spec, uint64_t checksum, std::shared_ptr<const Optimizer> optimizer);
  // The memory of version version() + 1, and how it is to be pulled.
  struct NextVersion {
    std::shared_ptr<const ChangeCodec> codec;  // null: as it is
    std::span<const float> before;
    std::span<float> after;
    // Of a change alone:
    SeenWeights seen;
    std::span<std::byte> payload;
    AlignedBuffer converted;  // holds seen.before where workers saw it in half precision
    std::optional<ChangeEncoder> encoder;  // in the pass of the round itself
  };
  // What the workers of a round have said of it.
  struct Choice {
    static constexpr uint32_t kNobody = std::numeric_limits<uint32_t>::max();
    uint32_t worker = kNobody;
    std::shared_ptr<const ChangeCodec> codec;
    uint32_t hyper_worker = kNobody;
    std::optional<wire::Hyper> hyper = std::nullopt;
  };
  enum class Extent { kAll, kRows, kNothing };

  void GrowState(size_t tensors);
  absl::Status CheckPush(size_t elements, const ClaimedPayload& claimed,
                         const std::optional<wire::Hyper>& hyper) const;
  absl::StatusOr<PushVerdict> PushToRound(PushRecord push,
                                          std::shared_ptr<const ChangeCodec> change,
                                          std::optional<wire::Hyper> hyper);
  Choice TakeChoice(uint64_t round);
  // Puts the sum of the next round's first contributions in their place, where that makes less of much. Throws
  // std::bad_alloc: all is as before.
  void FoldIfTight();
  EncodeContext ChangeContext() const;
  void BeginVersion(std::shared_ptr<const ChangeCodec> codec, PreviousVersion previous,
                    NextVersion* next);
  void BeginChange(NextVersion* next);
  void Apply(std::span<const Contribution> contributions, std::optional<wire::Hyper> hyper,
             NextVersion& next);
  void Commit(NextVersion& next);
  absl::Status CheckRows(const ClaimedPayload& claimed) const;
  // What the round in views_ steps.
  Extent ExtentOfRound() const;
  void CommitChange(NextVersion& next);
  absl::Status Annotate(const absl::Status& status) const;

  const PartitionSpec spec_;
  const uint64_t init_checksum_;
  std::shared_ptr<const Optimizer> optimizer_;
  VersionedWeights weights_;            // w_seen by version; w itself too, unless they are apart
  AlignedBuffer master_;                // empty until the first change
  bool apart_ = false;                  // master_ holds the weights
  std::map<uint64_t, Choice> choices_;  // by round, of those not applied
  std::vector<AlignedBuffer> state_;    // fp32, as long as the weights
  uint64_t updates_ = 0;                // of state_
  std::array<uint64_t, 2> loads_ = {};  // the newest PutState of each tensor
  std::vector<PayloadView> views_;      // of the round being applied; has room for every worker
  RoundLedger rounds_;                  // dist_sync
  PartialSum partial_;        // of the next round's contributions that rounds_ has released
  SequenceLedger sequences_;  // dist_async, dist_ssp
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_PARTITION_H_
