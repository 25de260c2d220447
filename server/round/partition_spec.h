// SPDX-License-Identifier: Apache-2.0
// What a partition is called, what Init fixes of it, and what the wire says of it. Plain data; pure
// functions.
#ifndef SLIMPS_SERVER_ROUND_PARTITION_SPEC_H_
#define SLIMPS_SERVER_ROUND_PARTITION_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <memory>
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
#include "proto/partition_limits.h"
#include "proto/slimps.pb.h"
#include "server/round/waiting_bytes.h"
#include "server/saved/image.h"

namespace slimps {

struct PartitionId {
  KeyId key = 0;
  uint32_t index = 0;
  friend bool operator==(const PartitionId&, const PartitionId&) = default;
};
struct PartitionIdHash {
  // Key ids are hashes already.
  size_t operator()(const PartitionId& id) const {
    return static_cast<size_t>(id.key ^ (id.index * 0x9E3779B97F4A7C15u));
  }
};

// Fixed by Init.
struct PartitionSpec {
  KeyId key = 0;
  uint32_t index = 0;
  std::string name;            // typed name of the key
  std::vector<int64_t> shape;  // of the key
  uint32_t partitions = 1;     // of the key
  uint64_t offset = 0;
  size_t elements = 0;
  size_t row_elements = 1;            // elements of a whole row of the key
  wire::DType dtype = wire::FLOAT32;  // of pulled values; the weights are fp32
  LayerKind layer = LayerKind::kOther;
  wire::StoreMode mode = wire::DIST_SYNC;
  uint32_t staleness = 0;  // dist_ssp
  Combine combine = Combine::kSum;
  bool auxiliary = false;  // version r is round r's combination, and no optimizer steps it
  uint32_t num_workers = 1;
  uint64_t rounds_ahead = kRoundsAhead;             // round_ledger.h
  std::shared_ptr<WaitingBytes> waiting = nullptr;  // the server's count; null: one of its own
  PayloadHashing hashing = PayloadHashing::kXxh3;   // of pulled values; Partition sets it

  RowGrid grid() const { return RowGrid::At(offset, elements, row_elements); }

  // True if each push is applied as it comes: workers then have no rounds in common.
  bool applies_at_once() const { return mode != wire::DIST_SYNC; }
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

// Saves all but `waiting`.
saved::Spec SaveSpec(const PartitionSpec& spec);

// DataLoss: a field makes no sense.
[[nodiscard]] absl::StatusOr<PartitionSpec> RestoreSpec(const saved::Spec& fields,
                                                        std::shared_ptr<WaitingBytes> waiting);

// Returns all that a partition takes from Init, but its name: "shape [3, 4], ...". Two that are
// equal differ in nothing that its state depends on.
std::string DescribeSpec(const saved::Spec& fields);

// "key s:conv1.weight partition 3"
std::string DescribePartition(const std::string& key_name, uint32_t index);

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_PARTITION_SPEC_H_
