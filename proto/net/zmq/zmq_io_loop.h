// SPDX-License-Identifier: Apache-2.0
// The I/O of a ZmqTransport: all its sockets, and the turns in which they are used. A turn reads,
// delivers what is due, opens new connections, and hands over what may leave. The I/O thread takes
// a turn when sockets, time or a wake-up ask for one. A thread that sends may do the last part of a
// turn while the I/O thread sleeps (SendHere).
//
//   ZmqIoLoop loop(options, &state, sink, std::move(context), std::move(bound));
//   Thread io_thread("slimps-io", [&loop] { loop.Run(); });
//   ... any thread:   state.Queue(...);  loop.SendHere();
#ifndef SLIMPS_PROTO_NET_ZMQ_ZMQ_IO_LOOP_H_
#define SLIMPS_PROTO_NET_ZMQ_ZMQ_IO_LOOP_H_

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
#include "proto/net/queue/arrival_queue.h"
#include "proto/net/queue/transport_state.h"
#include "proto/net/shared/payload_sharing.h"
#include "proto/net/zmq/connections.h"
#include "proto/net/zmq/peer_table.h"
#include "proto/net/zmq/zmq_monitor.h"
#include "proto/net/zmq/zmq_options.h"
#include "proto/net/zmq/zmq_received_parts.h"
#include "proto/net/zmq/zmq_socket.h"

namespace slimps {

// SendHere and Admit are thread-safe. Run is called once, by the I/O thread.
class ZmqIoLoop final {
 public:
  // `bound` are ROUTER sockets that listen already. `state` and `sink` outlive the loop.
  ZmqIoLoop(const ZmqTransportOptions& options, TransportState* state, MessageSink* sink,
            ZmqContext context, std::vector<ZmqSocket> bound);

  // Takes turns until state->Stop() was called and all that was accepted is sent, or the linger
  // time is over.
  void Run();

  // Transport::Admit. Does nothing outside a turn of the calling thread.
  void Admit(PeerId peer);

  // Hands over what is queued, unless another thread has the turn. In that case, and if work
  // remains, it wakes the I/O thread.
  void SendHere();

 private:
  // One socket: a ROUTER with many peers, or a DEALER with the one peer it was made for.
  struct Link {
    ZmqSocket socket;
    int fd = -1;  // readable when ZMQ_EVENTS may have changed
    bool is_router = false;
    bool is_ipc = false;
    PeerTable peers;          // a ROUTER's
    PeerId peer{};            // a DEALER's
    ZmqMonitor monitor = {};  // after the socket, so that it is destroyed first
    bool has_events = true;   // the monitor may have events
    // Events taken from the monitor, not handled yet. They wait until all that came before them is
    // read from the socket.
    std::vector<ZmqMonitor::Event> events = {};
    // ZMQ_EVENTS as last read. Any use of the socket may change them without a signal on fd;
    // `unchecked` says that they must be read again.
    bool unchecked = true;
    bool readable = false;
    bool writable = false;
  };
  // What ZeroMQ holds of ours for one peer. Any thread writes it: ZeroMQ releases parts on any
  // thread.
  struct Ahead {
    std::atomic<size_t> bytes{0};
    std::atomic<size_t> messages{0};
    std::atomic<bool> watched{false};  // publishes that the I/O thread waits for them to fall
  };
  class AheadToken;
  class TurnLock;
  enum class Held { kNo, kUnwritable, kAhead };
  struct Route {
    Link* link = nullptr;
    std::string routing_id;  // empty for a DEALER
    std::shared_ptr<Ahead> ahead;
    Held held = Held::kNo;
    SteadyTime retry_at;  // when to try a ROUTER's unwritable peer again
    // For a ROUTER's peer, if strangers are bounded: the connection on which it came.
    bool is_stranger = false;
    int fd = -1;
    uint64_t connection = 0;
  };

  // Takes one turn. Returns false when the loop is to end.
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

  // Reads ZMQ_EVENTS of the sockets that were used. Returns true if another turn has work already.
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
  // Closes connections of strangers that exceed their bounds.
  void CloseExcessive(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void CloseStranger(PeerId peer, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  // True if `from` is a stranger and may not send a message of this many bytes.
  bool SaysTooMuch(PeerId from, size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void TakeParts(const Link& link, PeerId from, ReceivedParts parts, size_t parts_too_many)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  // Adds the size of borrowed payloads to `bytes`.
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
  // The thread that holds turn_. A thread reads it to learn if it is that thread itself, which must
  // not even try to lock turn_ again.
  std::atomic<Thread::Id> in_turn_{};
  ZmqContext context_ ABSL_GUARDED_BY(turn_);     // before the sockets: it is destroyed after them
  std::list<Link> links_ ABSL_GUARDED_BY(turn_);  // a list, because Routes point into it
  std::unordered_map<PeerId, Route> routes_ ABSL_GUARDED_BY(turn_);
  std::set<PeerId> held_ ABSL_GUARDED_BY(turn_);
  ArrivalQueue arrivals_ ABSL_GUARDED_BY(turn_);
  Connections connections_ ABSL_GUARDED_BY(turn_);
  // When to look at strangers' connections again.
  SteadyTime next_strangers_ ABSL_GUARDED_BY(turn_) = SteadyTime::InfiniteFuture();
  PayloadSharing sharing_ ABSL_GUARDED_BY(turn_);
  bool more_to_send_ ABSL_GUARDED_BY(turn_) = false;
  SteadyTime stop_by_ ABSL_GUARDED_BY(turn_) = SteadyTime::InfiniteFuture();
  // When a stopping loop stops waiting for the return of what is lent.
  SteadyTime returns_by_ ABSL_GUARDED_BY(turn_) = SteadyTime::InfiniteFuture();

  // Owned by the I/O thread. What it sleeps on: the links_ in order, the watch on processes if
  // sharing is on, then the links' monitors in order.
  std::vector<pollfd> fds_;
  SteadyTime sleep_until_;
  // All that had arrived by then shows in fds_.
  SteadyTime slept_at_ = SteadyTime::InfinitePast();
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_ZMQ_IO_LOOP_H_
