// SPDX-License-Identifier: Apache-2.0
// The two halves of KVStore::Init: asks the scheduler where the partitions of new tensors go, and
// sends rank 0's first values to the servers. Thread-safe; the calling thread waits.
//
//   SLIMPS_ASSIGN_OR_RETURN(DeclaredTensors declared,
//                           DeclareTensors(tensors, options, membership, rpc));
//   // Rank 0 only:
//   SLIMPS_RETURN_IF_ERROR(SendInitialValues(tensors, declared.plans, initial, courier));
#ifndef SLIMPS_WORKER_STORE_STORE_INIT_H_
#define SLIMPS_WORKER_STORE_STORE_INIT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compress/codec/codec.h"
#include "proto/frame.h"
#include "proto/net/membership/membership.h"
#include "worker/courier/courier.h"
#include "worker/courier/rpc_client.h"
#include "worker/kvstore.h"
#include "worker/tensor/key_table.h"

namespace slimps {

struct DeclareOptions {
  size_t partition_bytes = KVStoreOptions().partition_bytes;  // counted in fp32
  uint32_t num_servers = 1;
  absl::Duration timeout;
  std::string compression;  // how this worker compresses; for messages to people
  uint64_t number = 0;      // wire::DeclareKeys.number
};

struct DeclaredTensors {
  std::vector<TensorPlan> plans;
  // How each worker compresses, if the workers differ; else empty.
  std::string differing_compression;
};

// Declares the tensors at the scheduler and returns their plans.
// InvalidArgument: DeclarationOf refused a shape, or another worker declared other keys, or a key
// differently (the message names both declarations).
// DataLoss: the scheduler's answer has another number of keys.
// Otherwise the error of RpcClient::Call.
[[nodiscard]] absl::StatusOr<DeclaredTensors> DeclareTensors(const std::vector<InitTensor>& tensors,
                                                             const DeclareOptions& options,
                                                             Membership* membership,
                                                             RpcClient* rpc);

struct InitialValueOptions {
  Combine combine = Combine::kSum;                 // how servers combine the workers' gradients
  PayloadHashing hashing = PayloadHashing::kXxh3;  // kOff: servers do not hash pulls either
  bool auxiliary = false;                          // the keys are auxiliary ones
  size_t max_bytes = size_t{256} << 20;            // under way at once; these bytes are copies
};

// Sends the values, and waits until every server has acknowledged its partitions. At most
// `max_bytes` of them, or one partition alone, are under way.
// InvalidArgument: a value has the wrong length or is not finite. Nothing was sent.
// Otherwise the first server's refusal.
[[nodiscard]] absl::Status SendInitialValues(const std::vector<InitTensor>& tensors,
                                             const std::vector<TensorPlan>& plans,
                                             const InitialValueOptions& options, Courier* courier);

// Returns the fields that every item for initialising this partition has. The format is RAW_F32;
// the caller fills in the payload's size and hash.
wire::InitItem MakeInitItem(const TensorPlan& tensor, size_t partition, Combine combine);

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_STORE_INIT_H_
