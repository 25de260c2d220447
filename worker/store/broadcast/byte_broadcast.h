// SPDX-License-Identifier: Apache-2.0
// Makes buffers of all workers equal to those of rank 0 (KVStore::BroadcastBytes).
//
//   1. Rank 0 tells the others each buffer's size and hash, through the scheduler.
//   2. They tell each other in which buffers somebody differs.
//   3. These travel, one after another, in chunks: rank 0 gives a chunk to a server, and the
//      workers that differ take it from there. Chunks go over all servers in turn.
// The servers forget what all have taken (server/service/byte_relay.h).
#ifndef SLIMPS_WORKER_STORE_BROADCAST_BYTE_BROADCAST_H_
#define SLIMPS_WORKER_STORE_BROADCAST_BYTE_BROADCAST_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/kvstore.h"
#include "worker/store/worker_node.h"

namespace slimps {

// Collective. Returns which buffers were written. The calling thread waits.
// InvalidArgument: rank 0 has another number of buffers, or one of another size (names it).
// FailedPrecondition: this worker was started again after the broadcast, or is rank 0 in the middle
// of it, and has other bytes than before.
// Aborted: another worker had one of these errors.
// Otherwise an error of WorkerNode::Sum or WorkerNode::ExchangeWith.
[[nodiscard]] absl::StatusOr<std::vector<bool>> BroadcastBytes(
    std::span<const std::span<std::byte>> buffers, const KVStoreOptions& options, WorkerNode* node);

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_BROADCAST_BYTE_BROADCAST_H_
