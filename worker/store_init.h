// The two halves of KVStore::Init: where the scheduler puts the partitions of new tensors, and rank 0's first values
// on their way to the servers.
#ifndef SLIMPS_WORKER_STORE_INIT_H_
#define SLIMPS_WORKER_STORE_INIT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compress/codec/codec.h"
#include "proto/frame.h"
#include "proto/net/membership/membership.h"
#include "worker/courier.h"
#include "worker/key_table.h"
#include "worker/kvstore.h"
#include "worker/rpc_client.h"

namespace slimps {

struct DeclareOptions {
  size_t partition_bytes = KVStoreOptions().partition_bytes;  // of fp32
  uint32_t num_servers = 1;
  absl::Duration timeout;
  std::string compression;  // how this worker compresses, for messages to people
};

struct DeclaredTensors {
  std::vector<TensorPlan> plans;
  std::string differing_compression;  // who compresses how, where workers differ; else empty
};

// Asks the scheduler. InvalidArgument: a shape that is none, or other workers declared the key otherwise (names both).
[[nodiscard]] absl::StatusOr<DeclaredTensors> DeclareTensors(const std::vector<InitTensor>& tensors,
                                                             const DeclareOptions& options,
                                                             Membership* membership,
                                                             RpcClient* rpc);

struct InitialValueOptions {
  Combine combine = Combine::kSum;                 // how the servers join the workers' gradients
  PayloadHashing hashing = PayloadHashing::kXxh3;  // kOff: nor do servers hash what is pulled
  size_t most_bytes = size_t{256} << 20;           // under way at once, copied as they are
};

// Waits until every server has acknowledged its partitions, of which no more than `most_bytes` are under way, or one alone.
// InvalidArgument: a value of the wrong length, or not finite; nothing was sent. Else the first server's refusal.
[[nodiscard]] absl::Status SendInitialValues(const std::vector<InitTensor>& tensors,
                                             const std::vector<TensorPlan>& plans,
                                             const InitialValueOptions& options, Courier* courier);

// What every item says that initialises something of this partition; format RAW_F32, payload not yet named.
wire::InitItem MakeInitItem(const TensorPlan& tensor, size_t partition, Combine combine);

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_INIT_H_
