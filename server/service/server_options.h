// SPDX-License-Identifier: Apache-2.0
// What a server is told at its start.
#ifndef SLIMPS_SERVER_SERVICE_SERVER_OPTIONS_H_
#define SLIMPS_SERVER_SERVICE_SERVER_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "proto/base/file.h"
#include "server/round/waiting_bytes.h"
#include "server/service/directory.h"
#include "server/shard/shard.h"

namespace slimps {

struct SnapshotOptions {
  std::string root;  // the snapshots lie in root/JOB/server-RANK
  uint32_t rank = 0;
  absl::Duration every = absl::Seconds(30);  // from the end of one to the begin of the next
  const Disk* disk = MachineDisk();
};

struct ServerOptions {
  std::string job_id = "slimps";
  uint32_t num_workers = 1;
  size_t shard_threads = 1;
  DirectoryLimits directory;
  // Bound on pushes of incomplete rounds, in all partitions together. Partial sums are included.
  size_t max_waiting_bytes = WaitingBytes::kMax;
  ShardOptions shard;
  std::optional<SnapshotOptions> snapshots = std::nullopt;  // nullopt: none are taken
  const Disk* checkpoint_disk = MachineDisk();
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SERVICE_SERVER_OPTIONS_H_
