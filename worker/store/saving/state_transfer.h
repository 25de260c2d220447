// SPDX-License-Identifier: Apache-2.0
// StateTransfer: saves and loads the optimizer's state of all servers. The workers do both
// together, tensor by tensor, and agree after each one: all of them succeed, or all fail.
//
//   StateTransfer states(options, &keys, &node, &codecs, &tensors);
//   SLIMPS_ASSIGN_OR_RETURN(const std::string content, states.Save());
//   SLIMPS_RETURN_IF_ERROR(states.Load(content));
//
// Owned by the store. Thread-safe; the calling thread waits.
#ifndef SLIMPS_WORKER_STORE_SAVING_STATE_TRANSFER_H_
#define SLIMPS_WORKER_STORE_SAVING_STATE_TRANSFER_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/courier/courier.h"
#include "worker/kvstore.h"
#include "worker/saved/optimizer_states.h"
#include "worker/store/codec_choice.h"
#include "worker/store/tensor_traffic.h"
#include "worker/store/worker_node.h"
#include "worker/tensor/key_table.h"

namespace slimps {

class StateTransfer final {
 public:
  // REQUIRES: the arguments outlive this object.
  StateTransfer(const KVStoreOptions& options, const KeyTable* keys, WorkerNode* node,
                CodecChoice* codecs, TensorTraffic* tensors)
      : options_(options), keys_(keys), node_(node), codecs_(codecs), tensors_(tensors) {}

  // KVStore::SaveOptimizerStates.
  absl::StatusOr<std::string> Save();

  // KVStore::LoadOptimizerStates.
  absl::Status Load(std::string_view content);

  // Takes over the momentum and the variance of a tensor whose variance is frozen.
  absl::Status TakeMomentum(const TensorPlan& tensor);

  // Returns these tensors (from 1) of the optimizer's state of each partition, partition after
  // partition. A tensor that there is not comes as ABSENT.
  absl::StatusOr<std::vector<Answer>> Ask(const TensorPlan& tensor,
                                          std::span<const uint32_t> numbers);

 private:
  // Returns the request for one partition's part of the optimizer's state.
  wire::PullItem StatePull(const TensorPlan& tensor, size_t partition, uint32_t number) const;
  absl::Status Collect(const TensorPlan& tensor, OptimizerStates* states);
  absl::Status CheckLoadable(const OptimizerStates& states);
  absl::Status Send(const TensorPlan& tensor, const OptimizerStates& states, uint64_t load);

  const KVStoreOptions& options_;
  const KeyTable* const keys_;
  WorkerNode* const node_;
  CodecChoice* const codecs_;
  TensorTraffic* const tensors_;
  std::atomic<uint64_t> loads_{0};  // the number of the newest load; publishes nothing but itself
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_SAVING_STATE_TRANSFER_H_
