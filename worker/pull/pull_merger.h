// SPDX-License-Identifier: Apache-2.0
// PullMerger: asks servers for weights and writes the answers into place. One thread ("pull") sends
// the requests that are ready, grouped by server. It decodes the replies into glo_buf or the
// caller's memory.
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
// For one key and kind, one pull is under way at a time, and the next one waits here. When its turn
// comes, the merger may already hold the version that the pull names. If no later version could
// exist at submission (is_newest), the merger then sends no request. Otherwise it asks the server.
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

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/thread.h"
#include "worker/courier/called_once.h"
#include "worker/courier/courier.h"
#include "worker/pull/held_weights.h"
#include "worker/tensor/key_table.h"

namespace slimps {

enum class PullKind {
  // `out` may hold anything, and gets the weights.
  kPlain,
  // `out` holds, bit for bit, what the key's last pull of this kind left there, if it is the same
  // memory.
  kOnto,
  // `out` may hold anything, and gets a copy of what the merger holds.
  kThroughCopy,
};

struct PullJob {
  const TensorPlan* tensor = nullptr;
  uint64_t min_version = 0;
  int priority = 0;
  std::span<float> out;  // the whole tensor
  PullKind kind = PullKind::kPlain;
  // True if no version later than min_version can exist at submission: the answer is then exactly
  // that version. If false, the answer may be a later version.
  bool is_newest = false;
  CalledOnce<absl::Status> done;
};

struct PullTotals {
  uint64_t payload_bytes = 0;
  uint64_t changes = 0;  // partitions that came as a change
  absl::Duration decode;
};

// The times of one tensor's measured pull, of a version that was there already.
struct PullMeasurement {
  const TensorPlan* tensor = nullptr;
  uint64_t version = 0;
  absl::Duration communication;  // first request handed over, to last answer
  // The servers' encoding plus this worker's decoding; 0 if nothing was encoded.
  absl::Duration coding;
};

struct PullMergerOptions {
  absl::Duration timeout = absl::Seconds(60);
  // Returns how a version travels, as PushItem.change_codec. null: as it is. The pull thread calls
  // this function, `measures` and `on_measured`.
  std::function<std::string(const TensorPlan&, uint64_t version)> change_codec;
  // If replies beyond this many bytes wait, the thread that brings a reply merges it. That thread
  // reads nothing from the network meanwhile.
  size_t max_bytes_waiting = size_t{64} << 20;
  // Returns true if a version's pull is to be measured. null: none is.
  std::function<bool(const TensorPlan&, uint64_t version)> measures;
  // Receives each measured pull whose answer came in the form that change_codec names. Other
  // answers are no samples.
  std::function<void(const PullMeasurement&)> on_measured;
  const Clock* clock = MachineClock();
  // Called on the pull thread. The callback must make the courier fail.
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
  // lives. If it is called with an error, it submits nothing, and `done` gets that error on the
  // pull thread.
  std::function<void(const absl::Status&)> SubmitLater(PullJob job);

  // Sends `push` and the pull request at once, in one message, for a caller that waits for this
  // tensor. The thread that brings the answer merges it and calls `done`.
  // REQUIRES: the job is kPlain, with one partition, on the server that `push` is for.
  void SubmitWithPush(PullJob job, OutgoingItem push);

  // Waits until all outstanding measurements are done, or for `timeout`. Meanwhile measured pulls
  // go out even while other pulls are under way.
  void AwaitMeasured(absl::Duration timeout);

  // Returns the sums over all pulls so far.
  PullTotals totals() const;

 private:
  struct Kept;
  // A pull under way. The pull thread owns it once its requests are out.
  struct State {
    PullJob job;
    SteadyTime deadline = SteadyTime::InfiniteFuture();
    bool here = false;   // the thread that brings the answer merges it
    size_t pending = 0;  // partitions without an answer
    bool admitted = false;
    absl::Status status;
    Kept* kept = nullptr;              // for pulls that take changes
    std::optional<HeldWeights> plain;  // for the others
    // The version held of each partition when the request was made.
    std::vector<std::optional<uint64_t>> asked_with;

    HeldWeights& held() { return kept != nullptr ? kept->held : *plain; }

    // For a measured pull: its version, and the measurements so far.
    std::optional<uint64_t> measured_version;
    bool as_agreed = true;  // all answers so far came in the form that change_codec names
    SteadyTime first_byte = SteadyTime::InfiniteFuture();
    SteadyTime last_answer = SteadyTime::InfinitePast();
    absl::Duration coding;
  };
  using Requests = std::list<std::shared_ptr<State>>;
  // Weights that changes can be added to, and the pulls that wait for them. Owned by the pull
  // thread.
  struct Kept {
    explicit Kept(const TensorPlan* tensor) : held(tensor) {}
    HeldWeights held;
    bool busy = false;
    Requests waiting;
  };
  struct Reply {
    std::shared_ptr<State> state;
    size_t partition = 0;
    Answer answer = {};
    SteadyTime arrived = {};
    std::optional<absl::Status> merged = {};  // set if the thread that brought it has merged it
  };
  using Replies = std::list<Reply>;
  using ByServer = std::map<uint32_t, std::vector<OutgoingItem>>;

  void Run();
  // Called on the pull thread, after memory ran out there.
  void Fail(const std::bad_alloc& error);
  void SendRequests(Requests states);
  // Decides what the single pull in `one` asks for, if anything. If another pull of its key and
  // kind is under way, moves it to the waiting ones and leaves `one` empty.
  absl::Status Admit(Requests& one);
  absl::Status Prepare(State& state);
  bool IsHeld(const State& state) const;
  void AddRequests(const std::shared_ptr<State>& state, ByServer* by_server);
  void AddRequest(const std::shared_ptr<State>& state, size_t partition, ByServer* by_server);
  void Dispatch(ByServer by_server, Courier::Sender sender = Courier::Sender::kGoesOn);
  // Runs on the thread that brings the answer. `one` is the reply's list node, allocated with the
  // request.
  void OnAnswer(Replies& one, Answer answer);
  void Merge(Reply reply);
  absl::Status MergeAnswer(const Reply& reply);
  void Finish(const std::shared_ptr<State>& state);
  // Lists a finished pull's version to be asked for once more, if it is to be measured.
  void Measure(const std::shared_ptr<State>& pulled);
  // Sends the next measured pull if it may go now.
  void MeasureNext();
  // Takes one answer of a measured pull. Reports the times when it was the last one.
  void Gauge(State& state, const Reply& reply);
  // Records one answer of a measured pull. Returns an error if the pull is no sample.
  absl::Status GaugeAnswer(State& state, const Reply& reply) const;

  Courier* const courier_;
  const PullMergerOptions options_;
  std::map<std::pair<KeyId, PullKind>, Kept> kept_;  // owned by the pull thread; never erased

  // Owned by the pull thread.
  size_t under_way_ = 0;    // pulls that are not measured
  absl::Status failed_;     // set once memory has run out on the pull thread
  Requests to_measure_;     // pulls that wait to be measured
  bool measuring_ = false;  // a measured pull is under way

  mutable Mutex mutex_;
  size_t left_to_measure_ ABSL_GUARDED_BY(mutex_) = 0;
  int waiters_ ABSL_GUARDED_BY(mutex_) = 0;  // in AwaitMeasured
  Requests requests_ ABSL_GUARDED_BY(mutex_);
  Replies replies_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_waiting_ ABSL_GUARDED_BY(mutex_) = 0;  // of replies_
  PullTotals totals_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar work_;
  CondVar measured_;
  Thread thread_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PULL_PULL_MERGER_H_
