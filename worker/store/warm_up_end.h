// SPDX-License-Identifier: Apache-2.0
// WarmUpEnd: ends the warm-up of 1-bit Adam by the rule of its paper, if no number of rounds was
// given. With d = 1 / (1 - beta2), all keys' frozen variance is that of the first update t, after
// the learning rate's own warm-up, for which
//
//   norm1(v(t)) >= 0.96 norm1(v(t - d)),   v corrected for its bias, norm1 over all keys.
//
//   WarmUpEnd warm_up(&keys, &node, &codecs, &states, set_optimizer);
//   SLIMPS_RETURN_IF_ERROR(warm_up.BeforePush(key));
//
// It looks after each d rounds, which costs a pull of v. Worker 0 alone looks: no round is complete
// without its push, so the servers hear of the end before any key is past it. What it saw is not
// saved: a job that is resumed in its warm-up starts to compare anew.
// Source: Tang et al., "1-bit Adam", ICML 2021: its rule for the length of the warm-up.
#ifndef SLIMPS_WORKER_STORE_WARM_UP_END_H_
#define SLIMPS_WORKER_STORE_WARM_UP_END_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/slimps.pb.h"
#include "worker/store/codec_choice.h"
#include "worker/store/saving/state_transfer.h"
#include "worker/store/worker_node.h"
#include "worker/tensor/key_table.h"

namespace slimps {

// Owned by the store. Thread-safe.
class WarmUpEnd final {
 public:
  // `set_optimizer` tells the servers, as KVStore::SetOptimizer.
  // REQUIRES: the arguments outlive this object.
  WarmUpEnd(const KeyTable* keys, const WorkerNode* node, CodecChoice* codecs,
            StateTransfer* states,
            std::function<absl::Status(const wire::OptimizerSpec&)> set_optimizer)
      : keys_(keys),
        node_(node),
        codecs_(codecs),
        states_(states),
        set_optimizer_(std::move(set_optimizer)) {}

  // Call it before each push of `key`. Where it is time to look, it waits for the servers.
  [[nodiscard]] absl::Status BeforePush(const Key& key);

 private:
  // The variance after some update.
  struct Variance {
    uint64_t updates = 0;
    double norm = 0;  // norm1, corrected for the bias
  };

  absl::StatusOr<Variance> Look(double beta2);

  const KeyTable* const keys_;
  const WorkerNode* const node_;
  CodecChoice* const codecs_;
  StateTransfer* const states_;
  const std::function<absl::Status(const wire::OptimizerSpec&)> set_optimizer_;

  // Held while it looks: no push of this worker's gets past the end.
  Mutex mutex_;
  uint64_t looked_ ABSL_GUARDED_BY(mutex_) = 0;  // after which round
  std::optional<Variance> before_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_WARM_UP_END_H_
