// SPDX-License-Identifier: Apache-2.0
// The pulls that wait for a version of one partition, each up to its deadline. Under dist_ssp they
// also wait for the slowest worker. Owned by ShardState.
//
//   SLIMPS_RETURN_IF_ERROR(queue.Add({.origin = origin, .item = item, .deadline = deadline}));
//   for (const WaitingPull& pull : queue.TakeReady(version)) Answer(pull);
//   for (const WaitingPull& pull : queue.TakeExpired(clock->Now())) AnswerLate(pull);
#ifndef SLIMPS_SERVER_SHARD_PULL_QUEUE_H_
#define SLIMPS_SERVER_SHARD_PULL_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/net/transport.h"
#include "proto/slimps.pb.h"

namespace slimps {

// The peer to answer, and what the answer repeats.
struct Origin {
  PeerId peer{};
  uint32_t worker = 0;
  uint64_t request_id = 0;
};

struct WaitingPull {
  Origin origin;
  wire::PullItem item;
  SteadyTime deadline;
  uint64_t clock = 0;  // the slowest worker must have come to it (dist_ssp); 0: no wait
};

// Thread-compatible. Pure: the caller brings the time.
class PullQueue final {
 public:
  // Bounds what a peer can make the queue hold. A worker of ours has at most a few pulls of one
  // partition under way: the most if it pulls a whole partition of the usual size as rows of one
  // element each.
  static constexpr size_t kMaxPerWorker = 16;

  // Adds a pull. It replaces a waiting pull of the same worker and ticket, so a retry is answered
  // once, and by the deadline of the first try: the worker waits no longer for retries.
  // ResourceExhausted: this worker has kMaxPerWorker pulls waiting; `pull` stays as it is.
  [[nodiscard]] absl::Status Add(WaitingPull&& pull);

  // Removes and returns the pulls whose version and clock are reached, in order of arrival. Those
  // of norms are reached by `measured`, and taken only if it is given.
  std::vector<WaitingPull> TakeReady(uint64_t version, uint64_t slowest = 0, uint64_t measured = 0);

  // Puts back a pull that must keep waiting. Allocates nothing.
  // REQUIRES: the last Take..., which was not TakeAll, returned it.
  void PutBack(WaitingPull&& pull) { waiting_.push_back(std::move(pull)); }

  // Remove and return pulls in order of arrival: those whose deadline has passed, those for which
  // `predicate` is true, or all.
  std::vector<WaitingPull> TakeExpired(SteadyTime now);
  std::vector<WaitingPull> TakeIf(const std::function<bool(const WaitingPull&)>& predicate);
  std::vector<WaitingPull> TakeAll();

  // Returns the earliest deadline, or InfiniteFuture if nothing waits.
  SteadyTime NextDeadline() const;

  // Returns the highest `clock` that a pull waits for; 0: none waits for one.
  uint64_t HighestClock() const;
  size_t size() const { return waiting_.size(); }

 private:
  std::vector<WaitingPull> waiting_;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SHARD_PULL_QUEUE_H_
