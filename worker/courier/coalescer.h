// SPDX-License-Identifier: Apache-2.0
// Coalescer: groups small items for the same server into one message, because their start-up cost
// dominates. Adds no delay: the thread that fills it takes everything out as soon as it has nothing
// more to add.
//
//   for (Batch& batch : coalescer.Add(server, std::move(item), priority)) courier.Dispatch(...);
//   if (queue_is_empty) for (Batch& batch : coalescer.TakeAll()) courier.Dispatch(...);
//
// Pure. Thread-compatible.
#ifndef SLIMPS_WORKER_COURIER_COALESCER_H_
#define SLIMPS_WORKER_COURIER_COALESCER_H_

#include <cstdint>
#include <map>
#include <vector>

#include "worker/courier/outgoing_item.h"

namespace slimps {

struct Batch {
  uint32_t server = 0;
  int64_t priority = 0;  // the highest of its items
  size_t bytes = 0;      // of payloads, plus roughly the header's entries for them
  std::vector<OutgoingItem> items;
};

class Coalescer final {
 public:
  // An item with more payload than this, or with a larger entry in the header, travels alone.
  static constexpr size_t kSmallItemBytes = 64 << 10;
  // A batch leaves when it has this many bytes or items. Headers have room for more.
  static constexpr size_t kFullBatchBytes = 256 << 10;
  static constexpr size_t kFullBatchItems = 256;

  // Adds an item and returns what must leave now, in this order: the batch that `item` filled or,
  // before a large item, the small ones that were there first.
  [[nodiscard]] std::vector<Batch> Add(uint32_t server, OutgoingItem item, int64_t priority);

  // Returns all batches and leaves none.
  [[nodiscard]] std::vector<Batch> TakeAll();
  bool empty() const { return open_.empty(); }

 private:
  std::map<uint32_t, Batch> open_;  // by server
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_COURIER_COALESCER_H_
