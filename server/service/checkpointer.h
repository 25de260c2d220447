// SPDX-License-Identifier: Apache-2.0
// A server's part in the checkpoints of its job (wire::Checkpoint). It copies all partitions at
// once while no worker pushes, and writes the copies while training goes on. Loading, it reads the
// files of all servers, however many there were, and keeps what belongs to its own partitions. The
// partitions change when everything is there.
//
//   Checkpointer checkpoints(shards, options);
//   status = checkpoints.Handle(rank, request, [](const absl::Status&, const auto& written) {...});
//   checkpoints.Stop(why);                                        // before the shards stop
//
// The file is a snapshot file (snapshot_file.h): its sequence number is the checkpoint's id, and
// its images are of ImageUse::kCheckpoint. Memory: the copies, once; or what is loaded, beside what
// is there.
#ifndef SLIMPS_SERVER_SERVICE_CHECKPOINTER_H_
#define SLIMPS_SERVER_SERVICE_CHECKPOINTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/thread.h"
#include "proto/slimps.pb.h"
#include "server/round/optimizer.h"
#include "server/saved/snapshot_file.h"
#include "server/service/request_queue.h"
#include "server/service/server_options.h"
#include "server/shard/shard.h"

namespace slimps {

// Thread-safe, except Stop, which its owner calls. Its thread begins with the first request.
class Checkpointer final {
 public:
  using Done = std::function<void(const absl::Status&, const wire::CheckpointFile& written)>;

  // REQUIRES: `shards` outlive the object, and run until Stop.
  Checkpointer(std::vector<Shard*> shards, const ServerOptions& options);
  ~Checkpointer();

  // Does what a request says, as the server of this rank, and calls `done` on a thread of its own.
  // `done` gets:
  // InvalidArgument: the files are another model's.
  // DataLoss: a file is damaged, missing, or of another checkpoint.
  // FailedPrecondition: the step before was not made; the folder has a checkpoint, or is not there.
  // Aborted: the disk's error.
  // Stop's `why`.
  // Returns RequestQueue::Put's errors; `done` is not called.
  [[nodiscard]] absl::Status Handle(uint32_t rank, const wire::Checkpoint& request, Done done);

  // Gives up what is under way and joins the thread. Idempotent.
  void Stop(const absl::Status& why);

 private:
  struct Request {
    uint32_t rank = 0;
    wire::Checkpoint what;
    Done done;
  };
  struct Result {
    absl::Status status;
    wire::CheckpointFile written = {};
  };

  void Run();
  void Do(const Request& request);
  Result DoStep(const wire::Checkpoint& what);
  // Answers `request` by the result, which answers later repeats too.
  void Answer(const Request& request, Result result);
  absl::Status Copy(const wire::Checkpoint& what);
  absl::StatusOr<wire::CheckpointFile> Write(const Request& request);
  absl::Status Read(const wire::Checkpoint& what);
  absl::Status ReadFile(const std::string& path);
  absl::Status Stage(const PartitionImage& image);
  absl::Status Apply();
  // Frees what was copied or read.
  void Forget();

  const std::vector<Shard*> shards_;
  const std::string job_id_;
  const uint32_t num_workers_;
  const Disk* const disk_;

  // Used by the thread.
  uint64_t id_ = 0;  // of the newest checkpoint; 0: there was none
  std::map<wire::Checkpoint::Step, Result> results_;
  std::vector<PartitionImage> copies_;
  std::vector<saved::Shard> rest_;              // beside the partitions, by shard
  std::shared_ptr<const Optimizer> optimizer_;  // read from a checkpoint

  RequestQueue<Request> queue_{"requests about checkpoints"};
  Thread thread_;  // last: it uses the other members
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SERVICE_CHECKPOINTER_H_
