// SPDX-License-Identifier: Apache-2.0
// Runs something on a shard's thread and waits for it, for threads that write files.
//
//   SLIMPS_RETURN_IF_ERROR(
//       RunOnShard(shard, [&](ShardState& state) { ids = state.Partitions(); }));
#ifndef SLIMPS_SERVER_SHARD_RUN_ON_SHARD_H_
#define SLIMPS_SERVER_SHARD_RUN_ON_SHARD_H_

#include "absl/status/status.h"
#include "server/shard/shard.h"

namespace slimps {

// Runs `control` after everything that was posted before, and returns when it has run.
// Unavailable: the shard has stopped; `control` was not run.
[[nodiscard]] absl::Status RunOnShard(Shard* shard, const Shard::Control& control);

}  // namespace slimps

#endif  // SLIMPS_SERVER_SHARD_RUN_ON_SHARD_H_
