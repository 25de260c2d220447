// SPDX-License-Identifier: Apache-2.0
// How far the snapshots of one partition reach, for each worker. Two snapshots are kept. The older
// one decides: should the newer be damaged, a server goes on from that one. Owned by ShardState.
//
//   durable.Copied(counted);     // the snapshot under way has an image with these pushes
//   durable.Written();           // it is on the disk
//   status.set_durable(durable.Of(worker));
#ifndef SLIMPS_SERVER_SHARD_DURABLE_ROUNDS_H_
#define SLIMPS_SERVER_SHARD_DURABLE_ROUNDS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace slimps {

// Thread-compatible. Pure.
class DurableRounds final {
 public:
  // Notes up to which round each worker's pushes are in the image that was made last.
  void Copied(std::vector<uint64_t> counted) { copied_ = std::move(counted); }

  // Notes that a snapshot is on the disk. If no image was made since the last one, that snapshot
  // does not have this partition.
  void Written() { older_ = std::exchange(newer_, std::exchange(copied_, {})); }

  // Notes that the partition was restored from the newest snapshot.
  void Restored(std::vector<uint64_t> counted) { newer_ = std::move(counted); }

  // Returns ItemStatus.durable: 0, or n + 1 if both snapshots have the worker's pushes up to n.
  uint64_t Of(uint32_t worker) const { return worker < older_.size() ? older_[worker] + 1 : 0; }

 private:
  // By worker; empty: that snapshot does not have the partition, or there is no such snapshot.
  std::vector<uint64_t> copied_, newer_, older_;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SHARD_DURABLE_ROUNDS_H_
