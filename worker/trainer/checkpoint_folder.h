// SPDX-License-Identifier: Apache-2.0
// The folder of a run's checkpoints: one in each of its folders step-000000100, step-000000200, ...
// The newest two are kept. Thread-safe.
#ifndef SLIMPS_WORKER_TRAINER_CHECKPOINT_FOLDER_H_
#define SLIMPS_WORKER_TRAINER_CHECKPOINT_FOLDER_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace slimps {

// Returns the folder of the checkpoint after that step.
std::string CheckpointOf(const std::string& folder, size_t step);

// Returns `folder` itself if it is a checkpoint, or that of the newest whole checkpoint in it.
// NotFound: there is none.
[[nodiscard]] absl::StatusOr<std::string> FindCheckpoint(const std::string& folder);

// Removes all but the newest two whole checkpoints, and that after `step`, which is being written.
void RemoveOldCheckpoints(const std::string& folder, size_t step);

}  // namespace slimps

#endif  // SLIMPS_WORKER_TRAINER_CHECKPOINT_FOLDER_H_
