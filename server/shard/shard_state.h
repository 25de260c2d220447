// SPDX-License-Identifier: Apache-2.0
// What one shard thread owns: its partitions, the pulls that wait for them, and the answers not yet
// sent. A pull may come before its partition is initialised; it then waits for that.
//
//   state.HandleItems(std::move(items));          // counts pushes, answers what can be answered
//   while (state.HasCompleteRound()) state.ApplyOne();
//   for (Reply& reply : state.TakeReplies()) Send(reply);
//
// Counting and applying are apart, so that acknowledgements do not wait for the arithmetic of other
// partitions. Answers between two calls of TakeReplies travel together (reply_outbox.h). Complete
// rounds are applied by round number, then by the priority of their pushes, then in the order in
// which they became complete.
#ifndef SLIMPS_SERVER_SHARD_SHARD_STATE_H_
#define SLIMPS_SERVER_SHARD_SHARD_STATE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/partition_limits.h"
#include "proto/slimps.pb.h"
#include "server/round/change_codecs.h"
#include "server/round/partition.h"
#include "server/round/partition_spec.h"
#include "server/saved/image.h"
#include "server/saved/image_recut.h"
#include "server/shard/durable_rounds.h"
#include "server/shard/pull_queue.h"
#include "server/shard/reply_outbox.h"
#include "server/shard/shard_figures.h"

namespace slimps {

struct InitWork {
  wire::ItemId id;
  bool asks_standing = false;  // gives nothing, and asks where the partition stands
  PartitionSpec spec;
  ClaimedPayload value;
  // Set: the item puts back the optimizer's state. nullopt: it brings the first value.
  std::optional<wire::OptimizerState> state = std::nullopt;
};
struct PushWork {
  wire::PushItem item;
  Payload payload;
};
struct PullWork {
  wire::PullItem item;
  SteadyTime deadline;
};

// The items of one message that concern one shard, handled in this order.
struct ShardItems {
  Origin origin;
  std::vector<InitWork> inits;
  std::vector<PushWork> pushes;
  std::vector<PullWork> pulls;

  bool empty() const { return inits.empty() && pushes.empty() && pulls.empty(); }
  size_t PayloadBytes() const;
};

// Owned by the shard thread. No I/O; no lock but that of the figures. The clock measures how long a
// decode took and which pulls are late.
class ShardState final {
 public:
  // `optimizer` is for new partitions, until SetOptimizer. Answers that are copies (rows, the
  // optimizer's state) of at most `max_copied_bytes` may wait for TakeReplies. A new pull beyond
  // that is refused with ResourceExhausted, unless no other copy waits. A pull that has waited for
  // its version waits on instead.
  // REQUIRES: `clock` outlives the state.
  ShardState(std::shared_ptr<const Optimizer> optimizer, const Clock* clock,
             size_t max_copied_bytes = kMaxCopiedBytes);

  // Answers every item once: now, when its version is there, or when its deadline has passed.
  void HandleItems(ShardItems items);

  // Applies all complete rounds, then sets the optimizer of all partitions. New partitions get it
  // too, unless there was an error.
  // ResourceExhausted: there is no memory for some partition's state. Such partitions go on as
  // before.
  [[nodiscard]] absl::Status SetOptimizer(std::shared_ptr<const Optimizer> optimizer);

  // Takes the worker out of all partitions (Partition::Leave), and out of new ones unless there was
  // an error. Returns the first error.
  [[nodiscard]] absl::Status Leave(uint32_t worker, uint64_t from_round);

  // Waits in no partition for this worker any more (Partition::SetAway), also in those to come. It
  // is back in a partition once it asks where that stands. SetPresent: it is back in those to come.
  void SetAway(uint32_t worker);
  void SetPresent(uint32_t worker) { away_.erase(worker); }

  // Notes that this worker pushes no more. From now on FailedPrecondition is the answer to each
  // pull and push that would wait for a push of it (Partition::CheckComes), or for worker 0's Init.
  void NoteEnded(uint32_t worker);

  // Makes `why` the answer to: the pulls that wait; later pushes; later pulls that would have to
  // wait or that ask for the optimizer's state; and state that is put back. A later pull of a
  // version that is there still gets it. No more rounds become complete. The first `why` holds.
  void Fail(const absl::Status& why);

  bool HasCompleteRound() const { return !complete_.empty(); }

  // Returns the fp32 bytes of the partition whose round ApplyOne would apply. 0: there is none.
  size_t NextRoundBytes() const;

  // Applies one round of one partition and answers the pulls that it makes ready.
  // REQUIRES: HasCompleteRound().
  void ApplyOne();

  // Returns when ExpirePulls should be called next, at the latest.
  SteadyTime NextDeadline() const { return next_deadline_; }

  // Answers the pulls whose deadline has passed.
  void ExpirePulls();

  // Removes and returns the answers so far.
  std::vector<Reply> TakeReplies();

  // Answers pulls that found no room for their copy when their version came. Returns false if there
  // were none. Otherwise there are replies to take, and perhaps more pulls to answer.
  bool AnswerPutOff();

  // Makes answers say how far snapshots reach (ItemStatus.durable).
  void TellDurable() { tells_durable_ = true; }

  // Returns the partitions that are initialised.
  std::vector<PartitionId> Partitions() const;

  // Returns the image of a partition, for the snapshot under way.
  // REQUIRES: Partitions() has returned it.
  // ResourceExhausted: there is no memory for the copy.
  [[nodiscard]] absl::StatusOr<PartitionImage> Save(const PartitionId& id);
  saved::Shard SaveShard() const;

  // Notes that the snapshot with the newest images is on the disk.
  void NoteSnapshot();

  // Applies all complete rounds, then returns the images of all partitions for a checkpoint.
  // ResourceExhausted: there is no memory for the copies.
  [[nodiscard]] absl::StatusOr<std::vector<PartitionImage>> SaveAll();

  // Loading a checkpoint. Stage takes an image. It makes the successors of this shard's partitions
  // that the image has elements of, which ApplyStaged puts in their place.
  // FailedPrecondition: a pull waits for a partition, or ImageRecut::Add's.
  // Otherwise Partition::Successor's errors.
  [[nodiscard]] absl::Status Stage(const PartitionImage& image);

  // InvalidArgument: a partition of this shard was not staged (names it).
  [[nodiscard]] absl::Status CheckStaged() const;

  // `optimizer` is for new partitions. REQUIRES: CheckStaged was OK, and nothing came since.
  void ApplyStaged(std::shared_ptr<const Optimizer> optimizer);
  void DropStaged() {
    staged_.clear();
    recuts_.clear();
    by_key_.clear();
  }

  // Takes over a partition from the newest snapshot. `waiting`: Partition::Restore.
  // DataLoss, InvalidArgument: Partition::Restore's, or the partition is there already.
  [[nodiscard]] absl::Status Restore(const PartitionImage& image,
                                     std::shared_ptr<WaitingBytes> waiting);

  // Takes over what one shard gave to new partitions. Several shards' are put together.
  // InvalidArgument: the optimizer makes no sense.
  [[nodiscard]] absl::Status RestoreShard(const saved::Shard& fields);

  // True if TakeReplies should be called before more items are handled. Without that call the
  // copies of one worker's next request might find no room.
  bool has_many_copies() const { return copied_bytes_ > max_copied_bytes_ / 2; }

  // Returns what the shard tells those who watch. Any thread may read it, while another owns the
  // rest.
  const ShardFigures& figures() const { return figures_; }

  // Returns nullptr if the partition is not initialised.
  const Partition* Find(const PartitionId& id) const;

 private:
  using Turn = std::pair<int64_t, uint64_t>;  // minus SendPriority, order of completion
  struct Slot {
    std::unique_ptr<Partition> partition;  // null before Init
    PullQueue pulls;
    int32_t priority = 0;          // of the newest push
    std::optional<Turn> complete;  // its place in complete_
    DurableRounds durable;
    ShardFigures::Wait* wait = nullptr;  // set with `partition`
  };

  // Stages one partition's successor, if the image has all of it, or the last that was missing.
  absl::Status StageFor(const PartitionId& id, const Slot& slot, const PartitionImage& image);
  absl::Status HandleInit(InitWork work);
  // Waits for `worker` again, and says which pushes of it were counted.
  absl::Status Stand(const wire::ItemId& id, uint32_t worker,
                     std::optional<wire::Standing>* standing);
  absl::StatusOr<uint64_t> HandlePush(uint32_t worker, PushWork work);
  void HandlePull(const Origin& origin, PullWork work);
  absl::Status CheckPullNow(const Slot& slot, const wire::PullItem& item) const;
  // Returns OK if the pull can be answered one day, although workers have ended.
  absl::Status CheckComes(const Slot& slot, const WaitingPull& pull) const;
  enum class CopyRoom { kBounded, kAnyway };
  // Answers `pull`, with its version or an error.
  // ResourceExhausted: there is no room for its copy, and it is not answered.
  absl::Status Answer(Slot& slot, const WaitingPull& pull, CopyRoom room);
  void AnswerNorm(const Partition& partition, const WaitingPull& pull);
  absl::Status AnswerWithCopy(Partition& partition, const WaitingPull& pull, CopyRoom room);
  absl::Status CheckRoomForCopy(const Partition& partition, size_t elements) const;
  void AnswerReady(Slot& slot);
  // Answers the put-off pulls that name the version that the next round drops.
  void AnswerLast(Slot& slot);
  // Tells `figures_` whom the slot's next round, or its pulls, wait for.
  void NoteWait(const Slot& slot);
  void NoteCompletion(Slot& slot);  // NoteWait, then QueueComplete
  void QueueComplete(Slot& slot);
  void ApplyNextRound(Slot& slot);
  // Applies what is complete in `slot`. So what follows does not depend on when the thread found
  // time for it.
  void Settle(Slot& slot);
  std::optional<uint64_t> DurableOf(const wire::ItemId& id, uint32_t worker) const;
  uint64_t MeasureDecode(PayloadFormat format, const Payload& payload, size_t elements) const;

  const Clock* const clock_;
  const size_t max_copied_bytes_;
  std::shared_ptr<const Optimizer> optimizer_;
  // Never erased: pointers into it stay valid.
  std::unordered_map<PartitionId, Slot, PartitionIdHash> slots_;
  std::unordered_map<PartitionId, std::unique_ptr<Partition>, PartitionIdHash> staged_;
  // Images of keys that the checkpoint has cut otherwise, until they are whole.
  std::unordered_map<PartitionId, ImageRecut, PartitionIdHash> recuts_;
  std::unordered_map<KeyId, std::vector<PartitionId>> by_key_;  // made by the first Stage
  std::map<Turn, Slot*> complete_;
  uint64_t next_turn_ = 0;
  std::map<uint32_t, uint64_t> leaves_;  // worker -> from_round, for partitions to come
  std::set<uint32_t> away_;              // workers, for partitions to come
  std::set<uint32_t> ended_;             // workers
  ChangeCodecs change_codecs_;
  ShardFigures figures_;
  ReplyOutbox outbox_;
  size_t copied_bytes_ = 0;  // of answers in outbox_
  // Slots with waiting pulls whose version is there but that found no room for their copies.
  std::vector<Slot*> put_off_;
  SteadyTime next_deadline_ = SteadyTime::InfiniteFuture();
  absl::Status failure_;
  bool tells_durable_ = false;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SHARD_SHARD_STATE_H_
