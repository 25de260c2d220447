// SPDX-License-Identifier: Apache-2.0
// The base of both training loops: keys, the accelerator, gradients, and pushes in the order of the
// backward pass. Part of training_loop.h. Owned by the training thread.
#ifndef SLIMPS_TOOLS_BENCH_CLUSTER_LOOP_BASE_H_
#define SLIMPS_TOOLS_BENCH_CLUSTER_LOOP_BASE_H_

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/base/key.h"
#include "tools/bench/cluster/arrivals.h"
#include "tools/bench/cluster/gradient_pool.h"
#include "tools/bench/cluster/layer_plan.h"
#include "tools/bench/cluster/training_loop.h"

namespace slimps {

class LoopBase : public TrainingLoop {
 public:
  absl::Status Iterate(int64_t iteration) final;
  const Accelerator& accelerator() const final { return accelerator_; }

  // Initialises the keys and writes the first weights into `initial`, tensor by tensor. Collective.
  absl::Status Init(std::span<const std::span<float>> initial);

 protected:
  LoopBase(KVStore* store, const ModelShape& model, const TrainingLoopOptions& options);

  // Waits for the tensor's weights that this iteration's forward pass needs. Returns their arrival.
  virtual absl::StatusOr<SteadyTime> AwaitWeights(size_t tensor, int64_t iteration) = 0;

  // Called after the tensor's gradient of this iteration was pushed.
  virtual absl::Status AfterPush(size_t tensor, int64_t iteration) = 0;

  // Waits until all weights after `iteration` have arrived. Needed around measured iterations, in
  // which nothing else may be under way.
  virtual absl::Status AwaitAll(int64_t iteration) = 0;

  size_t tensors() const { return keys_.size(); }
  size_t elements(size_t tensor) const { return model_.tensors[tensor].elements(); }
  const Key& key(size_t tensor) const { return keys_[tensor]; }

  // First layers have the highest priority, since the next forward pass needs them first.
  static int PriorityOf(size_t tensor) { return -static_cast<int>(tensor); }
  std::span<const float> Gradient(size_t tensor, int64_t iteration) const {
    return gradients_.Of(tensor, static_cast<uint64_t>(iteration));
  }

  // Returns a hash of `so_far` and the weights.
  static uint64_t HashOf(uint64_t so_far, std::span<const float> weights);

  KVStore* const store_;
  const ModelShape model_;
  const TrainingLoopOptions options_;

 private:
  absl::Status Push(size_t tensor, int64_t iteration);
  void EncodeOnDevice(size_t tensor);

  const std::vector<Layer> layers_;
  std::vector<Key> keys_;
  const GradientPool gradients_;
  Accelerator accelerator_;
};

// Make the two kinds of loops. Both call Init. Collective.
absl::StatusOr<std::unique_ptr<TrainingLoop>> MakeWaitingLoop(KVStore* store,
                                                              const ModelShape& model,
                                                              const TrainingLoopOptions& options);
absl::StatusOr<std::unique_ptr<TrainingLoop>> MakeBackupLoop(KVStore* store,
                                                             const ModelShape& model,
                                                             const TrainingLoopOptions& options);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CLUSTER_LOOP_BASE_H_
