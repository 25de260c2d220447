// One partition of a key on its server: fp32 weights by version, optimizer state, and who has pushed what.
//
//   push --Check--> ledger: counted once --complete?--> ApplyNextRound: one pass over memory (aggregate.h)
//
// The order of the sum is that of the ranks, so the bits do not depend on the order of arrival. Under dist_async each
// push is applied as it is counted, and the version counts pushes.
#ifndef SLIMPS_SERVER_PARTITION_H_
#define SLIMPS_SERVER_PARTITION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/format/format.h"
#include "compress/format/sum.h"
#include "proto/base/buffer.h"
#include "proto/base/key.h"
#include "proto/slimps.pb.h"
#include "server/optimizer.h"
#include "server/round_ledger.h"
#include "server/sequence_ledger.h"
#include "server/versioned_weights.h"

namespace slimps {

// Fixed by Init.
struct PartitionSpec {
  KeyId key = 0;
  uint32_t index = 0;
  std::string name;  // of the key, typed
  uint64_t offset = 0;
  size_t elements = 0;
  wire::DType dtype = wire::FLOAT32;  // of pulled values; weights are fp32
  wire::StoreMode mode = wire::DIST_SYNC;
  Combine combine = Combine::kSum;
  uint32_t num_workers = 1;
  LedgerLimits limits;
};

// A payload as it came, not yet believed.
struct ClaimedPayload {
  PayloadFormat format = PayloadFormat::kAbsent;
  Payload payload;
  uint64_t checksum = 0;
};

// InvalidArgument: no format that this build decodes.
[[nodiscard]] absl::StatusOr<PayloadFormat> FormatFromWire(wire::Format format);

// "key s:conv1.weight partition 3"
std::string DescribePartition(const std::string& key_name, uint32_t index);

// Owned by the shard thread. No I/O, clock or lock.
class Partition final {
 public:
  // Version 0 from rank 0's value; kAbsent is zeros. `optimizer` may not be null. InvalidArgument or DataLoss: the payload
  // is malformed. REQUIRES: spec.elements met its limit. Throws std::bad_alloc.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Partition>> Create(
      PartitionSpec spec, const ClaimedPayload& value, std::shared_ptr<const Optimizer> optimizer);

  // OK: the same initialisation again. AlreadyExists: another value or shape.
  [[nodiscard]] absl::Status CheckRepeatedInit(const PartitionSpec& spec, uint64_t checksum) const;

  // Checks the payload and counts it; under dist_async applies it too. Besides the ledgers' errors: InvalidArgument or
  // DataLoss (malformed payload, `elements` not those of the partition), FailedPrecondition (dist_async without an
  // optimizer). Throws std::bad_alloc.
  [[nodiscard]] absl::StatusOr<PushVerdict> Push(uint64_t round, uint32_t worker, size_t elements,
                                                 ClaimedPayload claimed);
  [[nodiscard]] absl::Status Leave(uint32_t worker, uint64_t from_round);
  // From the next round on. The state is kept when the kind is. FailedPrecondition: another kind after the first push.
  // Throws std::bad_alloc.
  [[nodiscard]] absl::Status SetOptimizer(std::shared_ptr<const Optimizer> optimizer);

  bool HasCompleteRound() const;
  // REQUIRES: HasCompleteRound(). Throws std::bad_alloc: the current weights and version() are then unchanged, but the
  // round's pushes and the version before the current one may be lost, so the job cannot go on.
  void ApplyNextRound();

  uint64_t version() const { return weights_.version(); }
  // dist_sync: exactly version `wanted` if it is still held (the current one and the one before); else the current one.
  WireValue Share(uint64_t wanted);
  // "version 4 wanted, 3 held; round 4 lacks the pushes of workers 1, 2"
  std::string DescribeWait(uint64_t wanted) const;

  const PartitionSpec& spec() const { return spec_; }
  std::span<const float> weights() const { return weights_.current(); }

 private:
  Partition(PartitionSpec spec, uint64_t checksum, std::shared_ptr<const Optimizer> optimizer);
  void GrowState(size_t tensors);
  // Writes version version() + 1 to `after`. Throws nothing.
  void Apply(std::span<const Contribution> contributions, std::span<float> after);
  absl::Status Annotate(const absl::Status& status) const;

  const PartitionSpec spec_;
  const uint64_t init_checksum_;
  std::shared_ptr<const Optimizer> optimizer_;
  VersionedWeights weights_;
  std::vector<AlignedBuffer> state_;  // fp32, as long as the weights
  uint64_t updates_ = 0;              // of state_
  std::vector<PayloadView> views_;    // of the round being applied; has room for every worker
  RoundLedger rounds_;                // dist_sync
  SequenceLedger sequences_;          // dist_async
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_PARTITION_H_
