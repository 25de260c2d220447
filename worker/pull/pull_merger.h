// SPDX-License-Identifier: Apache-2.0
// PullMerger: asks servers for weights and writes the answers into place. Several threads ("pull")
// each take the requests that are ready, grouped by server, or one reply, which the thread decodes
// alone into glo_buf or the caller's memory. So several partitions are merged at a time. Everything
// else is done by one of the threads at a time.
//
//   PullMerger pulls(courier, options);
//   pulls.Submit({.tensor = plan, .min_version = round, .out = weights, .done = on_pulled});
//
// A server may answer with the encoded change from the version that this worker holds
// (HeldWeights). Two kinds of pull can use a change:
//
//   kOnto          out, still as the last pull of this kind left it  += change
//   kThroughCopy   the merger's own copy of the key                  += change, then out = copy
//
// For one key and kind, one pull is under way at a time, and the next one waits (PullTurns). When
// its turn comes, the merger may already hold the version that the pull names. If no later version
// could exist at submission (is_newest), the merger then sends no request. Otherwise it asks the
// server.
//
// A measured pull asks for its version a second time, once the version has arrived. The server
// answers at once, and the values are thrown away. Measured pulls go one by one while no other pull
// is under way, so that no time includes another pull's bytes. The exception is SubmitWithPush,
// whose pulls are small.
//
// Thread-safe. A pull's memory belongs to the merger from Submit until `done` has run. `done`
// always runs.
#ifndef SLIMPS_WORKER_PULL_PULL_MERGER_H_
#define SLIMPS_WORKER_PULL_PULL_MERGER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/out_of_memory.h"
#include "worker/courier/courier.h"
#include "worker/pull/measured_pull.h"
#include "worker/pull/pull_job.h"
#include "worker/pull/pull_turns.h"
#include "worker/pull/pull_under_way.h"
#include "worker/tensor/key_table.h"
#include "worker/tensor/shared_momentum.h"
#include "worker/tensor/threads.h"

namespace slimps {

struct PullTotals {
  uint64_t payload_bytes = 0;
  uint64_t changes = 0;  // partitions that came as a change
  uint64_t elements = 0;
  absl::Duration decode;
};

// For those who watch.
struct PullFigures {
  std::map<wire::Format, uint64_t> bytes;  // of payloads that were merged
  size_t queued = 0;                       // pulls and answers that wait for a pull thread
};

struct PullMergerOptions {
  absl::Duration timeout = absl::Seconds(60);
  int threads = 1;  // partitions merged at a time; 0: as many as there are cores
  // Returns how a version travels, as PushItem.change_codec. null: as it is. One pull thread at a
  // time calls this function, `measures` and `on_measured`.
  std::function<std::string(const TensorPlan&, uint64_t version)> change_codec;
  // If replies beyond this many bytes wait, the thread that brings a reply merges it. That thread
  // reads nothing from the network meanwhile.
  size_t max_bytes_waiting = size_t{64} << 20;
  // Returns true if a version's pull is to be measured. null: none is.
  std::function<bool(const TensorPlan&, uint64_t version)> measures;
  // Takes part in pulls of keys whose pushes are momenta. null: there are none. It outlives the
  // merger.
  SharedMomentum* momentum = nullptr;
  // Receives each measured pull whose answer came in the form that change_codec names. Other
  // answers are no samples.
  std::function<void(const PullMeasurement&)> on_measured;
  const Clock* clock = MachineClock();
  // Called on a pull thread. The callback must make the courier fail.
  OnOutOfMemory on_out_of_memory = {};
};

class PullMerger final {
 public:
  PullMerger(Courier* courier, PullMergerOptions options);
  // Finishes every pull.
  // REQUIRES: Courier::Stop has run, which answers every outstanding request.
  ~PullMerger();

  void Submit(PullJob job);

  // Returns a function that submits `job`. It may be called once, on any thread, while the merger
  // lives. If it is called with an error, it submits nothing, and `done` gets that error on a
  // pull thread.
  std::function<void(const absl::Status&)> SubmitLater(PullJob job);

  // Sends `push` and the pull request at once, in one message, for a caller that waits for this
  // tensor. The thread that brings the answer merges it and calls `done`.
  // REQUIRES: the job is kPlain, with one partition, on the server that `push` is for.
  void SubmitWithPush(PullJob job, OutgoingItem push);

  // Waits until all outstanding measurements are done, or for `timeout`. Meanwhile measured pulls
  // go out even while other pulls are under way.
  void AwaitMeasured(absl::Duration timeout);

  // Forgets which versions are held, for weights of another history: the next pull of each key asks
  // for whole weights.
  // REQUIRES: no pull is under way.
  void ForgetVersions();

  // Returns the sums over all pulls so far.
  PullTotals totals() const;
  PullFigures figures() const;

  // Returns the bytes of payloads that were merged, by key.
  std::map<KeyId, uint64_t> bytes_of_keys() const;

 private:
  struct Reply {
    std::shared_ptr<PullUnderWay> pull;
    size_t partition = 0;
    uint32_t state_tensor = 0;  // not 0: of the optimizer's state, which `momentum` lacks
    Answer answer = {};
    SteadyTime arrived = {};
    std::optional<absl::Status> merged = {};  // set once it has been merged
  };
  using Replies = std::list<Reply>;
  using ByServer = std::map<uint32_t, std::vector<OutgoingItem>>;

  void Run();
  // Called on a pull thread, after memory ran out there.
  void Fail(const std::bad_alloc& error);
  void SendRequests(Pulls pulls);
  // Decides what the single pull in `one` asks for, if anything. If another pull of its key and
  // kind is under way, moves it to the waiting ones and leaves `one` empty.
  absl::Status Admit(Pulls& one);
  void AddRequests(const std::shared_ptr<PullUnderWay>& pull, ByServer* by_server);
  void AddRequest(Reply reply, ByServer* by_server);
  void Dispatch(ByServer by_server, Courier::Sender sender = Courier::Sender::kGoesOn);
  // Runs on the thread that brings the answer. `one` is the reply's list node, allocated with the
  // request.
  void OnAnswer(Replies& one, Answer answer);
  // True if the reply holds weights that nobody has merged.
  static bool IsToMerge(const Reply& reply) {
    return reply.answer.status.ok() && !reply.merged.has_value() &&
           !reply.pull->measured.has_value();
  }
  void Take(Reply reply);
  absl::Status Merge(const Reply& reply);
  // Asks for the optimizer's state if the next push needs it.
  void RequestState(const Reply& reply);
  void Finish(const std::shared_ptr<PullUnderWay>& pull);
  // Queues a measured pull if the version that was pulled is to be measured.
  void Measure(const PullUnderWay& pulled);
  // Sends the next measured pull if it may go now.
  void MeasureNext();
  void TakeMeasured(PullUnderWay& pull, const Reply& reply);
  bool IsMeasuring() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return measuring_ || !to_measure_.empty();
  }

  Courier* const courier_;
  const PullMergerOptions options_;

  // Held by the pull thread that does more than merge, also while it calls `done`. Before mutex_.
  // What it guards has no annotations: SubmitWithPush's pulls pass through the same functions on
  // other threads, and touch none of it.
  Mutex turns_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  PullTurns turns_;
  size_t under_way_ = 0;  // pulls that are not measured
  absl::Status failed_;   // set once memory has run out on a pull thread

  mutable Mutex mutex_;
  Pulls requests_ ABSL_GUARDED_BY(mutex_);
  Replies replies_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_waiting_ ABSL_GUARDED_BY(mutex_) = 0;  // of replies_
  Pulls to_measure_ ABSL_GUARDED_BY(mutex_);
  bool measuring_ ABSL_GUARDED_BY(mutex_) = false;  // a measured pull is under way
  int waiters_ ABSL_GUARDED_BY(mutex_) = 0;         // in AwaitMeasured
  PullTotals totals_ ABSL_GUARDED_BY(mutex_);
  PullFigures figures_ ABSL_GUARDED_BY(mutex_);  // without `queued`
  std::map<KeyId, uint64_t> bytes_of_keys_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar work_;
  CondVar measured_;
  Threads threads_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PULL_PULL_MERGER_H_
