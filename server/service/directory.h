// SPDX-License-Identifier: Apache-2.0
// Knows which shard owns which partition, and what Init has said of the keys. The next partition
// goes to the shard with the fewest elements. A pull may reserve a place before Init has come.
//
//   SLIMPS_ASSIGN_OR_RETURN(const size_t shard, directory.Declare(item, &spec));   // Init
//   const std::optional<size_t> known = directory.FindShard(id);                   // push, pull
#ifndef SLIMPS_SERVER_SERVICE_DIRECTORY_H_
#define SLIMPS_SERVER_SERVICE_DIRECTORY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/partition_limits.h"
#include "proto/slimps.pb.h"
#include "server/round/partition_spec.h"

namespace slimps {

struct DirectoryLimits {
  size_t max_partition_elements = static_cast<size_t>(kMaxPartitionBytes) / sizeof(float);
  size_t max_partitions = size_t{1} << 20;    // of this server
  size_t max_weight_bytes = size_t{1} << 36;  // of one version, in fp32
  size_t max_reserved = size_t{1} << 16;      // pulled before Init
};

// Owned by the transport's I/O thread. Pure.
class Directory final {
 public:
  // REQUIRES: shards > 0.
  Directory(size_t shards, const DirectoryLimits& limits) : limits_(limits), load_(shards, 0) {}

  // Returns nullopt if the partition is neither initialised nor reserved.
  std::optional<size_t> FindShard(const PartitionId& id) const;

  // Gives the partition a place before Init has come, and returns its shard.
  // InvalidArgument: more elements than a partition may have.
  // ResourceExhausted: too many places are reserved.
  [[nodiscard]] absl::StatusOr<size_t> Reserve(const PartitionId& id, uint64_t elements);

  // Checks an InitItem, gives its partition a place and returns its shard. Fills in the fields of
  // `spec` that the item gives.
  // InvalidArgument: names, ids, sizes or types make no sense.
  // AlreadyExists: the key was declared otherwise, or its id belongs to another name.
  // FailedPrecondition: over a limit of this server, so trying again does not help.
  [[nodiscard]] absl::StatusOr<size_t> Declare(const wire::InitItem& item, PartitionSpec* spec);

 private:
  struct Place {
    size_t shard = 0;
    uint64_t elements = 0;
    bool declared = false;
  };
  struct KeyFacts {
    std::string name;
    uint64_t elements = 0;
    uint32_t partitions = 0;
    wire::DType dtype = wire::FLOAT32;
    wire::Combine combine = wire::SUM;
    bool auxiliary = false;
  };

  absl::Status CheckItem(const wire::InitItem& item) const;
  // Checks what only auxiliary keys may ask for, and what they may not.
  static absl::Status CheckAuxiliary(const wire::InitItem& item);
  absl::Status CheckKey(const wire::InitItem& item) const;
  Place& PlaceFor(const PartitionId& id, uint64_t elements);

  const DirectoryLimits limits_;
  std::unordered_map<PartitionId, Place, PartitionIdHash> places_;
  std::unordered_map<KeyId, KeyFacts> keys_;
  std::vector<uint64_t> load_;  // elements by shard
  uint64_t declared_elements_ = 0;
  size_t declared_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SERVICE_DIRECTORY_H_
