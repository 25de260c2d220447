// SPDX-License-Identifier: Apache-2.0
// KeptItems: the first values and pushes that servers have acknowledged and that their snapshots
// may lack. A server that is started again goes on from a snapshot, and is sent the rest again.
//
//   kept.Keep(server, item);                      // acknowledged
//   kept.DropDurable(id, status.durable());       // as each acknowledgement says
//   kept.StartReplay(server);                     // the server was started again
//   while (auto item = kept.NextToReplay(id)) ... // in the order of rounds
//
// Payloads are shared, not copied. They take at most `max_bytes`. Beyond that the items of the
// server with the most are dropped. It can then be replayed only once its snapshots have them.
//
// Pure. Thread-compatible: the courier's mutex guards it.
#ifndef SLIMPS_WORKER_COURIER_KEPT_ITEMS_H_
#define SLIMPS_WORKER_COURIER_KEPT_ITEMS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/slimps.pb.h"
#include "worker/courier/outgoing_item.h"

namespace slimps {

class KeptItems final {
 public:
  explicit KeptItems(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Keeps an acknowledged item without its `done`, unless it is neither a push nor a first value.
  void Keep(uint32_t server, const OutgoingItem& item);

  // Drops the items of this partition that snapshots have for certain (wire::ItemStatus.durable).
  void DropDurable(const wire::ItemId& id, uint64_t durable);

  // Returns true if a new snapshot is wanted: the items take over half of max_bytes, and since the
  // last wish an eighth of it has come.
  bool TakeWish();

  // Begins to replay this server. Returns its partitions.
  // FailedPrecondition: items that the server may lack were dropped.
  [[nodiscard]] absl::StatusOr<std::vector<wire::ItemId>> StartReplay(uint32_t server);

  // Returns a copy of the next item of this partition to send again; nullopt: there are no more.
  std::optional<OutgoingItem> NextToReplay(const wire::ItemId& id);

  size_t bytes() const { return bytes_; }

 private:
  using Place = std::pair<uint64_t, bool>;  // the round, and if it is the round's gradient_scale
  struct Partition {
    uint32_t server = 0;
    std::map<Place, OutgoingItem> items;  // round 0: the first value
    std::optional<Place> replay_from;     // the least place that is not sent again yet
    std::optional<uint64_t> lacks;        // the newest round that was dropped for want of room
  };
  using PartitionOf = std::pair<uint64_t, uint32_t>;  // key, partition

  void Erase(Partition& partition, std::map<Place, OutgoingItem>::iterator item);
  void DropAllOf(uint32_t server);
  uint32_t Fullest() const;  // the server with the most bytes

  const size_t max_bytes_;
  size_t bytes_ = 0;
  size_t bytes_since_wish_ = 0;
  std::map<PartitionOf, Partition> partitions_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_COURIER_KEPT_ITEMS_H_
