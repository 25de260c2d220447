// SPDX-License-Identifier: Apache-2.0
// DistStore: the KVStore over scheduler and servers. It ties the stages together and owns their
// order of life:
//
//   caller --Device copy--> grad_buf --> PushPipeline --> Courier --> Transport ~~> servers
//                      (GradientStaging)
//   caller <-- out <------- PullMerger <--- Courier <--- Transport <~~
//
// Shutdown, in this order:
//   1. drain, leave the job, refuse new work;
//   2. stop the membership, whose heartbeat thread may call Fail;
//   3. stop the courier and the transport: from here on no callback runs except those of the push
//      and the pull thread;
//   4. destroy the members, the push thread first: it calls PullMerger and Fail.
// Failure: Fail keeps the first error, ends every wait of every stage with it, and makes every
// later call return it. A stage that fails calls it. The membership calls it when another node is
// lost or has failed.
//
// Lock order: no stage calls another while it holds its own lock.
// Thread-safe.
#ifndef SLIMPS_WORKER_STORE_DIST_STORE_H_
#define SLIMPS_WORKER_STORE_DIST_STORE_H_

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/out_of_memory.h"
#include "proto/net/membership/membership.h"
#include "proto/net/transport.h"
#include "worker/combination.h"
#include "worker/courier/courier.h"
#include "worker/courier/item_gathering.h"
#include "worker/courier/rpc_client.h"
#include "worker/device/device.h"
#include "worker/kvstore.h"
#include "worker/plan/compression_plan.h"
#include "worker/pull/pull_merger.h"
#include "worker/push/push_pipeline.h"
#include "worker/push/staging.h"
#include "worker/saved/optimizer_states.h"
#include "worker/tensor/key_table.h"

namespace slimps {

class DistStore final : public KVStore, private MessageSink {
 public:
  // Joins the job over `transport`. REQUIRES: `transport` has not been started.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<DistStore>> Create(
      wire::StoreMode mode, const KVStoreOptions& options, std::unique_ptr<Transport> transport);
  ~DistStore() override;

  absl::Status Init(const std::vector<InitTensor>& tensors) override;
  absl::Status Push(const Key& key, std::span<const float> gradient, int priority) override;
  absl::Status PushNothing(const Key& key) override;
  absl::Status Pull(const Key& key, std::span<float> out, int priority) override;
  absl::Status PushPull(const Key& key, std::span<const float> gradient, std::span<float> out,
                        int priority) override;
  void PullAsync(const Key& key, std::span<float> out, int priority,
                 std::function<void(absl::Status)> done) override;
  void PullOnto(const Key& key, std::span<float> weights, int priority,
                std::function<void(absl::Status)> done) override;
  absl::Status PushRowSparse(const Key& key, std::span<const int64_t> rows,
                             std::span<const float> values, int priority) override;
  absl::Status PullRows(const Key& key, std::span<const int64_t> row_ids,
                        std::vector<int64_t>* rows, std::vector<float>* values,
                        int priority) override;
  absl::Status Broadcast(const InitTensor& tensor, std::span<float> out) override;
  absl::Status SetOptimizer(const wire::OptimizerSpec& spec) override;
  absl::Status SetHyper(const Key& key, std::optional<Hyper> hyper) override;
  absl::StatusOr<std::string> SaveOptimizerStates() override;
  absl::Status LoadOptimizerStates(std::string_view content) override;
  absl::StatusOr<std::string> SaveResiduals() override;
  absl::Status LoadResiduals(std::string_view content) override;
  absl::Status SetGradientCompression(std::string_view codec_spec) override;
  absl::Status SetGradientCompression(
      const std::map<std::string, std::string>& dictionary) override;
  absl::Status Barrier() override;
  absl::StatusOr<std::vector<double>> AllReduceSum(const std::vector<double>& values) override;
  absl::StatusOr<std::vector<double>> AllReduceSumFor(const std::string& purpose,
                                                      const std::vector<double>& values) override;
  absl::Status Wait() override;
  absl::Status Leave() override;
  absl::Status Close() override;
  void Abort(const absl::Status& why) override;
  uint32_t rank() const override { return membership_.rank(); }
  uint32_t num_workers() const override { return options_.num_workers; }
  std::string type() const override { return StoreModeName(mode_); }
  bool is_capable(std::string_view capability) const override { return capability == "optimizer"; }
  StoreTotals totals() const override;
  PushCounts push_counts(const Key& key) const override;
  bool measuring() const override { return plan()->IsMeasured(keys_.MaxPushedRounds() + 1); }
  std::optional<wire::CodecMap> codec_map() const override;
  PushTreatment push_treatment() const override {
    return {.grad_scale = options_.grad_scale, .codec = &plan()->compressor()};
  }

 private:
  DistStore(wire::StoreMode mode, const KVStoreOptions& options,
            std::unique_ptr<Transport> transport);

  void OnMessage(PeerId from, Message message) override;
  void OnBadFrame(PeerId from, const absl::Status& why) override;
  void OnUndeliverable(PeerId to, const absl::Status& why) override;
  void OnConnectionLost(PeerId to) override;
  void OnOutOfMemory(const std::bad_alloc& error) override;
  // Tells a server who this worker is, before anything else on a connection: a server closes a
  // connection on which an unknown peer sends much.
  void Greet(PeerId server);

  absl::Status Start();
  absl::Status MakePlan(std::string_view codec_spec, std::optional<uint64_t> fixed_threshold_bytes);
  // Logs, on rank 0, what is questionable about the codec. REQUIRES: joined.
  void WarnOfCodec() const;
  // Returns, for example, "1bit:scaling=l1, pulls fp16".
  std::string DescribeCompression() const;
  // Logs once in which ways the workers' compression differs. Empty: it does not.
  void WarnOfDifference(const std::string& difference);
  void StartPipeline();
  absl::Status ChangeCompression(std::string_view codec_spec,
                                 std::optional<uint64_t> fixed_threshold_bytes);
  std::optional<wire::OptimizerSpec> optimizer() const;
  absl::Status TellServers(const wire::Header& message, const std::string& what);
  void ReportThresholds(wire::ThresholdReport report);
  // kOurs: this worker failed, and the scheduler must be told. kOthers: the scheduler knows it.
  enum class Cause { kOurs, kOthers };
  void Fail(const absl::Status& cause, Cause whose);
  // Tells every stage and, for kOurs, the scheduler. May be called again.
  void Tell(const absl::Status& why, Cause whose);
  // Waits until the scheduler knows why this worker failed, if it did: at most kReportPatience.
  void AwaitReport();
  int PriorityOf(int asked) const { return options_.prioritise ? asked : 0; }
  // Counts the round and returns a job that carries nothing yet.
  PushJob CountJob(const TensorPlan* tensor, int priority);
  // Copies the gradient to grad_buf and counts the round.
  absl::StatusOr<PushJob> MakePushJob(const Key& key, std::span<const float> gradient,
                                      int priority);
  // Copies the gradient and returns its largest magnitude.
  // InvalidArgument: an element is not finite (names it).
  absl::StatusOr<float> CopyGradient(const TensorPlan& tensor, std::span<const float> gradient,
                                     const GradientBuffers& grad_bufs);
  absl::Status Submit(PushJob job);
  // Sends the push, and the pull of the version that it makes, in one message. Calls `pulled` when
  // the pull is done. Returns false, having sent nothing, if the two cannot share a message.
  absl::StatusOr<bool> SendTogether(const PushJob& job, std::span<float> out,
                                    std::function<void(absl::Status)> pulled, SteadyTime* prepared);
  void SubmitPull(PullJob job, const Key& key);
  absl::Status AwaitAcknowledged(const TensorPlan& tensor);
  absl::StatusOr<const TensorPlan*> FindForPull(const Key& key, size_t elements);
  // True if this version or the next travels as a change. A pull of this version then goes through
  // the merger's copy, because a change is added to the version before it.
  bool NeedsCopy(const TensorPlan& tensor, uint64_t version) const;
  // Returns how the version that round `version` makes is pulled, as PushItem.change_codec says it.
  std::string ChangeCodecFor(const TensorPlan& tensor, uint64_t version) const;
  // Returns the least version that a pull must see: dist_sync waits for this worker's own pushes.
  uint64_t NewestPushed(const Key& key) const {
    return mode_ == wire::DIST_SYNC ? keys_.PushedRounds(key) : 0;
  }
  wire::PullItem MakePull(const TensorPlan& tensor, size_t partition, uint64_t min_version) const;
  absl::StatusOr<std::vector<Answer>> AwaitAnswers(ItemGathering& gathering);
  // Returns the values of the `unique` rows, which ascend, one row after another.
  absl::StatusOr<std::vector<float>> FetchRows(const TensorPlan& tensor,
                                               std::span<const int64_t> unique, int priority);
  // Returns the request for one partition's part of the optimizer's state.
  wire::PullItem StatePull(const TensorPlan& tensor, size_t partition, uint32_t number) const;
  absl::Status CollectState(const TensorPlan& tensor, OptimizerStates* states);
  absl::Status CheckLoadable(const OptimizerStates& states);
  absl::Status SendState(const TensorPlan& tensor, const OptimizerStates& states, uint64_t load);
  // A barrier that returns this worker's error or, if others failed and this worker did not,
  // Aborted.
  absl::Status AgreeOn(const absl::Status& mine, const char* what);
  absl::Status CheckTogether(const Codec& codec,
                             const std::optional<wire::OptimizerSpec>& optimizer) const;
  absl::Status FirstError() const;
  // True if the time to send the tensor should count for the threshold table: some of its
  // partitions are on another machine, or all servers are on this one.
  bool CrossesNetwork(const TensorPlan& tensor) const;
  // Returns the newest plan. REQUIRES: Start has made one.
  CompressionPlan* plan() const {
    MutexLock lock(&mutex_);
    return plans_.back().get();
  }
  // Fails the store if `answer` says that a server is gone. That ends the job, and this worker may
  // not have heard of it yet.
  absl::Status FailIfServerIsGone(const absl::Status& answer) {
    if (absl::IsUnavailable(answer)) Fail(answer, Cause::kOthers);
    return answer;
  }
  void AddWait(SteadyTime since);

  const wire::StoreMode mode_;
  const KVStoreOptions options_;
  const std::unique_ptr<Transport> transport_;
  const std::unique_ptr<Device> device_;
  GradientStaging staging_;
  const slimps::OnOutOfMemory on_out_of_memory_;  // fails the store; for every thread of it
  Membership membership_;
  RpcClient rpc_;
  KeyTable keys_;
  // True after Leave: rounds are made without this worker. Publishes nothing but itself.
  std::atomic<bool> left_{false};

  // Declared before the stages that have threads, which use these until they end.
  mutable Mutex mutex_;
  absl::Status first_error_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<PeerId> undeliverable_ ABSL_GUARDED_BY(mutex_);  // peers already logged as such
  bool report_due_ ABSL_GUARDED_BY(mutex_) = false;         // first_error_ is not reported yet
  CondVar reported_;
  std::optional<wire::OptimizerSpec> optimizer_ ABSL_GUARDED_BY(mutex_);  // as this worker was told
  uint64_t state_loads_ ABSL_GUARDED_BY(mutex_) = 0;  // the number of the newest load
  uint64_t row_bytes_pulled_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string told_difference_ ABSL_GUARDED_BY(mutex_);  // between workers' compression
  absl::Duration copy_ ABSL_GUARDED_BY(mutex_);
  absl::Duration wait_ ABSL_GUARDED_BY(mutex_);

  // Made by Start, when the servers are known; constant afterwards.
  std::vector<PeerId> servers_;
  std::vector<bool> is_here_;  // by server: on this machine, and not reached over the network
  std::unique_ptr<Courier> courier_;
  // SetGradientCompression adds one, before any push. None is erased: a pointer that a thread found
  // here stays valid.
  std::vector<std::unique_ptr<CompressionPlan>> plans_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<const Codec> pull_codec_;  // KVStoreOptions::pull_compression
  std::unique_ptr<PullMerger> pull_;
  std::unique_ptr<PushPipeline> push_;  // declared after all that its thread uses until it ends
  std::atomic<bool> ready_{false};      // publishes these to the I/O thread
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_DIST_STORE_H_
