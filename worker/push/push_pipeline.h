// SPDX-License-Identifier: Apache-2.0
// PushPipeline: takes gradients that have arrived in grad_buf and sends each partition to its
// server as a payload. Several threads ("push", as many as encode_threads says) each take the next
// partition that may begin, encode it alone, coalesce and dispatch. Partitions are independent, so
// several are encoded at a time while others are sent.
//
//   grad_buf --PushQueue--> PushEncoder --> fp_buf or bit_buf --Coalescer--> Courier
//
//   SLIMPS_RETURN_IF_ERROR(pushes.Submit({.tensor = plan, .round = 7, .grad_bufs = grad_bufs}));
//   SLIMPS_RETURN_IF_ERROR(pushes.Drain(timeout));
//
// Partitions begin in the order of their priority, and leave as soon as they are encoded. Those of
// one (key, partition) leave in the order of their rounds. Payloads do not depend on the threads.
//
// A tensor that is measured for the threshold table is encoded and goes out alone, and its thread
// waits for its acknowledgement, so that no time includes other encoding, queueing or coalescing.
//
// The threads are this class's own, and not TBB's: they wait for decisions and acknowledgements.
// Thread-safe.
#ifndef SLIMPS_WORKER_PUSH_PUSH_PIPELINE_H_
#define SLIMPS_WORKER_PUSH_PUSH_PIPELINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "compress/codec/state/state_store.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/out_of_memory.h"
#include "worker/courier/coalescer.h"
#include "worker/courier/courier.h"
#include "worker/device/device.h"
#include "worker/plan/compression_plan.h"
#include "worker/push/level_probe.h"
#include "worker/push/link_figures.h"
#include "worker/push/payload_maker.h"
#include "worker/push/push_encoder.h"
#include "worker/push/push_job.h"
#include "worker/push/push_measurement.h"
#include "worker/push/push_queue.h"
#include "worker/push/push_tally.h"
#include "worker/push/staging.h"
#include "worker/push/unacknowledged_pushes.h"
#include "worker/tensor/key_table.h"
#include "worker/tensor/push_counts.h"
#include "worker/tensor/shared_momentum.h"
#include "worker/tensor/threads.h"

namespace slimps {

// For those who watch.
struct PushFigures {
  std::map<PushedForm, uint64_t> bytes;  // of payloads that were handed over to be sent
  size_t queued = 0;                     // partitions that wait to be encoded
};

struct PushPipelineOptions {
  PayloadMakerOptions payloads;
  int encode_threads = 0;  // partitions encoded at a time; 0: as many as there are cores
  absl::Duration timeout = absl::Seconds(60);
  // Bound on the bytes of gradients and rows between Submit and the answer. A gradient counts in
  // full, however small its payload. Submit waits while the bound is exceeded.
  size_t max_bytes_waiting = size_t{1} << 30;
  bool checksums = true;                              // hash payloads
  absl::Duration report_interval = absl::Seconds(2);  // shorter if the timeout is short
  // Receives the reports for the scheduler. It is called when profiling is over and all its pushes
  // are acknowledged, after each later pair of measured rounds, and again each interval while no
  // decision comes. It runs on a push thread, or on the thread that calls PrepareNow or
  // FinishProfiling.
  std::function<void(wire::ThresholdReport)> on_report;
  // Returns once no measured pull of this worker is on the link. null: there are no measured pulls.
  // Called on a push thread before each measured push, and before the pushes of a round that
  // follows a measured one.
  std::function<void()> await_measured_pulls;
  // Returns how the version that a round makes is to be pulled (PushItem.change_codec). null: as it
  // is. Called on push threads, several at a time, or in PrepareNow.
  std::function<std::string(const TensorPlan&, uint64_t round)> change_codec;
  SharedMomentum* momentum = nullptr;  // PushItemMakerOptions has these two
  std::function<bool()> sends_whole_gradients;
  // Called from any thread with the error of each push that fails.
  std::function<void(absl::Status)> on_error;
  const Clock* clock = MachineClock();
  // Called on a push thread.
  OnOutOfMemory on_out_of_memory = {};
};

class PushPipeline final {
 public:
  PushPipeline(Courier* courier, CompressionPlan* plan, PushPipelineOptions options);
  ~PushPipeline();

  // Uses `plan` from now on.
  // REQUIRES: no push was submitted yet. `plan` and all plans before it outlive the pipeline.
  void UsePlan(CompressionPlan* plan) { encoder_.plan().Use(plan); }

  // Queues the job's partitions. Waits while the gradients under way exceed max_bytes_waiting.
  // DeadlineExceeded: they exceeded it for the whole timeout.
  // Otherwise the pipeline's first error, once it has failed.
  [[nodiscard]] absl::Status Submit(PushJob job);

  // Same, for a gradient that arrives later: takes the push's place among those of its key. Arrive
  // must follow for each partition, or ArriveWhole, or the store fail.
  struct Announced {
    std::shared_ptr<const PushJob> job;
    uint64_t turn = 0;      // among the key's pushes
    bool measured = false;  // for the threshold table: it must arrive whole
  };
  [[nodiscard]] absl::StatusOr<Announced> Announce(PushJob job);
  // Queues one partition. `gradient_bound` is the partition's.
  void Arrive(const Announced& announced, size_t partition, std::shared_ptr<HostBuffer> grad_buf,
              float gradient_bound);

  // Queues all partitions.
  void ArriveWhole(const Announced& announced, GradientBuffers grad_bufs, float gradient_bound);

  // Returns true if gradients of so many bytes together need not wait in Submit.
  bool HasRoom(size_t bytes) const;

  // Prepares the tensor's push on the calling thread, for a caller that waits for this tensor
  // anyway. The caller dispatches the item itself, together with its other messages to that server.
  // Returns nullopt if the tensor is large, has several partitions or is measured, if the round
  // before is measured, or if other work is queued or being encoded. The caller then submits the
  // job.
  [[nodiscard]] absl::StatusOr<std::optional<OutgoingItem>> PrepareNow(const PushJob& job);

  // Waits until every push submitted so far is acknowledged and nothing is being encoded.
  // DeadlineExceeded: some pushes are unacknowledged after `timeout`.
  // Otherwise the pipeline's first error, once it has failed.
  [[nodiscard]] absl::Status Drain(absl::Duration timeout);

  // Calls `done` once every push of this tensor submitted so far is acknowledged: at once, or on
  // the thread that brings the last answer. After a failure `done` gets the error, on the calling
  // thread or on the thread of Fail or of the destructor.
  void WhenAcknowledged(const TensorPlan& tensor, UnacknowledgedPushes::Waiter done);

  // Counts what another sender's push of this round took on the link (LinkFigures::Answered).
  void NotePassed(uint64_t round, size_t bytes, absl::Duration round_trip);

  // Waits as Drain does, then calls `use` with what codecs keep of every partition and what a
  // policy has measured, and returns its result. Nothing is encoded while `use` runs.
  // DeadlineExceeded: some pushes stayed unacknowledged.
  [[nodiscard]] absl::Status UseStates(
      const std::function<absl::Status(StateStore&, LevelProbe&)>& use);

  // Returns the codec of a push, for a caller that makes the payloads itself (PushJob::ready).
  // Waits for the decision if `round` needs one.
  // DeadlineExceeded: it did not come within the timeout.
  [[nodiscard]] absl::StatusOr<const Codec*> AwaitCodec(const TensorPlan& tensor,
                                                        uint64_t round) const {
    encoder_.plan().SendReport(round);
    return encoder_.plan().AwaitCodec(tensor, round);
  }

  // Shows the gradients to the policy that adapts, if there is one, and sends its report if one is
  // due: for a caller that makes the payloads itself, before it does. Waits while a push thread
  // chooses a codec. Errors: those of the plan's codecs, or the pipeline's first error.
  [[nodiscard]] absl::Status Look(const PushJob& job);

  // Returns what codecs keep of each partition. A tensor whose payloads come ready belongs to the
  // caller that makes them, until UseStates.
  StateStore* states() { return &encoder_.states(); }

  // Sends the reports that are still due. No more pushes may come.
  // REQUIRES: Drain has returned.
  void FinishProfiling() { encoder_.plan().SendLastReports(); }

  // Drops all queued work. Every waiter, now and later, gets the error.
  void Fail(const absl::Status& why);

  PushTotals totals() const;

  PushFigures figures() const;

  // Returns one tensor's counts; zeros if it was never pushed.
  PushCounts counts(const Key& key) const;

  // Returns the form of the tensor's newest push; ABSENT if there was none.
  PushedForm newest_form(const Key& key) const;

 private:
  static constexpr size_t kSmallBytes = 64 << 10;  // of fp32, in a partition

  // Waits for room, and takes the job's place among the pushes of its key. REQUIRES: no grad_bufs.
  absl::StatusOr<Announced> TakePlace(PushJob job, size_t bytes, bool carries);
  // Queues all works, or none: it throws, or returns the pipeline's first error.
  absl::Status Queue(std::vector<EncodeWork> works);
  absl::Status QueueAll(const Announced& place, GradientBuffers grad_bufs);
  // What each push thread does.
  void Run();
  absl::Status Push(EncodeWork* work);
  // Lets the next work begin, and Look.
  void EndChoosing(const EncodeWork& work);
  void NotifyOthers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CanBegin() const;
  // Keeps all others from encoding and choosing. REQUIRES: none does.
  void Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Open();
  // Waits until everything is acknowledged and nothing is encoded.
  absl::Status AwaitIdle(absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the item of one partition. The bytes that it holds count as waiting until the answer.
  absl::StatusOr<OutgoingItem> MakeItem(EncodeWork* work, const Codec& codec);
  absl::Status PushAndMeasure(EncodeWork* work, const Codec& codec);
  // Waits until nothing that this worker sent before is on the link, so that a measured push has it
  // alone. If that takes longer than the timeout, one sample is spoilt, and nothing else.
  void AwaitQuiet();
  void CountForLink(uint64_t round, size_t bytes, absl::Duration round_trip)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(std::vector<Batch> batches) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_);
  // Sends what waits for company.
  void Flush();
  void OnAnswered(const TensorPlan& tensor, uint64_t round, uint64_t turn, size_t bytes,
                  const Answer& answer);

  Courier* const courier_;
  const PushPipelineOptions options_;
  const size_t thread_count_;
  PushEncoder encoder_;
  PushMeasurement measurement_;

  // Held while a batch is taken out and dispatched, so that rounds of one partition do not change
  // places. Before mutex_, which answers take.
  Mutex sending_ ABSL_ACQUIRED_BEFORE(mutex_);
  Coalescer coalescer_ ABSL_GUARDED_BY(sending_);

  mutable Mutex mutex_;
  PushQueue queue_ ABSL_GUARDED_BY(mutex_);
  // A thread uses what PushEncoder has for one thread at a time.
  bool choosing_ ABSL_GUARDED_BY(mutex_) = false;
  int looking_ ABSL_GUARDED_BY(mutex_) = 0;       // callers of Look that wait
  size_t under_way_ ABSL_GUARDED_BY(mutex_) = 0;  // handed over to be sent, unanswered
  LinkFigures link_ ABSL_GUARDED_BY(mutex_);
  UnacknowledgedPushes unacknowledged_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  PushTally tally_ ABSL_GUARDED_BY(mutex_);
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar work_;     // for the push threads
  CondVar changed_;  // for callers that wait for room, answers or failure
  Threads threads_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_PUSH_PIPELINE_H_
