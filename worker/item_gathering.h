// ItemGathering: items that a caller waits for together, and that no pipeline carries: first values, pulls of rows, the
// optimizer's state both ways.
//
//   ItemGathering gathering(&courier, {.priority = ItemGathering::kBeforeAll});
//   gathering.Add(server, {.item = pull_item, .key_name = "s:w"}, /*answer_bytes=*/4096);   // as often as need be
//   SLIMPS_ASSIGN_OR_RETURN(const std::vector<Answer> answers, gathering.Await());   // in the order of Add
//
// Requests leave together (Coalescer): once they fill a message, all of them before Add or Await waits. Owned by one
// thread; the courier must outlive it. Await is to be called once, at the end; a gathering that is dropped before leaves its
// items to the courier, and their answers are lost.
#ifndef SLIMPS_WORKER_ITEM_GATHERING_H_
#define SLIMPS_WORKER_ITEM_GATHERING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/coalescer.h"
#include "worker/courier.h"

namespace slimps {

struct GatheringOptions {
  int64_t priority = 0;
  // Under way at once, both ways together: deadlines count from the sending, and whoever answers holds a copy of all that
  // is asked for.
  size_t most_bytes = size_t{32} << 20;
};

class ItemGathering final {
 public:
  static constexpr int64_t kBeforeAll = Courier::kBeforeAll;

  ItemGathering(Courier* courier, const GatheringOptions& options);

  // Sets `item.done`. Waits until the item's payload and the `answer_bytes` that will answer it have room, or nothing else
  // is under way. After an answer that is an error items are dropped unsent: Await will tell.
  void Add(uint32_t server, OutgoingItem item, size_t answer_bytes = 0);
  // Waits for all answers; each comes within the courier's deadline. The first error, by the order of Add.
  [[nodiscard]] absl::StatusOr<std::vector<Answer>> Await();

 private:
  struct Gathered;

  // Where the answer goes; nullopt after an error.
  std::optional<size_t> AwaitRoom(size_t bytes);
  void DispatchAll();
  void Dispatch(std::vector<Batch> batches);

  Courier* const courier_;
  const GatheringOptions options_;
  const std::shared_ptr<Gathered> gathered_;  // with the answers under way
  Coalescer coalescer_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_ITEM_GATHERING_H_
