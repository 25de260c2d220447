// PullMerger: asks servers for weights and writes what comes back into place. One thread ("pull")
// sends the requests that are ready, grouped by server, and decodes replies into glo_buf or the
// caller's memory.
//
// A server may answer with the encoded change from the version that this worker holds (HeldWeights), for pulls of two
// kinds; of one key and kind one pull is under way at a time, the next waits here for it. What is held by its turn is not
// asked for again, where it was the newest version when submitted; the server may have a later one by now:
//
//   kOnto          out, still what the last pull of this kind left there  += change
//   kThroughCopy   the merger's own copy of the key                      += change, then out = copy
//
// Where a pull is to be measured, its version is asked for once more when it is there: the server answers at once, and the
// values are thrown away. Such pulls go one by one, when no others are under way, so that no time holds another's bytes,
// but for those of SubmitWithPush, which are small.
//
// Thread-safe. A pull's memory belongs to the merger from Submit until its `done` has run, which it does whatever happens.
#ifndef SLIMPS_WORKER_PULL_MERGER_H_
#define SLIMPS_WORKER_PULL_MERGER_H_

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
#include "worker/called_once.h"
#include "worker/courier.h"
#include "worker/held_weights.h"
#include "worker/key_table.h"

namespace slimps {

enum class PullKind {
  kPlain,  // `out` may hold anything, and gets the weights
  kOnto,  // `out` holds, bit for bit, what the key's last pull of this kind left there, if it is the same memory
  kThroughCopy,  // `out` may hold anything, and gets a copy of what the merger holds
};

struct PullJob {
  const TensorPlan* tensor = nullptr;
  uint64_t min_version = 0;
  int priority = 0;
  std::span<float> out;  // the whole tensor
  PullKind kind = PullKind::kPlain;
  // There can be no later version than min_version when it is submitted: the answer is that very version. Else it may
  // be a later one.
  bool is_newest = false;
  CalledOnce<absl::Status> done;
};

struct PullTotals {
  uint64_t payload_bytes = 0;
  uint64_t changes = 0;  // partitions that came as a change
  absl::Duration decode;
};

// Times of one tensor's pull of a version that was there already.
struct PullMeasurement {
  const TensorPlan* tensor = nullptr;
  uint64_t version = 0;
  absl::Duration communication;  // first request handed over to last answer
  absl::Duration
      coding;  // the servers' encoding and this worker's decoding; 0 where nothing was encoded
};

struct PullMergerOptions {
  absl::Duration timeout = absl::Seconds(60);
  // How a version travels, as PushItem.change_codec; null: as it is. Called on the pull thread, as the next two.
  std::function<std::string(const TensorPlan&, uint64_t version)> change_codec;
  // Answers beyond this are merged by the thread that brings them, which meanwhile reads no more from the network.
  size_t max_bytes_waiting = size_t{64} << 20;
  // Whether a version's pull is to be measured; null: none.
  std::function<bool(const TensorPlan&, uint64_t version)> measures;
  // Of measured pulls that came as change_codec says they should; others are no samples.
  std::function<void(const PullMeasurement&)> on_measured;
  const Clock* clock = MachineClock();
  // Of the pull thread; must see to it that the courier fails.
  OnOutOfMemory on_out_of_memory = {};
};

class PullMerger final {
 public:
  PullMerger(Courier* courier, PullMergerOptions options);
  ~PullMerger();

  void Submit(PullJob job);
  // What submits `job` when it is called, once, on any thread, while the merger lives; called with
  // an error, it submits nothing, and `done` gets that on the pull thread.
  std::function<void(const absl::Status&)> SubmitLater(PullJob job);
  // For a caller that waits for this very tensor: `push` and the request leave at once and in one message, and the thread
  // that brings the answer merges it and calls `done`. REQUIRES: kPlain, one partition, on the server that `push` is for.
  void SubmitWithPush(PullJob job, OutgoingItem push);
  // Waits until everything was measured that is to be, other pulls under way or not.
  void AwaitMeasured(absl::Duration timeout);
  // REQUIRES before the destructor: Courier::Stop, which answers every outstanding request; what it answered is finished.
  PullTotals totals() const;

 private:
  struct Kept;
  // A pull under way. Owned by the pull thread once its requests are out.
  struct State {
    PullJob job;
    SteadyTime deadline = SteadyTime::InfiniteFuture();
    bool here = false;   // merged by who brings the answer
    size_t pending = 0;  // partitions
    bool admitted = false;
    absl::Status status;
    Kept* kept = nullptr;              // of pulls that take changes
    std::optional<HeldWeights> plain;  // of the others
    std::vector<std::optional<uint64_t>>
        asked_with;  // versions held when it was asked for, by partition

    HeldWeights& held() { return kept != nullptr ? kept->held : *plain; }

    // Of a pull that is measured and thrown away: its version, and what was seen so far.
    std::optional<uint64_t> measured_version;
    bool as_agreed = true;
    SteadyTime first_byte = SteadyTime::InfiniteFuture();
    SteadyTime last_answer = SteadyTime::InfinitePast();
    absl::Duration coding;
  };
  using Requests = std::list<std::shared_ptr<State>>;
  // What changes can be added to, and who waits for it. Owned by the pull thread.
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
    std::optional<absl::Status> merged = {};  // already, by the thread that brought it
  };
  using Replies = std::list<Reply>;
  using ByServer = std::map<uint32_t, std::vector<OutgoingItem>>;

  void Run();
  // On the pull thread: memory has run out there.
  void Fail(const std::bad_alloc& error);
  void SendRequests(Requests states);
  // Of one: finds out what it is to ask for, if anything, or moves it to those that wait for another pull.
  absl::Status Admit(Requests& one);
  absl::Status Prepare(State& state);
  bool IsHeld(const State& state) const;
  void AddRequests(const std::shared_ptr<State>& state, ByServer* by_server);
  void AddRequest(const std::shared_ptr<State>& state, size_t partition, ByServer* by_server);
  void Dispatch(ByServer by_server, Courier::Sender sender = Courier::Sender::kGoesOn);
  // On the thread that brings it. `one`: its place, made with the request.
  void OnAnswer(Replies& one, Answer answer);
  void Merge(Reply reply);
  absl::Status MergeAnswer(const Reply& reply);
  void Finish(const std::shared_ptr<State>& state);
  void Measure(const std::shared_ptr<State>& pulled);
  // Sends the next pull that is to be measured, if it is its turn.
  void MeasureNext();
  void Gauge(State& state, const Reply& reply);
  // Not OK: it is no sample.
  absl::Status GaugeAnswer(State& state, const Reply& reply) const;

  Courier* const courier_;
  const PullMergerOptions options_;
  std::map<std::pair<KeyId, PullKind>, Kept> kept_;  // owned by the pull thread; never erased

  // Owned by the pull thread.
  size_t under_way_ = 0;  // pulls that are not measured
  absl::Status failed_;   // once memory has run out on it
  Requests to_measure_;
  bool measuring_ = false;  // one is under way

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

#endif  // SLIMPS_WORKER_PULL_MERGER_H_
