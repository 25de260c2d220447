// SPDX-License-Identifier: Apache-2.0
// WorkerOptions: slimps_worker's flags, checked. Text goes in, and typed options or one clear error
// come out. worker_main.cc reads flags and environment. Pure; thread-safe.
#ifndef SLIMPS_WORKER_TRAINER_OPTIONS_H_
#define SLIMPS_WORKER_TRAINER_OPTIONS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/kvstore.h"
#include "worker/trainer/train_loop.h"

namespace slimps {

// The flags as the user typed them. Fields have the names of the flags.
struct WorkerFlags {
  std::string model = "mlp";
  std::string dataset = "digits";
  std::string data_dir;
  int64_t epochs = 1;
  int64_t batch = 32;
  std::string optimizer = "sgd";
  double lr = 0.1;
  std::string lr_schedule = "constant";
  // For --optimizer=momentum or nesterov, and --local_optimizer=momentum.
  double momentum = 0.9;
  double weight_decay = 0;
  int64_t freeze_after = 0;  // for --optimizer=onebit_adam; 0: until the variance is stable
  double clip_norm = 0;      // 0: none
  std::string save_threshold_table;
  std::string backup_model = "off";
  std::string local_optimizer = "server";
  double loc_lr = 0;  // 0: lr
  std::string kvstore = "dist_sync";
  std::string non_finite = "stop";
  int64_t compute_threads = 1;
  int64_t seed = 1;
  double simulate_compute_ms = 0;
  int64_t max_steps = 0;  // 0: all
  int64_t log_every = 50;
  std::string summary_json;
  bool evaluate_epochs = false;
  int64_t evaluate_every = 0;
  std::string save_weights;
  std::string checkpoint;
  int64_t checkpoint_every = 0;  // 0: none
  std::string resume;            // a checkpoint, or a folder of some
  // The flags that are options of the store (kvstore_options.h), by name; those left out have their
  // defaults. grad_scale is none of them: it is --batch.
  std::map<std::string, std::string> store;
  // Every flag that the user gave, also one that was given its default: name and value.
  std::map<std::string, std::string> given;
};

struct WorkerOptions {
  WorkerFlags flags;
  KVStoreOptions store;
  TrainOptions train;
  std::vector<std::string> notes;  // lines for the user: flags that other flags leave no effect
};

// Checks the flags.
// InvalidArgument: names the flag, what was expected and what came, in one line. Also a flag that
// changes how the job trains but has no effect beside the others.
[[nodiscard]] absl::StatusOr<WorkerOptions> CheckWorkerFlags(const WorkerFlags& flags);

}  // namespace slimps

#endif  // SLIMPS_WORKER_TRAINER_OPTIONS_H_
