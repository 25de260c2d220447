// SPDX-License-Identifier: Apache-2.0
// A training loop with simulated compute: layers compute by letting time pass. Gradients are pushed
// as the backward pass makes them, last layer first, and weights are pulled. Two ways:
//
//   waiting        a layer's forward pass begins when its weights of the newest round have arrived
//   backup model   it begins when its local weights are ready: one round of lag, and a local step
//                  on the CPU (backup_model/)
//
//   auto loop = MakeTrainingLoop(store, model, options);   // makes keys and the servers' optimizer
//   for (int64_t i = 1; i <= n; ++i) status = (*loop)->Iterate(i);
//   status = (*loop)->Finish();                            // all weights of the newest round
#ifndef SLIMPS_TOOLS_BENCH_CLUSTER_TRAINING_LOOP_H_
#define SLIMPS_TOOLS_BENCH_CLUSTER_TRAINING_LOOP_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/bench/cluster/accelerator.h"
#include "tools/bench/models/models.h"
#include "worker/kvstore.h"

namespace slimps {

struct TrainingLoopOptions {
  bool backup_model = false;
  absl::Duration compute;  // time of one iteration's forward and backward pass
  // Simulated encoding on the accelerator takes this long per element, before the push. 0: encoding
  // is done and measured on the CPU only.
  absl::Duration device_encode_per_element;
  uint64_t device_threshold_bytes = 0;  // smallest tensor that the accelerator encodes
  absl::Duration timeout = absl::Seconds(60);
};

// Owned by the training thread.
class TrainingLoop {
 public:
  virtual ~TrainingLoop() = default;

  // Runs one forward and backward pass. Iterations count from 1.
  [[nodiscard]] virtual absl::Status Iterate(int64_t iteration) = 0;

  // Waits for all weights of the newest round.
  [[nodiscard]] virtual absl::Status Finish() = 0;

  // Returns a hash of the global weights, equal on every worker. REQUIRES: Finish has returned OK.
  virtual uint64_t WeightsHash() const = 0;

  virtual const Accelerator& accelerator() const = 0;
};

// Initialises the keys and sets SGD as the servers' optimizer. Collective.
// REQUIRES: the caller closes `store` before it destroys the loop, since pulls write into the loop.
[[nodiscard]] absl::StatusOr<std::unique_ptr<TrainingLoop>> MakeTrainingLoop(
    KVStore* store, const ModelShape& model, const TrainingLoopOptions& options);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CLUSTER_TRAINING_LOOP_H_
