// SPDX-License-Identifier: Apache-2.0
// PhasedPushes: the pushes of codecs whose exchange has several phases (compress/codec/phases.h).
// Several threads ("phases") take each push through its phases, one tensor's step each, and hand
// payloads that are ready to the push pipeline.
//
//   grad_bufs --> phase 0 --> ... --> last phase --> payloads --> PushPipeline
//                 AuxiliaryExchange with the servers     (or nothing: ABSENT)
//
//   PhasedPushes phases(courier, &pushes, options);
//   phases.AddTensor(plan, std::move(keys));                    // its auxiliary keys
//   if (phases.Has(*plan)) SLIMPS_RETURN_IF_ERROR(phases.Submit(std::move(job)));
//
// A tensor's rounds go one after another; tensors go side by side, and what must leave first goes
// first (SendPriority). A round ends only when every worker has pushed it, so Drain waits for the
// other workers too. A tensor that the plan sends without phases in some round goes on to the
// pipeline at its turn; that round ends when its push is acknowledged.
//
// Memory: gradients stay in grad_buf until a codec has read them; GradientStaging bounds that. The
// factors of the phases come on top.
//
// Thread-safe.
#ifndef SLIMPS_WORKER_PHASES_PHASED_PUSHES_H_
#define SLIMPS_WORKER_PHASES_PHASED_PUSHES_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/out_of_memory.h"
#include "worker/phases/auxiliary_exchange.h"
#include "worker/push/push_job.h"
#include "worker/push/push_pipeline.h"
#include "worker/tensor/key_table.h"
#include "worker/tensor/threads.h"

namespace slimps {

struct PhasedPushesOptions {
  AuxiliaryExchangeOptions exchange;
  float grad_scale = 1.0f;
  uint32_t worker = 0;  // rank
  int threads = 1;      // tensors at a step at a time; 0: as many as there are cores
  // Called from any thread with the error of each push that fails: its round cannot end.
  std::function<void(absl::Status)> on_error;
  const Clock* clock = MachineClock();
  // Called on a phases thread.
  OnOutOfMemory on_out_of_memory = {};
};

// A key that serves phases of a tensor's codecs. A codec may need its first rows only.
struct PhaseKey {
  TensorPlan plan;
  bool keeps_memory = false;  // some codec keeps what it wants_memory() for under this key
};

class PhasedPushes final {
 public:
  struct Totals {
    AuxiliaryExchange::Totals exchanged;
    absl::Duration encode;
  };

  // REQUIRES: `courier` and `pushes` outlive this object; the courier is stopped before it ends.
  PhasedPushes(Courier* courier, PushPipeline* pushes, PhasedPushesOptions options);
  ~PhasedPushes();

  // Adds a tensor whose pushes may take phases, with the keys of the phases of all its codecs.
  // REQUIRES: `tensor` lives as long as the store; its partitions are those of the codecs.
  void AddTensor(const TensorPlan* tensor, std::vector<PhaseKey> keys);

  // True if the tensor was added.
  bool Has(const TensorPlan& tensor) const;

  // How many of the tensor's rounds took phases; 0 if it was not added. A job that is resumed goes
  // on from there.
  // REQUIRES: no push is under way.
  uint64_t exchanged(const TensorPlan& tensor) const;
  void ResumeAt(const TensorPlan& tensor, uint64_t exchanged);

  // Queues a push. Waits for nothing.
  // REQUIRES: Has(*job.tensor); the rounds of a tensor come in their order.
  // Otherwise the first error, once it has failed.
  [[nodiscard]] absl::Status Submit(PushJob job);

  // Waits until every push submitted so far has been handed to the pipeline.
  // DeadlineExceeded: some push has not; mostly another worker has not pushed that round.
  // Otherwise the first error, once it has failed.
  [[nodiscard]] absl::Status Drain(absl::Duration timeout);

  // Waits as Drain does, then calls `use` and returns its result. No phase begins or ends while
  // `use` runs.
  [[nodiscard]] absl::Status WhileIdle(absl::Duration timeout,
                                       const std::function<absl::Status()>& use);

  // Returns the keys under which codecs keep what they want_memory() for. They live as long as this
  // object.
  std::vector<const TensorPlan*> MemoryKeys() const;

  // Drops all queued work. Every waiter, now and later, gets the error.
  void Fail(const absl::Status& why);

  Totals totals() const;

 private:
  struct Exchange;
  struct Tensor {
    const TensorPlan* plan = nullptr;
    std::vector<PhaseKey> keys;
    std::deque<PushJob> waiting;  // rounds that come after the one under way
    bool busy = false;            // a round is under way
    // How many rounds took phases: the keys' rounds. All workers count alike, since all use the
    // same codecs in the same rounds. Owned by the thread at the tensor's step while pushes are
    // under way.
    uint64_t exchanged = 0;
  };
  // What a thread does next for an exchange: begin it, or go on with an answer. An exchange has one
  // step at a time, and a tensor one exchange.
  struct Step {
    std::shared_ptr<Exchange> exchange;
    std::optional<Combined> answer = std::nullopt;
  };

  void Run();
  bool QueueIsEmpty() const;
  void Queue(Step step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Start(Tensor* tensor, PushJob job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the exchange's round and starts the tensor's next one.
  void End(const Exchange& exchange);
  absl::Status Advance(const std::shared_ptr<Exchange>& exchange, std::optional<Combined> answer);
  absl::Status Begin(Exchange& exchange, const Codec& codec);
  // Finds the keys of the codec's phases.
  absl::Status FindKeys(Exchange& exchange) const;
  absl::Status SendPhase(const std::shared_ptr<Exchange>& exchange);
  absl::Status SendPayloads(Exchange& exchange);
  absl::Status AwaitIdle(absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  PushPipeline* const pushes_;
  const PhasedPushesOptions options_;
  AuxiliaryExchange exchange_;

  mutable Mutex mutex_;
  // By the key's id. A tensor stays where it is as the map grows; its plan and keys are constant.
  std::unordered_map<KeyId, Tensor> tensors_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<int64_t, uint64_t>, Step> queue_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t unfinished_ ABSL_GUARDED_BY(mutex_) = 0;  // pushes submitted and not yet handed over
  size_t working_ ABSL_GUARDED_BY(mutex_) = 0;     // threads at a step
  int paused_ ABSL_GUARDED_BY(mutex_) = 0;         // callers in WhileIdle
  absl::Duration encode_ ABSL_GUARDED_BY(mutex_);
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar work_;     // for the threads
  CondVar changed_;  // for callers that wait
  Threads threads_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PHASES_PHASED_PUSHES_H_
