// PushPipeline: takes gradients that have arrived in grad_buf and turns each partition into a
// payload on its way to a server. One thread ("push") chooses the codec, encodes (on the encoder's
// own TBB arena), coalesces and dispatches, highest priority first; partitions are independent, so
// encoding one overlaps sending the one before.
//
//   grad_buf --PayloadMaker--> fp_buf or bit_buf --Coalescer--> Courier
//
// While the threshold table is measured, a tensor goes out alone and the thread waits for its
// acknowledgement, so that no time holds queueing or coalescing. Thread-safe.
#ifndef SLIMPS_WORKER_PUSH_PIPELINE_H_
#define SLIMPS_WORKER_PUSH_PIPELINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "compress/codec/codec.h"
#include "compress/codec/state_store.h"
#include "proto/base/mutex.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/thread.h"
#include "worker/coalescer.h"
#include "worker/compression_plan.h"
#include "worker/courier.h"
#include "worker/device/device.h"
#include "worker/key_table.h"
#include "worker/payload_maker.h"
#include "worker/push_counts.h"
#include "worker/push_measurement.h"
#include "worker/staging.h"
#include "worker/unacknowledged_pushes.h"

namespace slimps {

struct PushJob {
  const TensorPlan* tensor = nullptr;  // lives as long as the store
  uint64_t round = 0;
  int priority = 0;
  GradientBuffers grad_bufs;  // empty: this worker contributes `rows`, or nothing
  float gradient_bound = std::numeric_limits<float>::infinity();  // of every |grad_buf[i]|
  // Payloads of format rows, one for each partition, sent as they are.
  std::shared_ptr<const std::vector<Payload>> rows = nullptr;
  std::optional<wire::Hyper> hyper = std::nullopt;  // of the round's step; nullopt: the optimizer's

  bool carries() const { return !grad_bufs.empty(); }
};

struct PushTotals {
  PushCounts prepared;         // what was handed over to be sent
  uint64_t payload_bytes = 0;  // what was acknowledged
  absl::Duration encode, send;
};

struct PushPipelineOptions {
  PayloadMakerOptions payloads;
  absl::Duration timeout = absl::Seconds(60);
  // Of gradients, however small their payloads, from Submit, which waits beyond it, to the answer.
  size_t max_bytes_waiting = size_t{1} << 30;
  bool checksums = true;                              // of payloads
  absl::Duration report_interval = absl::Seconds(2);  // or less, where the timeout is short
  // Called when profiling is over and all its pushes are acknowledged, after each pair of rounds that was measured later,
  // and again each interval while no decision comes: on the push thread, or on that of a caller of PrepareNow or
  // FinishProfiling.
  std::function<void(wire::ThresholdReport)> on_report;
  // Returns when nothing else of this worker that is measured is on the link; null: nothing is. Called on the push thread
  // before a push that is measured.
  std::function<void()> await_measured_pulls;
  // How the version that a round makes is to be pulled (PushItem.change_codec); null: as it is. Called on the push thread
  // or in PrepareNow.
  std::function<std::string(const TensorPlan&, uint64_t round)> change_codec;
  // Called with the first error of a push, from any thread.
  std::function<void(absl::Status)> on_error;
  const Clock* clock = MachineClock();
  // Of the push thread.
  OnOutOfMemory on_out_of_memory = {};
};

class PushPipeline final {
 public:
  PushPipeline(Courier* courier, CompressionPlan* plan, PushPipelineOptions options);
  ~PushPipeline();

  // From now on. Before the first push; `plan` and those before it outlive the pipeline.
  void UsePlan(CompressionPlan* plan) { plan_.store(plan); }
  // DeadlineExceeded: max_bytes_waiting stayed exceeded. The first error, once there was one.
  [[nodiscard]] absl::Status Submit(PushJob job);
  // For a caller that waits for this very tensor: where nothing else is being encoded and the tensor is small, its push,
  // prepared on the calling thread and to be dispatched by the caller, in one message with what else it has to say to
  // that server. nullopt: not so; Submit it.
  [[nodiscard]] absl::StatusOr<std::optional<OutgoingItem>> PrepareNow(const PushJob& job);
  // Waits until every push submitted so far was acknowledged.
  [[nodiscard]] absl::Status Drain(absl::Duration timeout);
  // Calls `done` when every push of this tensor submitted so far was acknowledged: at once, or on the thread that brings the
  // last answer. With the first error, once there was one: on the caller's thread, or that of Fail or the destructor.
  void WhenAcknowledged(const TensorPlan& tensor, UnacknowledgedPushes::Waiter done);
  // Calls `use` with what codecs keep of every partition, once all pushes submitted so far were acknowledged; nothing is
  // encoded meanwhile. DeadlineExceeded: they were not. What `use` returns.
  [[nodiscard]] absl::Status UseStates(const std::function<absl::Status(StateStore&)>& use);
  // No more pushes will come: if profiling is unfinished, the report goes out now. After Drain.
  void FinishProfiling();
  // Everything waiting is dropped, every waiter returns `why`.
  void Fail(const absl::Status& why);
  PushTotals totals() const;
  // Of one tensor; zeros where it was never pushed.
  PushCounts counts(const Key& key) const;

 private:
  // A whole tensor while profiling, else one partition of it.
  struct Work {
    std::shared_ptr<const PushJob> job;  // without its grad_bufs
    GradientBuffers grad_bufs;           // of this work; empty: nothing is contributed
    size_t partition = 0;
    bool whole_tensor = false;
    uint64_t turn = 0;  // among the key's pushes
  };
  struct Prepared {
    OutgoingItem item;
    absl::Duration encode;
    EncodeStats stats;
    bool compressed = false;
  };

  CompressionPlan* plan() const { return plan_.load(); }
  void Run();
  void EndEncoding();
  // Until everything is acknowledged and nobody encodes.
  absl::Status AwaitIdle(absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status PushPartition(Work work);
  // Its bytes count as waiting until it is answered.
  absl::StatusOr<OutgoingItem> PreparePartition(const PushJob& job, size_t partition, uint64_t turn,
                                                std::shared_ptr<HostBuffer> grad_buf);
  absl::Status PushAndMeasure(Work work);
  void AwaitQuiet();
  absl::StatusOr<Prepared> Prepare(const PushJob& job, size_t partition,
                                   std::shared_ptr<HostBuffer> grad_buf, const Codec& codec);
  void CountPrepared(const TensorPlan& tensor, const Prepared& prepared, size_t elements)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(std::vector<Batch> batches);
  void OnAnswered(const TensorPlan& tensor, uint64_t turn, size_t bytes, const Answer& answer);
  void MaybeReport(uint64_t round);
  absl::StatusOr<const Codec*> AwaitCodec(const PushJob& job);

  Courier* const courier_;
  std::atomic<CompressionPlan*> plan_;  // publishes the plan
  const PushPipelineOptions options_;

  // Owned by the thread that has set encoding_: the push thread, or one in PrepareNow or UseStates.
  PayloadMaker payloads_;
  Coalescer coalescer_;
  PushMeasurement measurement_;

  mutable Mutex mutex_;
  bool encoding_ ABSL_GUARDED_BY(mutex_) = false;
  // The first to leave first (SendPriority), then in order of submission.
  std::map<std::pair<int64_t, uint64_t>, Work> queue_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t under_way_ ABSL_GUARDED_BY(mutex_) = 0;  // handed over to be sent, unanswered
  UnacknowledgedPushes unacknowledged_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  PushTotals totals_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, PushCounts> counts_ ABSL_GUARDED_BY(mutex_);  // by the key's id
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar work_;     // for the push thread
  CondVar changed_;  // for whoever waits for room, answers or failure
  Thread thread_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_PIPELINE_H_
