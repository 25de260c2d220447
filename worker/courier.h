// Courier: carries items (init, push, pull of one partition) to servers and brings back each one's
// answer.
//
//   courier.Dispatch(server, {{.item = push_item, .payload = payload, .done = on_answer}});
//
// One Dispatch is one message. Acknowledgement, retry and deadline are per item, never per message:
// an item keeps its ticket until it was answered, and a retry may travel in other company. `done`
// runs exactly once, on the transport's I/O thread, the timer thread or that of a caller of Dispatch
// (what cannot be sent) or FailAll; it must neither block nor throw, and may Dispatch.
#ifndef SLIMPS_WORKER_COURIER_H_
#define SLIMPS_WORKER_COURIER_H_

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
#include "worker/called_once.h"

namespace slimps {

struct Answer {
  absl::Status status;
  // First byte handed over to the answer; zero where it was sent more than once, and nobody knows what was answered.
  absl::Duration round_trip;
  absl::Duration decode;     // of a profiled push: what the server took to decode it
  wire::PullReplyItem pull;  // of a pull
  Payload payload;           // of a pull
};

struct OutgoingItem {
  std::variant<wire::PushItem, wire::PullItem, wire::InitItem>
      item;  // its ticket is set by Dispatch
  Payload payload;
  std::string key_name;  // for error messages
  CalledOnce<Answer> done;
};

struct CourierOptions {
  absl::Duration timeout = absl::Seconds(60);
  absl::Duration retry_interval = absl::Seconds(5);
  wire::StoreMode mode = wire::DIST_SYNC;  // stamped on init messages, the staleness too
  uint32_t staleness = 0;
  bool coalesce = true;  // false: every item in a message of its own, both ways
  const Clock* clock = MachineClock();
  // Of Dispatch and of the timer's thread; must see to it that FailAll is called.
  OnOutOfMemory on_out_of_memory = {};
};

// Thread-safe.
class Courier final {
 public:
  // The priority of pulls: they are small and somebody waits, so that nothing queued goes before them. A server has the
  // current version and the one before: a pull that its worker's push of the next round overtakes still gets the version
  // that it names, one that the pushes of two rounds overtake does not.
  static constexpr int64_t kBeforeAll = std::numeric_limits<int>::max();

  // `transport` and `membership` must outlive the courier. servers[rank] is the connection to that
  // server.
  Courier(Transport* transport, Membership* membership, std::vector<PeerId> servers,
          CourierOptions options);
  ~Courier();

  // kWaits: the caller waits for the answer, holding no lock, and so may do the sending itself
  // (SendOptions::may_hand_over_here).
  enum class Sender { kGoesOn, kWaits };

  // All items travel in one message of their kind; pushes and pulls together make a PushPull. Throws nothing: what its
  // caller has said of the items holds, whatever becomes of them.
  void Dispatch(uint32_t server, std::vector<OutgoingItem> items, int64_t priority,
                Sender sender = Sender::kGoesOn);
  // The transport dropped what it held for this server: a retry may queue it again.
  void OnUndeliverable(PeerId server);
  // The connection to this server broke: what it was asked for by then is asked for again at once.
  void OnConnectionLost(PeerId server);
  // Takes PushReply, PullReply and InitReply; of their items those that `from` was asked for. False: another verb.
  bool HandleMessage(PeerId from, Message& message);
  // Answers everything outstanding, and whatever comes later, with `why`.
  void FailAll(const absl::Status& why);
  // FailAll; and no `done` runs on the timer thread after it returns. Idempotent. Not from within a `done`.
  void Stop();
  size_t outstanding() const;

 private:
  // Request ids of messages that are to be answered one by one; RpcClient's are far below.
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
    absl::Status refusal;  // the last of them
  };

  void DispatchTogether(uint32_t server, std::span<OutgoingItem> items, int64_t priority,
                        Sender sender);
  // Gives the items tickets, takes them, and puts them into a message.
  Message Enter(uint32_t server, std::span<OutgoingItem> items, int64_t priority,
                std::vector<uint64_t>* tickets) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Message BuildMessage(const std::vector<uint64_t>& tickets) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(uint32_t server, Message message, const std::vector<uint64_t>& tickets,
            int64_t priority, Sender sender);
  // Whether the item is outstanding and that server's.
  bool IsAsked(PeerId server, uint64_t ticket) const;
  void HandleStatuses(PeerId from,
                      const google::protobuf::RepeatedPtrField<wire::ItemStatus>& items);
  void AnswerItem(uint64_t ticket, Answer answer);
  // True: the server had no room for the item (too many rounds or bytes wait); it stays, and is sent again.
  bool Defer(uint64_t ticket, const absl::Status& status);
  void NoteHeard(PeerId from);
  void HandlePullReply(PeerId from, Message& message);
  void MarkHandedOver(const std::vector<uint64_t>& tickets, SteadyTime when);
  void MarkQueued(const std::vector<uint64_t>& tickets);
  // The transport did not take them: the timer tries again.
  void MarkUnsent(const std::vector<uint64_t>& tickets);
  absl::Status Expired(uint64_t ticket) const;
  // Whether the item was handed over and the server is talking, so that its answer is rather on its way behind others
  // than lost: on a slow link weights may take longer than the retry interval, and asking again would have them sent
  // twice. Not beyond half of the timeout, when it is asked for once more at any rate.
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
  // Refused for want of room, and when to send it again, by ticket.
  std::map<uint64_t, SteadyTime> deferred_ ABSL_GUARDED_BY(mutex_);
  Thread timer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_COURIER_H_
