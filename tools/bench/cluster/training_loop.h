// A training loop without the training: layers compute by letting time pass, gradients leave as the backward pass makes
// them, last layer first, and weights come back. Two ways:
//
//   waiting        a layer's forward pass begins when its weights of the newest round are there
//   backup model   it begins when its local weights are: one round of lag, the local step on the CPU (backup_model/)
//
//   auto loop = MakeTrainingLoop(store, model, options);     // makes the keys and the servers' optimizer
//   for (int64_t i = 1; i <= n; ++i) status = (*loop)->Iterate(i);
//   status = (*loop)->Finish();                              // all weights of the newest round
#ifndef SLIMPS_TOOLS_BENCH_CLUSTER_TRAINING_LOOP_H_
#define SLIMPS_TOOLS_BENCH_CLUSTER_TRAINING_LOOP_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/bench/cluster/accelerator.h"
#include "tools/bench/models.h"
#include "worker/kvstore.h"

namespace slimps {

struct TrainingLoopOptions {
  bool backup_model = false;
  absl::Duration compute;  // of one iteration
  // Simulated: encoding takes this long on the compute timeline, before the push; 0: it happens on the CPU alone.
  absl::Duration device_encode_per_element;
  uint64_t device_threshold_bytes = 0;  // tensors from this size on
  absl::Duration timeout = absl::Seconds(60);
};

// Owned by the training thread.
class TrainingLoop {
 public:
  virtual ~TrainingLoop() = default;
  // One forward and backward pass. Iterations count from 1.
  [[nodiscard]] virtual absl::Status Iterate(int64_t iteration) = 0;
  [[nodiscard]] virtual absl::Status Finish() = 0;
  // Of the global weights after Finish: the same on every worker.
  virtual uint64_t WeightsHash() const = 0;

  virtual const Accelerator& accelerator() const = 0;
};

// Collective: initialises the keys, with the servers stepping by SGD. `store` must outlive the loop's last pull: close it
// before the loop is destroyed.
[[nodiscard]] absl::StatusOr<std::unique_ptr<TrainingLoop>> MakeTrainingLoop(
    KVStore* store, const ModelShape& model, const TrainingLoopOptions& options);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CLUSTER_TRAINING_LOOP_H_
