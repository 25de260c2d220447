// SPDX-License-Identifier: Apache-2.0
// StateTransfer: saves and loads the optimizer's state of all servers. The workers do both
// together, some tensors at a time, and agree after these: all of them succeed, or all fail. One
// worker alone may pull it.
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
#include <limits>
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

  // KVStore::PullOptimizerStates and PutOptimizerStates.
  absl::Status Pull(std::span<const Key> keys, std::span<LentOptimizerState> states);
  absl::Status Put(std::span<const Key> keys, std::span<const LentOptimizerState> states,
                   absl::Status mine);

  // Takes over the momentum and the variance of a tensor whose variance is frozen.
  absl::Status TakeMomentum(const TensorPlan& tensor);

  // Returns these tensors (from 1) of the optimizer's state of each partition, partition after
  // partition. A tensor that there is not comes as ABSENT.
  absl::StatusOr<std::vector<Answer>> Ask(const TensorPlan& tensor,
                                          std::span<const uint32_t> numbers);

 private:
  // The rounds that answers are of.
  struct Rounds {
    uint64_t least = std::numeric_limits<uint64_t>::max();
    uint64_t most = 0;
  };

  // Returns the request for one partition's part of the optimizer's state, as of this worker's
  // newest push and of round `least`, at least.
  OutgoingItem StatePull(const TensorPlan& tensor, size_t partition, uint32_t number,
                         uint64_t least) const;
  // Returns which optimizer the servers have. FailedPrecondition: none, or there is no tensor.
  absl::StatusOr<wire::OptimizerState> Describe(std::span<const TensorPlan* const> tensors,
                                                const char* what);
  // Returns the tensors of `keys`, after checking that the states are as long.
  absl::StatusOr<std::vector<const TensorPlan*>> Find(
      std::span<const Key> keys, std::span<const LentOptimizerState> states) const;
  // Writes what the servers keep of some tensors.
  absl::StatusOr<Rounds> Collect(std::span<const TensorPlan* const> tensors,
                                 std::span<LentOptimizerState> states, uint64_t least);
  absl::Status TakeAnswer(const TensorPlan& tensor, size_t partition, uint32_t number,
                          const Answer& answer, LentOptimizerState* state) const;
  // Checks that the servers can take `states`. Returns their optimizer.
  absl::StatusOr<wire::OptimizerState> CheckPuttable(std::span<const TensorPlan* const> tensors,
                                                     std::span<const LentOptimizerState> states);
  // `kind`: the servers' optimizer, and the number of this load.
  absl::Status Send(std::span<const TensorPlan* const> tensors,
                    std::span<const LentOptimizerState> states, const wire::OptimizerState& kind);
  // Takes over all momenta if the variance is frozen. Collective.
  absl::Status TakeMomenta(std::span<const TensorPlan* const> tensors);

  const KVStoreOptions& options_;
  const KeyTable* const keys_;
  WorkerNode* const node_;
  CodecChoice* const codecs_;
  TensorTraffic* const tensors_;
  std::atomic<uint64_t> loads_{0};  // the number of the newest load; publishes nothing but itself
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_SAVING_STATE_TRANSFER_H_
