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

// Checks that no whole checkpoint in `folder` is of a later step than `step`, from which a run goes
// on: its own would be taken for the older ones.
// FailedPrecondition: there is one (says which).
[[nodiscard]] absl::Status CheckNoLaterCheckpoint(const std::string& folder, size_t step);

// Removes all but the newest two whole checkpoints, and that after `step`, which is being written.
void RemoveOldCheckpoints(const std::string& folder, size_t step);

}  // namespace slimps

#endif  // SLIMPS_WORKER_TRAINER_CHECKPOINT_FOLDER_H_
