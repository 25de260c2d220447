// PullMerger: asks servers for weights and writes what comes back into place. One thread ("pull")
// sends the requests that are ready, grouped by server, and decodes replies into glo_buf or the
// caller's memory.
//
// Thread-safe. A pull's memory belongs to the merger from Submit until its `done` has run.
#ifndef SLIMPS_WORKER_PULL_MERGER_H_
#define SLIMPS_WORKER_PULL_MERGER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/mutex.h"
#include "worker/courier.h"
#include "worker/key_table.h"

namespace slimps {

struct PullJob {
  const TensorPlan* tensor = nullptr;
  uint64_t min_version = 0;
  int priority = 0;
  std::span<float> out;  // the whole tensor
  std::function<void(absl::Status)> done;
};

struct PullTotals {
  uint64_t payload_bytes = 0;
  absl::Duration decode;
};

class PullMerger final {
 public:
  PullMerger(Courier* courier, absl::Duration timeout);
  ~PullMerger();

  void Submit(PullJob job);
  // Outstanding pulls end through Courier::FailAll, which answers every request; the destructor
  // waits for that.
  PullTotals totals() const;

 private:
  struct State;  // a pull under way
  struct Reply {
    std::shared_ptr<State> state;
    size_t partition = 0;
    Answer answer;
  };

  void Run();
  void SendRequests(std::vector<std::shared_ptr<State>> states);
  void Merge(Reply reply);
  absl::Status MergePartition(const State& state, size_t partition, const Answer& answer);

  Courier* const courier_;
  const absl::Duration timeout_;

  mutable Mutex mutex_;
  std::deque<std::shared_ptr<State>> requests_ ABSL_GUARDED_BY(mutex_);
  std::deque<Reply> replies_ ABSL_GUARDED_BY(mutex_);
  PullTotals totals_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar work_;
  std::thread thread_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PULL_MERGER_H_
