// What one shard thread owns: its partitions, the pulls that wait for them, and the answers not yet sent. A pull may
// come before its partition is initialised; it then waits for that.
//
//   state.HandleItems(std::move(items));          // counts pushes, answers what can be answered
//   while (state.HasCompleteRound()) state.ApplyOne();
//   for (Reply& reply : state.TakeReplies()) Send(reply);
//
// Counting and applying are apart, so that acknowledgements do not wait for the arithmetic of other partitions. What is
// answered between two calls of TakeReplies travels together (reply_outbox.h). Complete rounds are applied by their
// number, then by the priority of their pushes, then in the order in which they became complete.
#ifndef SLIMPS_SERVER_SHARD_STATE_H_
#define SLIMPS_SERVER_SHARD_STATE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/slimps.pb.h"
#include "server/change_codecs.h"
#include "server/partition.h"
#include "server/pull_queue.h"
#include "server/reply_outbox.h"

namespace slimps {

struct InitWork {
  wire::ItemId id;
  PartitionSpec spec;
  ClaimedPayload value;
  std::optional<wire::OptimizerState> state =
      std::nullopt;  // of the optimizer; else the first value
};
struct PushWork {
  wire::PushItem item;
  Payload payload;
};
struct PullWork {
  wire::PullItem item;
  SteadyTime deadline;
};

// The items of one message that concern one shard; handled in this order.
struct ShardItems {
  Origin origin;
  std::vector<InitWork> inits;
  std::vector<PushWork> pushes;
  std::vector<PullWork> pulls;

  bool empty() const { return inits.empty() && pushes.empty() && pulls.empty(); }
  size_t PayloadBytes() const;
};

struct PartitionId {
  KeyId key = 0;
  uint32_t index = 0;
  friend bool operator==(const PartitionId&, const PartitionId&) = default;
};
struct PartitionIdHash {
  // Key ids are hashes already.
  size_t operator()(const PartitionId& id) const {
    return static_cast<size_t>(id.key ^ (id.index * 0x9E3779B97F4A7C15u));
  }
};

// Owned by the shard thread. No I/O or lock; the clock tells how long a decode took and which pulls are late.
class ShardState final {
 public:
  static constexpr size_t kMostCopiedBytes = size_t{64} << 20;

  // `clock` must outlive the state. `optimizer` is that of new partitions until SetOptimizer. Of answers that are copies
  // (rows, the optimizer's state) `most_copied_bytes` may wait for TakeReplies; a pull beyond is refused with
  // ResourceExhausted, unless it is the only one or has waited for its version: then it waits on. Workers have half of that
  // under way at once (worker/item_gathering.h).
  ShardState(std::shared_ptr<const Optimizer> optimizer, const Clock* clock,
             size_t most_copied_bytes = kMostCopiedBytes);

  // Every item is answered once: now, or when its version is there, or when its deadline has passed.
  void HandleItems(ShardItems items);
  // For all partitions, those to come too. ResourceExhausted: there is no memory for what it keeps of some; they go on as
  // they were.
  [[nodiscard]] absl::Status SetOptimizer(std::shared_ptr<const Optimizer> optimizer);
  [[nodiscard]] absl::Status Leave(uint32_t worker, uint64_t from_round);
  // Waiting pulls, later pushes, later pulls that would have to wait or are of state, and state that is put are answered
  // with `why`.
  void Fail(const absl::Status& why);

  bool HasCompleteRound() const { return !complete_.empty(); }
  // Of the round that ApplyOne would apply; 0: there is none.
  size_t NextRoundBytes() const;
  // Applies one round of one partition and answers the pulls that it makes ready. REQUIRES: HasCompleteRound().
  void ApplyOne();

  // When ExpirePulls should be called next, at the latest.
  SteadyTime NextDeadline() const { return next_deadline_; }
  void ExpirePulls();

  std::vector<Reply> TakeReplies();
  // Answers what found no room for its copy when its version came. False: there is nothing of the kind; else there are
  // replies to be taken, and perhaps more to come.
  bool AnswerPutOff();
  // Whether TakeReplies should come before more items, or one worker may find no room for what it asks for at once.
  bool has_many_copies() const { return copied_bytes_ > most_copied_bytes_ / 2; }
  // nullptr: not initialised.
  const Partition* Find(const PartitionId& id) const;

 private:
  using Turn = std::pair<int64_t, uint64_t>;  // minus SendPriority, sequence
  struct Slot {
    std::unique_ptr<Partition> partition;  // null before Init
    PullQueue pulls;
    int32_t priority = 0;          // of the newest push
    std::optional<Turn> complete;  // its place in complete_
  };

  absl::Status HandleInit(InitWork work);
  absl::StatusOr<uint64_t> HandlePush(uint32_t worker, PushWork work);
  void HandlePull(const Origin& origin, PullWork work);
  absl::Status CheckPullNow(const Slot& slot, const wire::PullItem& item) const;
  enum class CopyRoom { kBounded, kAnyway };
  // ResourceExhausted: there is no room for its copy, and it is not answered.
  absl::Status Answer(Slot& slot, const WaitingPull& pull, CopyRoom room);
  absl::Status AnswerWithCopy(Partition& partition, const WaitingPull& pull, CopyRoom room);
  absl::Status CheckRoomForCopy(const Partition& partition, size_t elements) const;
  void AnswerReady(Slot& slot);
  // What was put off and names the version that the next round drops.
  void AnswerLast(Slot& slot);
  void NoteCompletion(Slot& slot);
  void ApplyNextRound(Slot& slot);
  // Applies what is complete in `slot`, so that what follows does not depend on when the thread found time to.
  void Settle(Slot& slot);
  uint64_t MeasureDecode(PayloadFormat format, const Payload& payload, size_t elements) const;

  const Clock* const clock_;
  const size_t most_copied_bytes_;
  std::shared_ptr<const Optimizer> optimizer_;
  std::unordered_map<PartitionId, Slot, PartitionIdHash>
      slots_;  // never erased: pointers into it stay
  std::map<Turn, Slot*> complete_;
  uint64_t next_turn_ = 0;
  std::map<uint32_t, uint64_t> leaves_;  // worker -> from_round, for partitions to come
  ChangeCodecs change_codecs_;
  ReplyOutbox outbox_;
  size_t copied_bytes_ = 0;  // in outbox_
  std::vector<Slot*>
      put_off_;  // have waiting pulls whose version is there, but not the room for their copies
  SteadyTime next_deadline_ = SteadyTime::InfiniteFuture();
  absl::Status failure_;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SHARD_STATE_H_
