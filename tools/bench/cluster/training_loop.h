// SPDX-License-Identifier: Apache-2.0
// A training loop with simulated compute: layers compute by letting time pass. What else a step
// takes is the product's (worker/exchange/weight_exchange.h): parameters on the host, gradients
// given as backward makes them, last layer first.
//
//   auto loop = TrainingLoop::Start(store, model, options);  // makes keys, sets the optimizer
//   for (int64_t i = 1; i <= n; ++i) status = (*loop)->Iterate(i);
//   status = (*loop)->Finish();                              // all weights of the newest round
#ifndef SLIMPS_TOOLS_BENCH_CLUSTER_TRAINING_LOOP_H_
#define SLIMPS_TOOLS_BENCH_CLUSTER_TRAINING_LOOP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/buffer.h"
#include "tools/bench/cluster/accelerator.h"
#include "tools/bench/cluster/gradient_pool.h"
#include "tools/bench/cluster/layer_plan.h"
#include "tools/bench/models/models.h"
#include "worker/exchange/weight_exchange.h"
#include "worker/kvstore.h"

namespace slimps {

struct TrainingLoopOptions {
  bool backup_model = false;
  bool overlap_forward = false;  // each layer waits for its own weights
  absl::Duration compute;        // time of one iteration's forward and backward pass
  // Simulated encoding on the accelerator takes this long per element, before the push. 0: encoding
  // is done and measured on the CPU only.
  absl::Duration device_encode_per_element;
  uint64_t device_threshold_bytes = 0;  // smallest tensor that the accelerator encodes
  absl::Duration timeout = absl::Seconds(60);
};

// Owned by the training thread.
class TrainingLoop final {
 public:
  // Initialises the keys and sets SGD as the servers' optimizer. Collective.
  // REQUIRES: the caller closes `store` before it destroys the loop, since pulls write into the
  // loop.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<TrainingLoop>> Start(
      KVStore* store, const ModelShape& model, const TrainingLoopOptions& options);

  // Runs one step. Iterations count from 1.
  [[nodiscard]] absl::Status Iterate(int64_t iteration);

  // Waits for all weights of the newest round.
  [[nodiscard]] absl::Status Finish();

  // Returns a hash of the global weights, equal on every worker. REQUIRES: Finish has returned OK.
  uint64_t WeightsHash() const;

  const Accelerator& accelerator() const { return accelerator_; }

 private:
  TrainingLoop(KVStore* store, const ModelShape& model, const TrainingLoopOptions& options);

  void EncodeOnDevice(size_t tensor);
  // Exchange the memory that the model computes on for the one with its newest weights.
  absl::Status Exchange(size_t tensor);
  absl::Status ExchangeAll();

  KVStore* const store_;
  const TrainingLoopOptions options_;
  const std::vector<Layer> layers_;
  const GradientPool gradients_;
  std::vector<AlignedBuffer> weights_, spare_;  // stand for a framework's memory
  std::vector<Parameter> parameters_;
  std::unique_ptr<WeightExchange> exchange_;
  Accelerator accelerator_;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CLUSTER_TRAINING_LOOP_H_
