// SPDX-License-Identifier: Apache-2.0
// One partition of a key on its server: fp32 weights by version, optimizer state, and which worker
// has pushed what.
//
//   push --Check--> ledger: counted once --complete?--> ApplyNextRound: one pass over memory
//                                                       (aggregate.h)
//
// The sum is taken in rank order, so its bits do not depend on the order of arrival. If many bytes
// wait in the server, the first contributions of a round, without a gap in the ranks, are summed
// before the others come (partial_sum.h). Under dist_async and dist_ssp each push is applied as it
// is counted, and the version counts pushes. dist_ssp also bounds who may read.
//
// Each push names how the version that its round makes is pulled (ChangeCodec). Where pushes
// differ, the lowest rank's counts. With w the weights and w_seen what workers see of them:
//   as it is, or half precision  The weights travel in that precision, and w_seen is w rounded to
//                                it. The next version does not make up for the rounding.
//   as a change                  x = w - w_seen of the version before; w_seen += decode(encode(x)).
//                                Pullers that hold the version before get the encoded x. Others get
//                                w_seen in fp32.
// So every worker that pulls a version gets the same bits, whatever it held. A version is pulled as
// it is if its change cannot be encoded or is no smaller than the weights. From the first change
// on, w is kept beside w_seen and stepped in place.
//
// A push may also bring the learning rate and weight decay of its round's step. The lowest rank
// that brings them counts. Under dist_async and dist_ssp each push brings its own.
//
// If workers pushed only rows (rows.h) in a round, it steps just those rows. Other rows and their
// state stay as they are. A round in which no worker pushed a gradient steps nothing and does not
// count as an update. Without an optimizer the sum, which is zero in all other rows, replaces the
// weights.
#ifndef SLIMPS_SERVER_ROUND_PARTITION_H_
#define SLIMPS_SERVER_ROUND_PARTITION_H_

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
#include "server/round/change_codecs.h"
#include "server/round/change_encoder.h"
#include "server/round/optimizer.h"
#include "server/round/partial_sum.h"
#include "server/round/round_ledger.h"
#include "server/round/sequence_ledger.h"
#include "server/round/versioned_weights.h"
#include "server/round/waiting_bytes.h"

namespace slimps {

// Fixed by Init.
struct PartitionSpec {
  KeyId key = 0;
  uint32_t index = 0;
  std::string name;  // typed name of the key
  uint64_t offset = 0;
  size_t elements = 0;
  size_t row_elements = 1;            // elements of a whole row of the key
  wire::DType dtype = wire::FLOAT32;  // of pulled values; the weights are fp32
  LayerKind layer = LayerKind::kOther;
  wire::StoreMode mode = wire::DIST_SYNC;
  uint32_t staleness = 0;  // dist_ssp
  Combine combine = Combine::kSum;
  uint32_t num_workers = 1;
  std::shared_ptr<WaitingBytes> waiting = nullptr;  // the server's count; null: one of its own
  PayloadHashing hashing = PayloadHashing::kXxh3;   // of pulled values; Create sets it

  RowGrid grid() const { return RowGrid::At(offset, elements, row_elements); }
};

// A payload as it came, not checked yet.
struct ClaimedPayload {
  PayloadFormat format = PayloadFormat::kAbsent;
  Payload payload;
  uint64_t checksum = 0;
};

// InvalidArgument: this build does not decode that format.
[[nodiscard]] absl::StatusOr<PayloadFormat> FormatFromWire(wire::Format format);

// Returns the error for a store mode that needs an optimizer and has none.
absl::Status NeedsOptimizer(wire::StoreMode mode);
// Parses PullItem.rows.
// InvalidArgument: not a whole number of rows, not rising, or beyond the partition's rows.
[[nodiscard]] absl::StatusOr<std::vector<uint32_t>> ParsePulledRows(const std::string& bytes,
                                                                    const RowGrid& grid);

// "key s:conv1.weight partition 3"
std::string DescribePartition(const std::string& key_name, uint32_t index);

// Owned by the shard thread. No I/O, clock or lock.
class Partition final {
 public:
  // Makes version 0 from rank 0's value; kAbsent means zeros. Sets spec.hashing to whether `value`
  // carries a checksum.
  // REQUIRES: spec.elements is within its limit; `optimizer` is not null.
  // InvalidArgument or DataLoss: the payload is malformed.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Partition>> Create(
      PartitionSpec spec, const ClaimedPayload& value, std::shared_ptr<const Optimizer> optimizer);

  // Returns OK if this is the same initialisation again.
  // AlreadyExists: another value or shape.
  [[nodiscard]] absl::Status CheckRepeatedInit(const PartitionSpec& spec, uint64_t checksum) const;

  // Checks the payload and counts it. Under dist_async and dist_ssp also applies it. `change` null:
  // the round's version is pulled as it is. `hyper` nullopt: the optimizer's own numbers hold.
  // Errors, besides the ledgers':
  // InvalidArgument or DataLoss: the payload is malformed.
  // InvalidArgument: `elements` differs from the partition's, `hyper` is out of range, or `change`
  // is given outside dist_sync.
  // FailedPrecondition: dist_async or dist_ssp without an optimizer.
  [[nodiscard]] absl::StatusOr<PushVerdict> Push(
      uint64_t round, uint32_t worker, size_t elements, ClaimedPayload claimed,
      std::shared_ptr<const ChangeCodec> change = nullptr,
      std::optional<wire::Hyper> hyper = std::nullopt);

  // Takes `worker` out, as the mode's ledger does. Under dist_async it has no effect, because no
  // worker waits for another.
  [[nodiscard]] absl::Status Leave(uint32_t worker, uint64_t from_round);

  // Replaces the optimizer from the next applied round on. The state is kept if the kind stays;
  // another kind begins with zeros.
  void SetOptimizer(std::shared_ptr<const Optimizer> optimizer);

  bool HasCompleteRound() const;

  // Applies the next round: the version grows by one.
  // REQUIRES: HasCompleteRound().
  void ApplyNextRound();

  uint64_t version() const { return weights_.version(); }

  // Returns OK if `version` is the current one or, under dist_sync, the one before.
  // FailedPrecondition: it is neither.
  [[nodiscard]] absl::Status CheckHeld(uint64_t version) const;

  // Returns version `wanted`. `held` is the version that the puller can add a change to.
  // REQUIRES: CheckHeld(wanted) is OK.
  WireValue Share(uint64_t wanted, std::optional<uint64_t> held = std::nullopt);

  // Returns a copy of `rows` of version `wanted`, one after another, as workers see them.
  // REQUIRES: CheckHeld(wanted) is OK; rows are rising and below spec().grid().rows().
  WireValue ShareRows(uint64_t wanted, std::span<const uint32_t> rows);

  // Returns a copy of tensor number `state->tensor()` (from 1) of the optimizer's state, or kAbsent
  // if there is none. Fills in the other fields of `state`.
  WireValue ShareState(wire::OptimizerState* state) const;

  // Puts back one tensor of the optimizer's state. A load number (`state.load`) that is not newer
  // than the last one changes nothing.
  // FailedPrecondition: the state is of another optimizer.
  // InvalidArgument or DataLoss: malformed.
  [[nodiscard]] absl::Status PutState(const wire::OptimizerState& state,
                                      const ClaimedPayload& value);

  // Returns the clock that slowest() must reach before a pull of `worker` that comes now is
  // answered (dist_ssp; sequence_ledger.h). Returns 0 in other modes: no pull waits for a worker.
  uint64_t ReadsFrom(uint32_t worker) const { return sequences_.ReadsFrom(worker); }
  uint64_t slowest() const { return sequences_.slowest(); }

  // Returns why a pull of version `wanted`, which waits for the slowest worker to come to `clock`,
  // is not answered: "version 4 wanted, 3 held; round 4 lacks the push of workers 1, 2".
  std::string DescribeWait(uint64_t wanted, uint64_t clock = 0) const;

  // True if each push is applied as it comes: workers then have no rounds in common.
  bool applies_at_once() const { return spec_.mode != wire::DIST_SYNC; }

  const PartitionSpec& spec() const { return spec_; }
  std::span<const float> weights() const { return apart_ ? master_.floats() : weights_.current(); }

  // Returns the weights as workers see them, before any conversion to half precision.
  std::span<const float> seen() const { return weights_.current(); }

 private:
  // REQUIRES: spec.waiting.
  Partition(PartitionSpec spec, uint64_t checksum, std::shared_ptr<const Optimizer> optimizer);
  // The memory of version version() + 1, and how it is pulled.
  struct NextVersion {
    std::shared_ptr<const ChangeCodec> codec;  // null: as it is
    std::span<const float> before;
    std::span<float> after;
    // Set only for a change:
    SeenWeights seen;
    std::span<std::byte> payload;
    AlignedBuffer converted;               // seen.before, if workers saw half precision
    std::optional<ChangeEncoder> encoder;  // encodes in the round's own pass
  };
  // What the pushes of one round ask for: how its version is pulled, and its step's
  // hyperparameters. `worker` and `hyper_worker` are the lowest ranks that asked.
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
  // Replaces the next round's first contributions by their sum, if much waits in the server and the
  // sum is enough smaller.
  // Throws std::bad_alloc, having changed nothing.
  void FoldIfTight();
  EncodeContext ChangeContext() const;
  void BeginVersion(std::shared_ptr<const ChangeCodec> codec, PreviousVersion previous,
                    NextVersion* next);
  void BeginChange(NextVersion* next);
  void Apply(std::span<const Contribution> contributions, std::optional<wire::Hyper> hyper,
             NextVersion& next);
  void Commit(NextVersion& next);
  absl::Status CheckRows(const ClaimedPayload& claimed) const;
  // Returns what the round in views_ steps.
  Extent ExtentOfRound() const;
  void CommitChange(NextVersion& next);
  absl::Status Annotate(const absl::Status& status) const;

  const PartitionSpec spec_;
  const uint64_t init_checksum_;
  std::shared_ptr<const Optimizer> optimizer_;
  VersionedWeights weights_;            // w_seen by version; also w, unless apart_
  AlignedBuffer master_;                // empty until the first change
  bool apart_ = false;                  // master_ holds the weights
  std::map<uint64_t, Choice> choices_;  // by round not yet applied
  std::vector<AlignedBuffer> state_;    // fp32 tensors as long as the weights
  uint64_t updates_ = 0;                // how often state_ was updated
  std::array<uint64_t, 2> loads_ = {};  // newest load number of each tensor
  std::vector<PayloadView> views_;      // of the round being applied; has room for all workers
  RoundLedger rounds_;                  // dist_sync
  PartialSum partial_;                  // the next round's contributions that rounds_ released
  SequenceLedger sequences_;            // dist_async, dist_ssp
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_PARTITION_H_
