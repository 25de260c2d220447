// ItemGathering: items that a caller waits for together, and that no pipeline carries: pulls of rows, the optimizer's state
// both ways.
//
//   ItemGathering gathering(&courier, ItemGathering::kBeforeAll);
//   gathering.Add(server, {.item = pull_item, .key_name = "s:w"});      // as often as need be; `done` is set here
//   SLIMPS_ASSIGN_OR_RETURN(const std::vector<Answer> answers, gathering.Await());   // in the order of Add
//
// Requests leave grouped, as Add fills their messages. Owned by one thread; the courier must outlive it. Await is to be
// called once.
#ifndef SLIMPS_WORKER_ITEM_GATHERING_H_
#define SLIMPS_WORKER_ITEM_GATHERING_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/courier.h"

namespace slimps {

class ItemGathering final {
 public:
  // Of pulls: one must not be overtaken by this worker's push of the next round, or it could be answered with the version
  // after the one asked for.
  static constexpr int64_t kBeforeAll = std::numeric_limits<int>::max();

  ItemGathering(Courier* courier, int64_t priority);

  void Add(uint32_t server, OutgoingItem item);
  // Waits for all answers; each comes within the courier's deadline. The first error, by the order of Add.
  [[nodiscard]] absl::StatusOr<std::vector<Answer>> Await();

 private:
  struct Gathered;
  struct Open {
    std::vector<OutgoingItem> items;
    size_t bytes = 0;
  };

  void Dispatch(uint32_t server, Open open);

  Courier* const courier_;
  const int64_t priority_;
  const std::shared_ptr<Gathered> gathered_;  // with the answers under way
  std::map<uint32_t, Open> open_;             // by server
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_ITEM_GATHERING_H_
