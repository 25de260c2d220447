// Pushes that are not acknowledged yet, of each key in the order in which they were submitted, and who waits for those before
// it to be.
//
//   const uint64_t turn = pushes.Add(key, partitions);             // submitted
//   if (!pushes.Await(key, waiter)) waiter(absl::OkStatus());      // nothing to wait for
//   Tell(pushes.Take(key, turn, 1), absl::OkStatus());             // one partition was acknowledged: these have waited enough
//
// Thread-compatible; waiters are the caller's to call, with none of its locks held.
#ifndef SLIMPS_WORKER_UNACKNOWLEDGED_PUSHES_H_
#define SLIMPS_WORKER_UNACKNOWLEDGED_PUSHES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "proto/base/key.h"

namespace slimps {

class UnacknowledgedPushes final {
 public:
  using Waiter = std::function<void(const absl::Status&)>;
  // In the order in which they came, each with the turn before which all pushes are waited for.
  using Waiters = std::list<std::pair<uint64_t, Waiter>>;

  static void Tell(const Waiters& waiters, const absl::Status& status) {
    for (const auto& [turn, waiter] : waiters) waiter(status);
  }

  // A push of so many partitions was submitted. Its turn is what Take wants to know.
  uint64_t Add(KeyId key, size_t partitions);
  // Keeps `waiter` until all pushes of the key so far are acknowledged; false, and it is not kept: they are.
  [[nodiscard]] bool Await(KeyId key, Waiter waiter);
  // So many partitions of that push were acknowledged. Those who have nothing left to wait for. Allocates nothing.
  [[nodiscard]] Waiters Take(KeyId key, uint64_t turn, size_t partitions);
  // All that wait. Allocates nothing.
  [[nodiscard]] Waiters TakeWaiters();
  // Partitions, of all keys.
  size_t size() const { return size_; }

 private:
  struct OfKey {
    uint64_t turn = 0;                      // of the next push
    std::map<uint64_t, size_t> partitions;  // unacknowledged, by turn
    Waiters waiting;
  };

  size_t size_ = 0;
  std::unordered_map<KeyId, OfKey> keys_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_UNACKNOWLEDGED_PUSHES_H_
