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

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/thread.h"
#include "proto/net/membership/membership.h"
#include "proto/net/retry_tracker.h"
#include "proto/net/transport.h"
#include "worker/courier/called_once.h"

namespace slimps {

struct Answer {
  absl::Status status;
  // From the first byte handed over to the answer. Zero if the item was sent more than once: nobody
  // knows which of them was answered.
  absl::Duration round_trip;
  absl::Duration decode;     // for a profiled push: the time that the server took to decode it
  wire::PullReplyItem pull;  // for a pull
  Payload payload;           // for a pull
};

struct OutgoingItem {
  // Dispatch sets the item's ticket.
  std::variant<wire::PushItem, wire::PullItem, wire::InitItem> item;
  Payload payload;
  std::string key_name;  // for error messages
  CalledOnce<Answer> done;
};

struct CourierOptions {
  absl::Duration timeout = absl::Seconds(60);
  absl::Duration retry_interval = absl::Seconds(5);
  wire::StoreMode mode = wire::DIST_SYNC;  // goes into init messages, as does the staleness
  uint32_t staleness = 0;
  bool coalesce = true;  // false: every item in a message of its own, both ways
  const Clock* clock = MachineClock();
  // Called when Dispatch or the timer thread runs out of memory. Must lead to a call of FailAll.
  OnOutOfMemory on_out_of_memory = {};
};

// Thread-safe.
class Courier final {
 public:
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

  // Handles PushReply, PullReply and InitReply. Ignores answers to items that were not sent to
  // `from`. Returns false for any other verb.
  bool HandleMessage(PeerId from, Message& message);

  // Answers everything outstanding, and all later items, with `why`.
  void FailAll(const absl::Status& why);

  // Calls FailAll. After it returns, no `done` runs on the timer thread. Idempotent. REQUIRES: not
  // called from a `done`.
  void Stop();
  size_t outstanding() const;

 private:
  // The first request id with `coalesce` off, when each message gets an answer of its own. Servers
  // group answers by request id. RpcClient's ids are far below.
  static constexpr uint64_t kFirstRequest = uint64_t{1} << 63;

  struct Request {
    OutgoingItem out;
    uint32_t server = 0;
    int64_t priority = 0;
    SteadyTime handed_over = SteadyTime::InfinitePast();  // the first time
    SteadyTime dispatched;
    bool sent_again = false;
    bool queued = false;   // the transport holds it and has not handed it over yet
    int refusals = 0;      // how often a server had no room for it
    absl::Status refusal;  // the last one
  };

  void DispatchTogether(uint32_t server, std::span<OutgoingItem> items, int64_t priority,
                        Sender sender);
  // Gives the items tickets, stores them in requests_ and returns a message with them.
  Message Enter(uint32_t server, std::span<OutgoingItem> items, int64_t priority,
                std::vector<uint64_t>* tickets) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Message BuildMessage(const std::vector<uint64_t>& tickets) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(uint32_t server, Message message, const std::vector<uint64_t>& tickets,
            int64_t priority, Sender sender);
  // True if the item is outstanding and was sent to that server.
  bool IsAsked(PeerId server, uint64_t ticket) const;
  void HandleStatuses(PeerId from,
                      const google::protobuf::RepeatedPtrField<wire::ItemStatus>& items);
  void AnswerItem(uint64_t ticket, Answer answer);
  // Returns true, and keeps the item to be sent again, if the server had no room for it: too many
  // rounds or bytes wait there.
  bool Defer(uint64_t ticket, const absl::Status& status);
  void NoteHeard(PeerId from);
  void HandlePullReply(PeerId from, Message& message);
  void MarkHandedOver(const std::vector<uint64_t>& tickets, SteadyTime when);
  void MarkQueued(const std::vector<uint64_t>& tickets);
  // Notes that the transport did not take the items. The timer sends them again.
  void MarkUnsent(const std::vector<uint64_t>& tickets);
  // Returns the error of an item whose deadline has passed.
  absl::Status Expired(uint64_t ticket) const;
  // True if the answer is probably queued behind others rather than lost: the item was handed over
  // and the server is talking. On a slow link, weights may take longer than the retry interval, and
  // a second request would have them sent twice. False after half of the timeout: then the item is
  // sent once more in any case.
  bool AnswersCome(const Request& request, SteadyTime now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RetryAndExpire(SteadyTime now);
  void TimerLoop();

  Transport* const transport_;
  Membership* const membership_;
  const std::vector<PeerId> servers_;
  const CourierOptions options_;

  mutable Mutex mutex_;
  std::unordered_map<uint64_t, Request> requests_ ABSL_GUARDED_BY(mutex_);  // by ticket
  RetryTracker retries_ ABSL_GUARDED_BY(mutex_);
  std::vector<SteadyTime> heard_ ABSL_GUARDED_BY(mutex_);  // by server: when its last message came
  uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t next_request_ ABSL_GUARDED_BY(mutex_) = kFirstRequest;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar stop_;
  // By ticket: when to send an item again that a server refused for want of room.
  std::map<uint64_t, SteadyTime> deferred_ ABSL_GUARDED_BY(mutex_);
  Thread timer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_COURIER_COURIER_H_
