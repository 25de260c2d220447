// SPDX-License-Identifier: Apache-2.0
// What a server has of its job when it begins: nothing, or what its newest whole snapshot has.
//
//   SLIMPS_ASSIGN_OR_RETURN(Beginning beginning, BeginFromSnapshot(options, &clock));
//   membership.restored = beginning.restored;
//   ServerNode node(&transport, membership, options, &clock, std::move(beginning));
#ifndef SLIMPS_SERVER_SERVICE_BEGINNING_H_
#define SLIMPS_SERVER_SERVICE_BEGINNING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/slimps.pb.h"
#include "server/round/waiting_bytes.h"
#include "server/saved/snapshot_folder.h"
#include "server/service/directory.h"
#include "server/service/server_options.h"
#include "server/shard/shard_state.h"

namespace slimps {

struct Beginning {
  std::shared_ptr<WaitingBytes> waiting;
  Directory directory;
  std::vector<std::unique_ptr<ShardState>> shards;
  std::optional<wire::StoreMode> mode;
  std::optional<uint32_t> staleness;
  std::unique_ptr<SnapshotFolder> folder;  // null: the server takes no snapshots
  bool restored = false;
};

// Returns the beginning of a server that takes no snapshots.
Beginning BeginEmpty(const ServerOptions& options, const Clock* clock);

// Opens the folder of the server's snapshots and restores the newest whole one, if there is any.
// Logs what is wrong with newer ones. Without options.snapshots: BeginEmpty.
// DataLoss: there are snapshots, and none is whole; the message says why.
// InvalidArgument, Unavailable: SnapshotFolder::Open's.
[[nodiscard]] absl::StatusOr<Beginning> BeginFromSnapshot(const ServerOptions& options,
                                                          const Clock* clock);

}  // namespace slimps

#endif  // SLIMPS_SERVER_SERVICE_BEGINNING_H_
