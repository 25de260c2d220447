// SPDX-License-Identifier: Apache-2.0
// TensorTraffic: whole tensors on their way. It counts the rounds that this worker pushes, copies
// gradients to grad_buf, and knows which version a pull must see.
//
//   caller --Device copy--> grad_buf --------------> PushPipeline --> Courier --> servers
//                      (GradientStaging) \> PhasedPushes />
//   caller <-- out <------- PullMerger <--- Courier <--
//
//   TensorTraffic tensors(mode, options, &keys, &node, &codecs);
//   SLIMPS_RETURN_IF_ERROR(tensors.Push("w", gradient, /*priority=*/0));
//   SLIMPS_RETURN_IF_ERROR(tensors.Pull("w", weights, /*priority=*/0));
//
// Owned by the store, made when the worker has joined. Its destructor ends the push and the pull
// thread. Methods named as in KVStore do what is said there. Thread-safe.
#ifndef SLIMPS_WORKER_STORE_TENSOR_TRAFFIC_H_
#define SLIMPS_WORKER_STORE_TENSOR_TRAFFIC_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "worker/device/device.h"
#include "worker/device/devices.h"
#include "worker/device/place.h"
#include "worker/kvstore.h"
#include "worker/phases/phased_pushes.h"
#include "worker/pull/pull_merger.h"
#include "worker/push/push_pipeline.h"
#include "worker/push/staging.h"
#include "worker/store/arriving_gradients.h"
#include "worker/store/codec_choice.h"
#include "worker/store/worker_node.h"
#include "worker/tensor/key_table.h"

namespace slimps {

class TensorTraffic final {
 public:
  // REQUIRES: `node` has joined. The arguments outlive this object.
  TensorTraffic(wire::StoreMode mode, const KVStoreOptions& options, KeyTable* keys,
                WorkerNode* node, CodecChoice* codecs);
  ~TensorTraffic();

  absl::Status Push(const Key& key, std::span<const float> gradient, int priority);
  absl::Status PushLent(const Key& key, std::vector<LentGradient> gradients, int priority);
  absl::Status PushNothing(const Key& key);
  // Pushes rows of the tensor: one payload of format rows for each partition.
  absl::Status PushRows(const TensorPlan& tensor,
                        std::shared_ptr<const std::vector<ReadyPayload>> payloads, int priority);
  absl::Status Pull(const Key& key, std::span<float> out, int priority);
  absl::Status PushPull(const Key& key, std::span<const float> gradient, std::span<float> out,
                        int priority);

  // Pulls the version that this worker pushed last. The caller sets `out`, `kind`, `priority` and
  // `done` of the job.
  void SubmitPull(const Key& key, PullJob job);
  void PullTo(const Key& key, LentTarget out, int priority);

  // Waits until every push is acknowledged.
  absl::Status Wait();

  // Waits as Wait; from then on rounds are made without this worker.
  absl::Status Leave();
  bool left() const { return left_.load(); }

  // Waits as Wait, for a store that is being closed, and sends the reports that are due.
  absl::Status Finish();

  // For pulls that do not go through the pull merger: returns the request for one partition.
  wire::PullItem MakePull(const TensorPlan& tensor, size_t partition, uint64_t min_version) const;

  // True if a version is the weights after a round of all workers.
  bool counts_rounds() const { return mode_ == wire::DIST_SYNC; }

  // Returns the least version that a pull must see: dist_sync waits for this worker's own pushes.
  uint64_t NewestPushed(const Key& key) const;

  // Waits for this worker's pushes of the tensor where no version tells of them.
  absl::Status AwaitOwnPushes(const TensorPlan& tensor);

  int PriorityOf(int asked) const { return options_.prioritise ? asked : 0; }

  // Ends every wait, now and later, with the first `why`.
  void Fail(const absl::Status& why);

  // Returns true if pushes of so many bytes need not wait.
  bool HasRoom(size_t bytes) const { return staging_.HasRoom(bytes) && push_.HasRoom(bytes); }

  StoreTotals totals() const;
  GradientStaging* staging() { return &staging_; }
  Devices* devices() { return &devices_; }
  PushPipeline* pushes() { return &push_; }
  PhasedPushes* phases() { return &phases_; }
  PullMerger* pulls() { return &pull_; }

  // Calls `use` with what codecs keep of every partition, once every push is acknowledged, and
  // returns its result. Nothing is encoded while `use` runs.
  // DeadlineExceeded: some pushes stayed unacknowledged.
  absl::Status UseStates(const std::function<absl::Status(StateStore&, LevelProbe&)>& use);

 private:
  // Checks once, when all tensors are known, that the codec does something.
  absl::StatusOr<const TensorPlan*> FindForPush(const Key& key, size_t elements);
  // Counts the round and returns a job that carries nothing yet. Waits for the key's last gradient
  // if that is on its way from a GPU.
  absl::StatusOr<PushJob> CountJob(const TensorPlan* tensor, int priority);
  // Copies the gradient to grad_buf and counts the round.
  absl::StatusOr<PushJob> MakePushJob(const Key& key, std::span<const float> gradient,
                                      int priority);
  // True if a gradient with this largest magnitude (infinity: it is not finite) may be pushed.
  bool MayPush(const TensorPlan& tensor, float largest) const;
  // Copies the gradient and returns its largest magnitude.
  // InvalidArgument: an element is not finite (names it), and must be.
  absl::StatusOr<float> CopyGradient(const TensorPlan& tensor, std::span<const float> gradient,
                                     const GradientBuffers& grad_bufs);
  // Returns InvalidArgument, which names the first element that is not finite.
  // REQUIRES: `values`, a partition of the gradient, has one.
  absl::Status CheckArrived(const TensorPlan& tensor, size_t partition,
                            std::span<const float> values, const char* outcome);
  absl::Status PushOfHost(const Key& key, LentGradient lent, int priority);
  // False: the gradient is copied by the thread that pushes.
  bool TakesLoans(const TensorPlan& tensor, const LentGradient& lent) const;
  // A gradient on its way from GPUs.
  struct Arrival {
    PushJob job;
    std::optional<PushPipeline::Announced> place = std::nullopt;  // nullopt: its push has phases
    bool whole = false;         // it goes on when all of it has arrived
    GradientBuffers grad_bufs;  // each owned by the thread on which it arrives
    std::vector<LentGradient> lent;
    SteadyTime start;
    Mutex mutex;
    absl::Status status ABSL_GUARDED_BY(mutex);
    float largest ABSL_GUARDED_BY(mutex) = 0;
  };
  // Takes a partition whose gradient has come. An error fails the store.
  void TakeArrived(Arrival* arrival, size_t partition, const absl::StatusOr<float>& largest);
  // Gives the gradient back.
  void EndArrival(Arrival* arrival);
  // Counts the time of a copy that began at `start` and is over.
  void NoteCopied(const PushJob& job, SteadyTime start);
  // Returns the device of `place`, which can reach `values`. Errors name the key and `what`.
  absl::StatusOr<Device*> FindDevice(const Key& key, std::span<const float> values,
                                     const Place& place, const char* what);
  absl::Status Submit(PushJob job);
  // Sends the push, and the pull of the version that it makes, in one message. Calls `pulled` when
  // the pull is done. Returns false, having sent nothing, if the two cannot share a message.
  absl::StatusOr<bool> SendTogether(const PushJob& job, std::span<float> out,
                                    std::function<void(absl::Status)> pulled, SteadyTime* prepared);
  absl::StatusOr<const TensorPlan*> FindForPull(const Key& key, size_t elements);
  // Hands the job to the stage that its tensor's pushes take.
  absl::Status Queue(PushJob job);
  absl::Status Drain();
  void AddWait(SteadyTime since);

  const wire::StoreMode mode_;
  const KVStoreOptions& options_;
  KeyTable* const keys_;
  WorkerNode* const node_;
  CodecChoice* const codecs_;
  Devices devices_;
  GradientStaging staging_;
  // True after Leave: rounds are made without this worker. Publishes nothing but itself.
  std::atomic<bool> left_{false};
  // True once a push was checked against the codec. Publishes nothing but itself.
  std::atomic<bool> checked_codec_{false};

  mutable Mutex mutex_;
  absl::Duration copy_ ABSL_GUARDED_BY(mutex_);
  absl::Duration wait_ ABSL_GUARDED_BY(mutex_);

  ArrivingGradients arriving_;
  PullMerger pull_;
  PushPipeline push_;    // declared after all that its thread uses until it ends
  PhasedPushes phases_;  // likewise: its thread uses push_
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_TENSOR_TRAFFIC_H_
