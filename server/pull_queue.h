// Pulls that wait for a version of one partition, and under dist_ssp for the slowest worker, each up to its deadline.
#ifndef SLIMPS_SERVER_PULL_QUEUE_H_
#define SLIMPS_SERVER_PULL_QUEUE_H_

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

// Who is to be answered, and what the answer repeats.
struct Origin {
  PeerId peer{};
  uint32_t worker = 0;
  uint64_t request_id = 0;
};

struct WaitingPull {
  Origin origin;
  wire::PullItem item;
  SteadyTime deadline;
  uint64_t clock = 0;  // of the slowest worker, that must be reached
};

// Thread-compatible. Pure: the caller brings the time.
class PullQueue final {
 public:
  // A worker has at most a few pulls of one partition under way: most where it asks for single elements of all of a
  // partition of the usual size, as rows. A peer must not make the queue grow without end.
  static constexpr size_t kMaxPerWorker = 16;

  // A pull with the worker and ticket of one that waits already replaces it: a retry is answered once.
  // ResourceExhausted: this worker has kMaxPerWorker pulls waiting; `pull` stays as it is.
  [[nodiscard]] absl::Status Add(WaitingPull&& pull);
  // Those whose version and clock are reached, in order of arrival.
  std::vector<WaitingPull> TakeReady(uint64_t version, uint64_t slowest = 0);
  // One of those that Take... gave last, and that is to wait on. Allocates nothing.
  void PutBack(WaitingPull&& pull) { waiting_.push_back(std::move(pull)); }
  std::vector<WaitingPull> TakeExpired(SteadyTime now);
  std::vector<WaitingPull> TakeAll();
  // InfiniteFuture when nothing waits.
  SteadyTime NextDeadline() const;
  size_t size() const { return waiting_.size(); }

 private:
  std::vector<WaitingPull> TakeIf(const std::function<bool(const WaitingPull&)>& predicate);

  std::vector<WaitingPull> waiting_;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_PULL_QUEUE_H_
