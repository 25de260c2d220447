// The I/O of a ZmqTransport: all its sockets, and the turns in which they are used. One turn: read, deliver what is due,
// open new connections, hand over what may leave. The I/O thread takes a turn whenever sockets, time or a wake-up ask for
// one; a thread that sends may do the last part of one while the I/O thread sleeps (SendHere).
#ifndef SLIMPS_PROTO_NET_ZMQ_IO_LOOP_H_
#define SLIMPS_PROTO_NET_ZMQ_IO_LOOP_H_

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/thread.h"
#include "proto/net/arrival_queue.h"
#include "proto/net/connections.h"
#include "proto/net/payload_sharing.h"
#include "proto/net/peer_table.h"
#include "proto/net/transport_state.h"
#include "proto/net/zmq_monitor.h"
#include "proto/net/zmq_options.h"
#include "proto/net/zmq_received_parts.h"
#include "proto/net/zmq_socket.h"

namespace slimps {

// SendHere: thread-safe. Run: once, the I/O thread's.
class ZmqIoLoop final {
 public:
  // `bound` are ROUTER sockets that listen already. `state` and `sink` outlive the loop.
  ZmqIoLoop(const ZmqTransportOptions& options, TransportState* state, MessageSink* sink,
            ZmqContext context, std::vector<ZmqSocket> bound);

  // Returns after state->Stop(), when all that was accepted is sent or the linger time is over.
  void Run();
  // Transport::Admit.
  void Admit(PeerId peer);
  // Hands over what is queued, if nobody else is at it; else sees to it that the I/O thread does.
  void SendHere();

 private:
  // One socket: a ROUTER with many peers, or a DEALER with the one that it was made for.
  struct Link {
    ZmqSocket socket;
    int fd = -1;  // readable: something has changed that ZMQ_EVENTS tells
    bool is_router = false;
    bool is_ipc = false;
    PeerTable peers;          // of a ROUTER
    PeerId peer{};            // of a DEALER
    ZmqMonitor monitor = {};  // before the socket it goes
    bool has_events = true;   // the monitor may have
    std::vector<ZmqMonitor::Event> events =
        {};  // taken, to be heeded once all is read that came before them
    // ZMQ_EVENTS as last looked at. Any use of the socket may change them without a word from fd.
    bool unchecked = true;
    bool readable = false;
    bool writable = false;
  };
  // What ZeroMQ holds of ours for one peer. Written by any thread.
  struct Ahead {
    std::atomic<size_t> bytes{0};
    std::atomic<size_t> messages{0};
    std::atomic<bool> watched{false};  // publishes that the I/O thread waits for less
  };
  class AheadToken;
  class TurnLock;
  enum class Held { kNo, kUnwritable, kAhead };
  struct Route {
    Link* link = nullptr;
    std::string routing_id;  // empty for a DEALER
    std::shared_ptr<Ahead> ahead;
    Held held = Held::kNo;
    SteadyTime retry_at;  // of a ROUTER's peer that is unwritable
    // Where strangers are bounded, of a ROUTER's peer: the connection that it came by.
    bool is_stranger = false;
    int fd = -1;
    uint64_t connection = 0;
  };

  // False: the end.
  bool Turn();
  void Sleep();

  void OpenConnections() ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  bool IsAhead(const Route& route) const;
  void ReleaseHeld(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void SendControls(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void SendReady(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void HandOver(Outgoing message, SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  SendResult SendFrame(Route* route, const Outgoing& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void HoldUnwritable(PeerId peer, Route* route, SteadyTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void HoldIfAhead(PeerId peer, Route* route) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void DropPeer(PeerId peer, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void ReportUndeliverable(PeerId peer, size_t messages, const absl::Status& why);

  // True: a turn has something to do already.
  bool CheckEvents() ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  bool IsHeldUnwritable(PeerId peer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  SteadyTime NextWake() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void ReceiveReady() ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  bool ReceiveOne(Link* link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  PeerId PeerOf(Link* link, const ZmqPart& routing_id, int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void WatchConnections(Link* link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void TakeEvents(Link* link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void HeedEvents(Link* link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  uint64_t ConnectionNumber(Link* link, int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  // Closes what strangers have too much of.
  void CloseExcessive(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void CloseStranger(PeerId peer, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  // Whether it is one whose message of so many bytes is not even looked at.
  bool SaysTooMuch(PeerId from, size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void TakeParts(const Link& link, PeerId from, ReceivedParts parts, size_t parts_too_many)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  // Adds what was borrowed to `bytes`.
  absl::StatusOr<Message> ParseParts(const Link& link, PeerId from, ReceivedParts parts,
                                     size_t* bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void ReportBadFrame(PeerId from, const absl::Status& why);
  void DeliverDue(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  bool Finished(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void Close(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);

  const ZmqTransportOptions options_;
  TransportState* const state_;  // the transport's
  MessageSink* const sink_;      // the transport's user's

  Mutex turn_;
  // Who holds turn_: read to find out whether it is oneself, who must not even try to lock it.
  std::atomic<Thread::Id> in_turn_{};
  ZmqContext context_ ABSL_GUARDED_BY(turn_);     // before the sockets: it goes after them
  std::list<Link> links_ ABSL_GUARDED_BY(turn_);  // a list, for Routes point into it
  std::unordered_map<PeerId, Route> routes_ ABSL_GUARDED_BY(turn_);
  std::set<PeerId> held_ ABSL_GUARDED_BY(turn_);
  ArrivalQueue arrivals_ ABSL_GUARDED_BY(turn_);
  Connections connections_ ABSL_GUARDED_BY(turn_);
  // When strangers are looked at again.
  SteadyTime next_strangers_ ABSL_GUARDED_BY(turn_) = SteadyTime::InfiniteFuture();
  PayloadSharing sharing_ ABSL_GUARDED_BY(turn_);
  bool more_to_send_ ABSL_GUARDED_BY(turn_) = false;
  SteadyTime stop_by_ ABSL_GUARDED_BY(turn_) = SteadyTime::InfiniteFuture();
  // When stopping: what is lent is waited for till then.
  SteadyTime returns_by_ ABSL_GUARDED_BY(turn_) = SteadyTime::InfiniteFuture();

  // The I/O thread's: what it sleeps on, those of links_ in their order, then of ended processes.
  std::vector<pollfd> fds_;
  SteadyTime sleep_until_;
  SteadyTime slept_at_ = SteadyTime::InfinitePast();  // fds_ tell of all that had arrived by then
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_IO_LOOP_H_
