// SPDX-License-Identifier: Apache-2.0
// A thread that writes a server's snapshots: every so often, and when asked. It asks the shards for
// images of a few partitions at a time, and writes these before it asks for more. So training goes
// on meanwhile, and little memory is taken. A partition's image has all that was counted when it
// was made; images of different partitions need not be of one moment.
//
//   Snapshotter snapshotter(std::move(folder), shards, options, &clock);
//   SLIMPS_RETURN_IF_ERROR(snapshotter.Start(incarnation, on_replaced));  // once in the job
//   snapshotter.Persist([&](const absl::Status& status) { ... });
//   snapshotter.Stop(why);                                        // before the shards stop
//
// A snapshot that fails is logged and counted. Training goes on, and the next one tries again.
#ifndef SLIMPS_SERVER_SERVICE_SNAPSHOTTER_H_
#define SLIMPS_SERVER_SERVICE_SNAPSHOTTER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/thread.h"
#include "server/saved/snapshot_folder.h"
#include "server/service/request_queue.h"
#include "server/service/server_options.h"
#include "server/shard/shard.h"

namespace slimps {

struct SnapshotCounters {
  uint64_t written = 0;
  uint64_t failed = 0;
  SteadyTime newest = SteadyTime::InfinitePast();  // when the newest was whole
};

// Thread-safe, except Start, Stop and RemoveAll, which its owner calls.
class Snapshotter final {
 public:
  using Done = std::function<void(const absl::Status&)>;

  // REQUIRES: `shards` outlive the thread; options.snapshots; `clock` outlives the object.
  Snapshotter(std::unique_ptr<SnapshotFolder> folder, std::vector<Shard*> shards,
              const ServerOptions& options, const Clock* clock);
  ~Snapshotter();

  // Takes over the folder in the name of `owner`, and starts the thread. The thread calls
  // `on_replaced` once it finds that another process has taken over, and takes no more snapshots.
  // Errors are SnapshotFolder::TakeOver's.
  [[nodiscard]] absl::Status Start(const std::string& owner, Done on_replaced);

  // Calls `done` once a snapshot has all that the shards were sent before this call. Its argument
  // says if that snapshot is on the disk; or it is Stop's `why`. Before Start it waits.
  // Errors are RequestQueue::Put's; `done` is not called.
  [[nodiscard]] absl::Status Persist(Done done);

  // As Persist, but a snapshot that fails is followed by the next: calls `saved` after the first
  // that is on the disk, or never.
  void PersistAtLast(std::function<void()> saved);

  // Gives up the snapshot under way and joins the thread. Idempotent.
  void Stop(const absl::Status& why);

  // Removes all snapshots: the job has ended in order. REQUIRES: Stop was called.
  void RemoveAll() { folder_->Remove(); }

  SnapshotCounters counters() const;

 private:
  // The bytes of images that are in memory at one time, unless one alone is larger.
  static constexpr size_t kBatchBytes = size_t{1} << 20;

  void Run();
  absl::Status WriteOne();
  absl::Status WriteShard(Shard* shard, SnapshotWriter* writer, saved::Shard* rest);
  absl::Status WriteBatch(Shard* shard, const std::vector<PartitionId>& ids, size_t* next,
                          SnapshotWriter* writer);
  // Counts the snapshot, and tells people what they should know.
  void Note(const absl::Status& written);

  const std::unique_ptr<SnapshotFolder> folder_;  // owned by the thread while it runs
  const std::vector<Shard*> shards_;
  const SnapshotOptions options_;
  const uint32_t num_workers_;
  const Clock* const clock_;

  RequestQueue<Done> queue_{"requests of a snapshot"};
  mutable Mutex mutex_;
  SnapshotCounters counters_ ABSL_GUARDED_BY(mutex_);
  Done on_replaced_;                            // used by the thread
  std::vector<std::function<void()>> unsaved_;  // of PersistAtLast; used by the thread
  SteadyTime next_;                             // used by the thread
  bool failed_ = false;                         // the newest snapshot; used by the thread
  Thread thread_;                               // last: it uses the other members
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SERVICE_SNAPSHOTTER_H_
