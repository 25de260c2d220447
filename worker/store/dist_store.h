// SPDX-License-Identifier: Apache-2.0
// DistStore: the KVStore over scheduler and servers. It puts the parts of a worker together and
// owns their order of life:
//
//   WorkerNode     the worker as a member of the job, and its failure
//   CodecChoice    which codecs, with which optimizer
//   TensorTraffic  gradients and weights      RowTraffic     rows
//   StateTransfer  the optimizer's state as a file's content
//   Checkpoints    the whole job in a folder; with ResidualTransfer, a worker's residuals
//
// Shutdown, in this order:
//   1. stop serving metrics, which ask for reports;
//   2. drain, leave the job, refuse new work;
//   3. stop the membership, whose heartbeat thread may call WorkerNode::Fail;
//   4. stop the courier and the transport: from here on no callback runs except those of the push
//      and the pull threads;
//   5. destroy the members, the push threads first: they call PullMerger and WorkerNode::Fail.
// Failure: WorkerNode::Fail keeps the first error, ends every wait of every stage with it, and
// makes every later call return it. A stage that fails calls it. The membership calls it when
// another node is lost or has failed.
//
// Lock order: no part calls another while it holds its own lock.
// Thread-safe.
#ifndef SLIMPS_WORKER_STORE_DIST_STORE_H_
#define SLIMPS_WORKER_STORE_DIST_STORE_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/net/transport.h"
#include "watch/http/http_server.h"
#include "watch/node_report.pb.h"
#include "worker/activity.h"
#include "worker/combination.h"
#include "worker/kvstore.h"
#include "worker/store/broadcast/byte_broadcast.h"
#include "worker/store/codec_choice.h"
#include "worker/store/rank_return.h"
#include "worker/store/row_traffic.h"
#include "worker/store/saving/checkpoints.h"
#include "worker/store/saving/residual_transfer.h"
#include "worker/store/saving/state_transfer.h"
#include "worker/store/tensor_traffic.h"
#include "worker/store/warm_up_end.h"
#include "worker/store/worker_node.h"
#include "worker/tensor/key_table.h"

namespace slimps {

class DistStore final : public KVStore {
 public:
  // Joins the job over `transport`. REQUIRES: `transport` has not been started.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<DistStore>> Create(
      wire::StoreMode mode, const KVStoreOptions& options, std::unique_ptr<Transport> transport);
  ~DistStore() override;

  absl::Status Init(const std::vector<InitTensor>& tensors) override;
  absl::Status Push(const Key& key, std::span<const float> gradient, int priority) override;
  absl::Status PushLent(const Key& key, std::vector<LentGradient> gradients, int priority) override;
  absl::Status PushNothing(const Key& key) override;
  absl::Status Pull(const Key& key, std::span<float> out, int priority) override;
  absl::Status PushPull(const Key& key, std::span<const float> gradient, std::span<float> out,
                        int priority) override;
  void PullAsync(const Key& key, std::span<float> out, int priority,
                 std::function<void(absl::Status)> done) override;
  void PullTo(const Key& key, LentTarget out, int priority) override;
  void PullOnto(const Key& key, std::span<float> weights, int priority,
                std::function<void(absl::Status)> done) override;
  absl::Status PushRowSparse(const Key& key, std::span<const int64_t> rows,
                             std::span<const float> values, int priority) override;
  absl::Status PullRows(const Key& key, std::span<const int64_t> row_ids,
                        std::vector<int64_t>* rows, std::vector<float>* values,
                        int priority) override;
  absl::Status Explained(absl::Status status) const override;
  absl::Status SetOptimizer(const wire::OptimizerSpec& spec) override;
  absl::Status SetHyper(const Key& key, std::optional<Hyper> hyper) override;
  absl::Status SetClipped(const Key& key, bool clipped) override;
  void ClipRound(std::span<const Key> keys, double max_norm, ClippedNorm* out,
                 std::function<void(absl::Status)> done) override;
  absl::StatusOr<std::string> SaveOptimizerStates() override;
  absl::Status LoadOptimizerStates(std::string_view content) override;
  absl::Status PullOptimizerStates(std::span<const Key> keys,
                                   std::span<LentOptimizerState> states) override;
  absl::Status PutOptimizerStates(std::span<const Key> keys,
                                  std::span<const LentOptimizerState> states,
                                  absl::Status mine) override;
  absl::StatusOr<std::string> SaveResiduals() override;
  absl::Status LoadResiduals(std::string_view content) override;
  absl::Status Save(const std::string& folder, absl::StatusOr<std::string_view> own_state) override;
  absl::Status AwaitSaved() override;
  absl::StatusOr<LoadedCheckpoint> Load(const std::string& folder) override;
  absl::Status ChangeCompression(std::string_view codec_spec, CompressedKeys keys) override;
  absl::Status SetPolicy(std::string_view policy) override;
  absl::Status Barrier() override;
  absl::StatusOr<std::vector<double>> AllReduceSumFor(std::string_view purpose,
                                                      const std::vector<double>& values) override;
  absl::StatusOr<std::vector<bool>> BroadcastBytes(
      std::span<const std::span<std::byte>> buffers) override {
    return slimps::BroadcastBytes(buffers, options_, &node_);
  }
  absl::Status Wait() override;
  absl::Status Leave() override;
  absl::Status Close() override;
  void Abort(const absl::Status& why) override;
  uint32_t rank() const override { return node_.rank(); }
  absl::Duration timeout() const override { return options_.timeout; }
  uint32_t num_workers() const override { return options_.num_workers; }
  std::string type() const override { return StoreModeName(mode_); }
  StoreTotals totals() const override;
  PushCounts push_counts(const Key& key) const override;
  uint64_t former_rounds() const override { return rank_return_->rounds(); }
  bool measuring() const override {
    return codecs_.plan()->IsMeasured(keys_.MaxPushedRounds() + 1);
  }
  bool push_may_wait(size_t bytes) const override { return !tensors_->HasRoom(bytes); }
  std::optional<wire::CodecMap> codec_map() const override;
  std::vector<wire::CodecMap> policy_decisions() const override;
  std::vector<KeyCodec> key_codecs() const override;
  PushTreatment push_treatment() const override {
    return {.grad_scale = options_.grad_scale, .codec = &codecs_.plan()->compressor()};
  }
  Devices* devices() override { return tensors_->devices(); }
  std::string Report(bool details) const override;
  Activity* activity() override { return &activity_; }

 private:
  DistStore(wire::StoreMode mode, const KVStoreOptions& options,
            std::unique_ptr<Transport> transport);

  absl::Status Start();

  // Parts of the report: bytes by codec; tensors and the spans of a round.
  void AddBytes(const PushFigures& pushes, const PullFigures& pulls,
                watch::NodeReport* report) const;
  void AddDetails(watch::NodeReport* report) const;

  // True if the job goes on with these tensors, which a former process of this worker initialised.
  absl::StatusOr<bool> TakeUp(const std::vector<TensorPlan>& plans, Combine combine);
  bool HasPushed() const { return keys_.MaxPushedRounds() > 0 && !node_.returning(); }

  // Tells the servers of it, from rank 0.
  absl::Status SendOptimizer(const wire::OptimizerSpec& spec);

  const wire::StoreMode mode_;
  KVStoreOptions options_;
  Activity activity_;
  KeyTable keys_;
  WorkerNode node_;  // declared before the parts that have threads, which use it until they end
  CodecChoice codecs_;

  std::atomic<uint64_t> declarations_{0};  // calls of Init that came to declare their keys

  // Made by Start, when the servers are known; constant afterwards.
  std::unique_ptr<TensorTraffic> tensors_;
  std::unique_ptr<RankReturn> rank_return_;
  std::unique_ptr<RowTraffic> rows_;
  std::unique_ptr<StateTransfer> states_;
  std::unique_ptr<ResidualTransfer> residuals_;
  std::unique_ptr<Checkpoints> checkpoints_;  // its thread uses those above
  std::unique_ptr<WarmUpEnd> warm_up_;

  Mutex mutex_;
  // Null: nobody asks for metrics, or the store is closed. Declared last: it reads those above.
  std::unique_ptr<HttpServer> metrics_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_DIST_STORE_H_
