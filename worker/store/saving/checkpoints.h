// SPDX-License-Identifier: Apache-2.0
// Checkpoints: saves the whole job in a folder, and loads it (KVStore::Save, Load).
//
//   weights.safetensors   the weights as workers see them, for any tool; worker 0 writes it
//   server-RANK.images    each server's partitions (server/service/checkpointer.h)
//   worker-RANK.state     each worker's part (worker/saved/worker_state.h)
//   manifest.json         written last (worker/saved/checkpoint_manifest.h)
//
//   worker 0   Agree | pull weights, COPY to servers | Agree    ...   await files | manifest
//   others     Agree |                               | Agree    ...   own file    |
//                     nobody pushes here                        training goes on here
//
// Loading, every worker checks its part and every server reads its own before anything changes.
// What fails after that fails the store.
//
// Owned by the store. Thread-safe, one call at a time; the calling thread waits.
#ifndef SLIMPS_WORKER_STORE_SAVING_CHECKPOINTS_H_
#define SLIMPS_WORKER_STORE_SAVING_CHECKPOINTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/base/thread.h"
#include "worker/kvstore.h"
#include "worker/saved/checkpoint_manifest.h"
#include "worker/saved/worker_state.h"
#include "worker/store/codec_choice.h"
#include "worker/store/saving/residual_transfer.h"
#include "worker/store/saving/state_transfer.h"
#include "worker/store/tensor_traffic.h"
#include "worker/store/worker_node.h"
#include "worker/tensor/key_table.h"

namespace slimps {

// The parts of a store that have something to save. They outlive Checkpoints.
struct CheckpointParts {
  std::string kvstore;  // its type
  KeyTable* keys = nullptr;
  WorkerNode* node = nullptr;
  CodecChoice* codecs = nullptr;
  TensorTraffic* tensors = nullptr;
  StateTransfer* states = nullptr;
  ResidualTransfer* residuals = nullptr;
};

class Checkpoints final {
 public:
  // REQUIRES: `options` outlive this object.
  Checkpoints(const KVStoreOptions& options, CheckpointParts parts)
      : options_(options), parts_(std::move(parts)) {}
  ~Checkpoints() { AwaitSaved().IgnoreError(); }

  // KVStore::Save, AwaitSaved and Load.
  absl::Status Save(const std::string& folder, const absl::StatusOr<std::string_view>& own_state);
  absl::Status AwaitSaved();
  absl::StatusOr<LoadedCheckpoint> Load(const std::string& folder);

 private:
  // What this worker has copied and not written yet.
  struct Draft {
    std::string folder;
    CheckpointManifest manifest;
    std::string own_file;                     // its content
    std::vector<std::vector<float>> weights;  // worker 0: in the order of manifest.tensors
  };
  struct Found {
    std::string content;  // of this worker's file
    CheckpointManifest manifest;
    WorkerState state;  // views of `content`
    ResidualTransfer::Loaded residuals;
  };

  absl::Status MakeFolder(const std::string& folder) const;
  uint64_t DrawId();
  // Returns the id that worker 0 calls it with. Collective.
  absl::StatusOr<uint64_t> IdOfWorker0(uint64_t id);
  CheckpointManifest DescribeJob(uint64_t id) const;
  absl::StatusOr<WorkerState> TakeProgress(uint64_t id) const;
  absl::Status CopyOwn(std::string_view own_state, Draft* draft);
  absl::Status CopyAll(Draft* draft);
  absl::StatusOr<std::vector<float>> PullWeights(const TensorPlan& tensor);
  // Writes what was copied, on the thread of checkpoints.
  absl::Status Finish(Draft draft);
  absl::StatusOr<wire::CheckpointFile> WriteOwn(const Draft& draft) const;
  absl::StatusOr<wire::CheckpointFile> WriteWeights(const Draft& draft) const;
  absl::Status WriteAll(Draft* draft);
  // Checks that worker 0 sees the files of all nodes.
  absl::Status CheckFiles(const Draft& draft) const;
  // Sums this thread's values over the workers, as WorkerNode::Sum does for callers.
  absl::StatusOr<std::vector<double>> SumOfWriters(const std::vector<double>& values);

  absl::StatusOr<Found> Find(const std::string& folder);
  // Makes sure that all workers have found the same one. Collective.
  absl::Status AgreeOnFound(const CheckpointManifest& manifest, const std::string& folder);
  // Makes the job what was found. An error fails the store.
  absl::Status Apply(Found* found, const std::string& folder);
  absl::Status AgreeOrFail(const absl::Status& mine);
  absl::Status Use(Found* found);
  // Makes all servers take a step of a checkpoint, and returns their answers.
  absl::StatusOr<std::vector<wire::Header>> TellAll(wire::Checkpoint::Step step,
                                                    const CheckpointManifest& manifest,
                                                    const std::string& folder);
  void DropAtServers(const CheckpointManifest& manifest);

  const KVStoreOptions& options_;
  const CheckpointParts parts_;
  uint64_t begun_ = 0;  // checkpoints

  Mutex mutex_;
  absl::Status saved_ ABSL_GUARDED_BY(mutex_);  // of the newest that was written
  Thread thread_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_SAVING_CHECKPOINTS_H_
