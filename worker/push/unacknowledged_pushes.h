// SPDX-License-Identifier: Apache-2.0
// UnacknowledgedPushes: tracks the unacknowledged pushes of each key, and the callbacks that wait
// for them. A callback waits for all pushes of its key that were submitted before it.
//
//   const uint64_t turn = pushes.Add(key, partitions);           // a push was submitted
//   if (!pushes.Await(key, waiter)) waiter(absl::OkStatus());    // nothing to wait for
//   // One partition was acknowledged: calls the callbacks that have nothing left to wait for.
//   Tell(pushes.Take(key, turn, 1), absl::OkStatus());
//
// Thread-compatible. This class calls no waiter. Its owner does, and holds no lock meanwhile.
#ifndef SLIMPS_WORKER_PUSH_UNACKNOWLEDGED_PUSHES_H_
#define SLIMPS_WORKER_PUSH_UNACKNOWLEDGED_PUSHES_H_

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
  // Waiters in the order in which they came. Each waits for all pushes with an earlier turn than
  // its own.
  using Waiters = std::list<std::pair<uint64_t, Waiter>>;

  static void Tell(const Waiters& waiters, const absl::Status& status) {
    for (const auto& [turn, waiter] : waiters) waiter(status);
  }

  // Notes that a push of so many partitions was submitted. Returns its turn, for Take.
  uint64_t Add(KeyId key, size_t partitions);

  // Keeps `waiter` until all pushes of the key so far are acknowledged. Returns false, without
  // keeping it, if they already are.
  [[nodiscard]] bool Await(KeyId key, Waiter waiter);

  // Notes that so many partitions of the push with this turn were acknowledged. Returns the waiters
  // that have nothing left to wait for. Allocates nothing.
  // REQUIRES: Add returned `turn`, and so many of its partitions are unacknowledged.
  [[nodiscard]] Waiters Take(KeyId key, uint64_t turn, size_t partitions);

  // Returns all waiters and keeps none. Allocates nothing.
  [[nodiscard]] Waiters TakeWaiters();

  // Returns the number of unacknowledged partitions of all keys.
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

#endif  // SLIMPS_WORKER_PUSH_UNACKNOWLEDGED_PUSHES_H_
