// SPDX-License-Identifier: Apache-2.0
// Train: one worker's training. It initialises the store with the model, runs the steps, drains the
// store and sums the job's figures. The newest global weights are then in the model's parameters.
//
//   auto report = Train(options, data, model, store, [](const StepProgress& step) { ... });
//
// Every worker of a job runs the same number of rounds. A worker whose part of an epoch ends
// earlier contributes nothing to the remaining rounds, so no worker waits for it.
#ifndef SLIMPS_WORKER_TRAINER_TRAIN_LOOP_H_
#define SLIMPS_WORKER_TRAINER_TRAIN_LOOP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backup_model/backup_model.h"
#include "proto/slimps.pb.h"
#include "worker/exchange/weight_exchange.h"
#include "worker/kvstore.h"
#include "worker/tensor/push_counts.h"
#include "worker/trainer/dataset.h"
#include "worker/trainer/model.h"

namespace slimps {

struct TrainOptions {
  size_t epochs = 1;
  size_t batch = 32;                 // per worker
  std::optional<size_t> max_steps;   // for the whole run
  uint64_t seed = 1;                 // decides the order of the samples
  wire::OptimizerSpec optimizer;     // the servers' optimizer
  double warmup = 0;                 // part of the run in which a schedule without an end climbs
  ExchangeOptions exchange;          // includes the local step, if there is one
  absl::Duration simulated_compute;  // added to every step, for benchmarks
  // Rank 0 evaluates the test split after every epoch. The others wait for rank 0 in the next
  // round.
  bool evaluate_epochs = false;
  // The same after every so many steps; 0: never.
  size_t evaluate_every = 0;
  // The folder of the run's checkpoints (checkpoint_folder.h), one after every so many steps; 0:
  // none. exchange.resume says from which one the run goes on.
  std::string checkpoint;
  size_t checkpoint_every = 0;
};

struct StepProgress {
  size_t epoch = 0;  // from 1
  size_t epochs = 0;
  size_t step = 0;   // of the whole run, from 1
  size_t steps = 0;  // of the whole run
  LossSums loss;     // sums of this worker's batch
  size_t samples = 0;
  absl::Duration waited;  // since the start
};

// Called after each step, on the training thread.
using StepObserver = std::function<void(const StepProgress&)>;

struct StageTimes {
  absl::Duration compute, copy, encode, send, wait, decode, local_update, overlap;
};

struct TensorPushes {
  std::string key;
  wire::LayerKind layer = wire::OTHER;
  uint64_t elements = 0;
  PushCounts pushed;  // over all workers
};

// The state of the run after an epoch, or after so many steps. The last epoch's row is the run's
// end, even in the middle of an epoch.
struct EpochReport {
  size_t steps = 0;           // since the start
  absl::Duration seconds;     // since the start, without evaluations, on this worker
  uint64_t bytes_pushed = 0;  // since the start, over all workers
  uint64_t bytes_pulled = 0;
  // With this worker's weights; nullopt if it did not evaluate. With a backup model these are the
  // weights of its last step.
  std::optional<LossSums> test;
};

struct TrainingReport {
  // Time from the first step to the last weight, without evaluations, on this worker.
  absl::Duration seconds;
  size_t steps = 0;                      // of the whole run, those before it was resumed included
  std::vector<EpochReport> epochs;       // at least one
  std::vector<EpochReport> evaluations;  // after every evaluate_every steps
  // Sums over all workers.
  uint64_t samples = 0;
  uint64_t bytes_pushed = 0;
  uint64_t bytes_pulled = 0;
  PushCounts pushed;
  std::vector<TensorPushes> tensors;  // in the model's order
  StageTimes stages;

  // Returns fp32 bytes over payload bytes.
  double CompressionRatio() const {
    const auto fp32_bytes = static_cast<double>(pushed.elements * sizeof(float));
    return bytes_pushed == 0 ? 1 : fp32_bytes / static_cast<double>(bytes_pushed);
  }
};

// Trains. Collective; the calling thread is the training thread.
// REQUIRES: `model` and `data` outlive the store, which may still be writing weights after an
// error.
// InvalidArgument: an option is out of range.
// Otherwise the first error of model, store or backup model.
[[nodiscard]] absl::StatusOr<TrainingReport> Train(const TrainOptions& options, const Dataset& data,
                                                   Model* model, KVStore* store,
                                                   const StepObserver& observer);

// Evaluates the whole test split with the model's present weights.
[[nodiscard]] absl::StatusOr<LossSums> EvaluateTestSplit(const Dataset& data, Model* model);

}  // namespace slimps

#endif  // SLIMPS_WORKER_TRAINER_TRAIN_LOOP_H_
