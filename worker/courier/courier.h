// SPDX-License-Identifier: Apache-2.0
// Courier: carries items (init, push, pull of one partition) to servers and brings back each item's
// answer.
//
//   courier.Dispatch(server, {{.item = push_item, .payload = payload, .done = on_answer}});
//
// One Dispatch is one message. Acknowledgement, retry and deadline are per item, never per message:
// an item keeps its ticket until it is answered, and a retry may travel with other items.
// `done` runs exactly once: on the transport's I/O thread, on the timer thread, on the thread that
// calls FailAll, or on the thread that calls Dispatch (if the item cannot be sent). It must neither
// block nor throw. It may call Dispatch.
#ifndef SLIMPS_WORKER_COURIER_COURIER_H_
#define SLIMPS_WORKER_COURIER_COURIER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/thread.h"
#include "proto/net/membership/membership.h"
#include "proto/net/transport.h"
#include "worker/courier/kept_items.h"
#include "worker/courier/outgoing_item.h"
#include "worker/courier/outstanding_items.h"

namespace slimps {

struct CourierOptions {
  absl::Duration timeout = absl::Seconds(60);
  absl::Duration retry_interval = absl::Seconds(5);
  wire::StoreMode mode = wire::DIST_SYNC;  // goes into init messages, as does the staleness
  uint32_t staleness = 0;
  bool coalesce = true;  // false: every item in a message of its own, both ways
  // Set if servers may be started again: what is kept for that (kept_items.h), at most.
  std::optional<size_t> max_kept_bytes;
  // Called when a snapshot of this server is wanted, and with why items that a server lacks cannot
  // be sent again. On any thread.
  std::function<void(uint32_t server)> on_snapshot_wanted;
  std::function<void(const absl::Status& why)> on_not_replayed;
  // Called when the servers of this roster have all that they may have acknowledged to this worker.
  // On any thread.
  std::function<void(uint64_t epoch)> on_replayed;
  // Called when the first item becomes outstanding, and when none is any more. It must call nobody:
  // the courier's lock is held.
  std::function<void(bool travels)> on_travel;
  const Clock* clock = MachineClock();
  // Called when Dispatch or the timer thread runs out of memory. Must lead to a call of FailAll.
  OnOutOfMemory on_out_of_memory = {};
};

// Thread-safe.
class Courier final {
 public:
  // How many rounds of a partition are sent again before the first of them is acknowledged.
  static constexpr uint64_t kReplaysAtOnce = 16;

  // The priority of pull requests: higher than that of anything queued. They are small, and a
  // caller waits for them. They must not fall behind either: a server keeps only the current
  // version and the one before. If the worker's push of one later round arrives before its pull,
  // the pull still gets the version that it names. If pushes of two later rounds do, it does not.
  static constexpr int64_t kBeforeAll = std::numeric_limits<int>::max();

  // servers[rank] is the connection to that server. REQUIRES: `transport` and `membership` outlive
  // this.
  Courier(Transport* transport, Membership* membership, std::vector<PeerId> servers,
          CourierOptions options);
  ~Courier();

  // kWaits: the caller waits for the answer and holds no lock, so it may do the sending itself
  // (SendOptions::may_hand_over_here).
  enum class Sender { kGoesOn, kWaits };

  // Sends the items in one message of their kind; pushes and pulls together make a PushPull. With
  // `coalesce` off, each item has its own message. Throws nothing: what the caller has recorded
  // about the items stays true, whatever becomes of them.
  void Dispatch(uint32_t server, std::vector<OutgoingItem> items, int64_t priority,
                Sender sender = Sender::kGoesOn);

  // Notes that the transport dropped what it held for this server. A retry may queue it again.
  void OnUndeliverable(PeerId server);

  // Notes that the connection to this server broke. Sends every item that was handed over to it
  // once more, at once.
  void OnConnectionLost(PeerId server);

  // Notes that this server was started again and is reached at `peer` from now on. Sends it what it
  // may lack, in order, and what it has not answered.
  void OnServerRestarted(uint32_t server, PeerId peer);

  // Holds AwaitReplays and on_replayed from now on, or no longer. For a caller that makes the new
  // connections of a roster known before it calls OnServerRestarted. `epoch` is the roster's.
  void HoldReplays(uint64_t epoch);
  void ReleaseReplays();

  // Waits until servers that were started again have acknowledged all that they were sent again, at
  // most `timeout`. What depends on it must not overtake it.
  void AwaitReplays(absl::Duration timeout);

  // Handles PushReply, PullReply and InitReply. Ignores answers to items that were not sent to
  // `from`. Returns false for any other verb.
  bool HandleMessage(PeerId from, Message& message);

  // Answers everything outstanding, and all later items, with `why`.
  void FailAll(const absl::Status& why);

  // Calls FailAll. After it returns, no `done` runs on the timer thread. Idempotent. REQUIRES: not
  // called from a `done`.
  void Stop();
  size_t outstanding() const;

  // Returns how many items were sent once more.
  uint64_t sent_again() const;

 private:
  // The first request id with `coalesce` off, when each message gets an answer of its own. Servers
  // group answers by request id. RpcClient's ids are far below.
  static constexpr uint64_t kFirstRequest = uint64_t{1} << 63;

  void DispatchTogether(uint32_t server, std::span<OutgoingItem> items, int64_t priority,
                        Sender sender);
  // Returns a message with these outstanding items.
  Message BuildMessage(const std::vector<uint64_t>& tickets) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(uint32_t server, Message message, const std::vector<uint64_t>& tickets,
            int64_t priority, Sender sender);
  bool IsAsked(PeerId server, uint64_t ticket) const;
  void HandleStatuses(PeerId from,
                      const google::protobuf::RepeatedPtrField<wire::ItemStatus>& items);
  void HandlePullReply(PeerId from, Message& message);
  void AnswerItem(uint64_t ticket, Answer answer);
  // Keeps an answered item, if servers may be started again. Returns true if a snapshot is wanted.
  bool Keep(const OutstandingItem& item, std::optional<uint64_t> durable)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends the next kept item of this partition, and the others as they are answered.
  void ReplayNext(uint32_t server, const wire::ItemId& id);
  void OnReplayed(uint32_t server, const wire::ItemId& id, const absl::Status& status);
  void TellIfReplayed();
  // Returns true, and keeps the item to be sent again, if the server had no room for it (too many
  // rounds or bytes wait there), is stopping and may be started again, or was started again and has
  // not got the partition's first value yet. Where a server comes back to its address, it may get
  // an item before this worker knows that it was started again.
  bool Defer(uint64_t ticket, const absl::Status& status);
  void TimerLoop();
  void RetryAndExpire(SteadyTime now);
  void SendAgain(uint64_t ticket);

  Transport* const transport_;
  Membership* const membership_;
  const CourierOptions options_;

  mutable Mutex mutex_;
  std::optional<KeptItems> kept_ ABSL_GUARDED_BY(mutex_);
  OutstandingItems items_ ABSL_GUARDED_BY(mutex_);
  uint64_t sent_again_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_request_ ABSL_GUARDED_BY(mutex_) = kFirstRequest;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  size_t replays_ ABSL_GUARDED_BY(mutex_) = 0;  // items sent again and not answered, and holds
  CondVar replayed_;
  size_t owed_ ABSL_GUARDED_BY(mutex_) = 0;              // OutstandingItem.owed, not acknowledged
  uint64_t replayed_epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // of the newest HoldReplays
  CondVar stop_;
  Thread timer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_COURIER_COURIER_H_
