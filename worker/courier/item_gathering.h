// SPDX-License-Identifier: Apache-2.0
// ItemGathering: items that a caller waits for together and that no pipeline carries: first values,
// pulls of rows, the optimizer's state both ways.
//
//   ItemGathering gathering(&courier, {.priority = ItemGathering::kBeforeAll});
//   gathering.Add(server, {.item = pull_item, .key_name = "s:w"}, /*answer_bytes=*/4096);
//   SLIMPS_ASSIGN_OR_RETURN(const std::vector<Answer> answers, gathering.Await());
//
// Requests leave together (Coalescer): when they fill a message, and all of them before Add or
// Await waits. Call Await once, at the end. A gathering that is dropped before leaves its items to
// the courier, and their answers are lost. Owned by one thread. The courier must outlive it.
#ifndef SLIMPS_WORKER_COURIER_ITEM_GATHERING_H_
#define SLIMPS_WORKER_COURIER_ITEM_GATHERING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/partition_limits.h"
#include "worker/courier/coalescer.h"
#include "worker/courier/courier.h"

namespace slimps {

struct GatheringOptions {
  int64_t priority = 0;
  // Most bytes under way at once, both ways together. Deadlines count from the sending.
  size_t max_bytes = kMaxAskedBytes;
};

class ItemGathering final {
 public:
  static constexpr int64_t kBeforeAll = Courier::kBeforeAll;

  ItemGathering(Courier* courier, const GatheringOptions& options);

  // Adds an item and sets `item.done`. Waits until there is room for the item's payload and for the
  // `answer_bytes` of its answer, or nothing else is under way. After an answer with an error,
  // items are dropped unsent: Await returns the error.
  void Add(uint32_t server, OutgoingItem item, size_t answer_bytes = 0);

  // Waits for all answers and returns them in the order of Add. Each comes within the courier's
  // deadline. An error is the first in the order of Add.
  [[nodiscard]] absl::StatusOr<std::vector<Answer>> Await();

 private:
  struct Gathered;

  // Waits for room and returns the index of the answer; nullopt after an error.
  std::optional<size_t> AwaitRoom(size_t bytes);
  void DispatchAll();
  void Dispatch(std::vector<Batch> batches);

  Courier* const courier_;
  const GatheringOptions options_;
  const std::shared_ptr<Gathered> gathered_;  // shared with the answers under way
  Coalescer coalescer_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_COURIER_ITEM_GATHERING_H_
