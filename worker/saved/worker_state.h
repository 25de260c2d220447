// SPDX-License-Identifier: Apache-2.0
// A worker's part of a checkpoint, as the content of a file.
//
//   byte  0      "SLPSWORK"
//         8      version, uint32, 1
//         12     bytes of its progress, uint32; saved::WorkerProgress
//                bytes of the caller's own state, uint64; that state
//                residuals (residuals.h), up to the checksum
//         last 8 XXH3-64 of all bytes before
//
// Everything is little-endian. Pure; thread-safe.
#ifndef SLIMPS_WORKER_SAVED_WORKER_STATE_H_
#define SLIMPS_WORKER_SAVED_WORKER_STATE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "worker/saved/worker_state.pb.h"

namespace slimps {

struct WorkerState {
  saved::WorkerProgress progress;
  std::string_view own;  // of the caller of KVStore::Save
  std::string_view residuals;
};

// Returns the content of the file.
std::string BuildWorkerState(const WorkerState& state);

// Parses the content of a file. The views that it returns are of `content`. `path` begins every
// message.
// DataLoss: the content is cut short or damaged.
// InvalidArgument: it is something else, or of another version.
[[nodiscard]] absl::StatusOr<WorkerState> ParseWorkerState(std::string_view content,
                                                           const std::string& path);

}  // namespace slimps

#endif  // SLIMPS_WORKER_SAVED_WORKER_STATE_H_
