// SPDX-License-Identifier: Apache-2.0
// The turns in which the sockets of a ZmqTransport are used. A turn reads, delivers what is due,
// opens new connections, and hands over what may leave. The I/O thread takes a turn when sockets,
// time or a wake-up ask for one. A thread that sends may do the last part of a turn while the I/O
// thread sleeps (SendHere). The loop owns the parts that do this: ZmqReceiver, ZmqConnectionWatch,
// ZmqPeers, ZmqSender.
//
//   ZmqIoLoop loop(options, &state, sink, std::move(context), std::move(bound));
//   Thread io_thread("slimps-io", [&loop] { loop.Run(); });
//   ... any thread:   state.Queue(...);  loop.SendHere();
#ifndef SLIMPS_PROTO_NET_ZMQ_ZMQ_IO_LOOP_H_
#define SLIMPS_PROTO_NET_ZMQ_ZMQ_IO_LOOP_H_

#include <poll.h>

#include <atomic>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/thread.h"
#include "proto/net/queue/transport_state.h"
#include "proto/net/shared/payload_sharing.h"
#include "proto/net/transport.h"
#include "proto/net/zmq/zmq_connection_watch.h"
#include "proto/net/zmq/zmq_options.h"
#include "proto/net/zmq/zmq_peers.h"
#include "proto/net/zmq/zmq_receiver.h"
#include "proto/net/zmq/zmq_sender.h"
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
  class TurnLock;

  // Takes one turn. Returns false when the loop is to end.
  bool Turn();
  void Sleep();

  // Reads ZMQ_EVENTS of the sockets that were used. Returns true if another turn has work already.
  bool CheckEvents() ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  SteadyTime NextWake() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  bool Finished(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void Close(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);

  const ZmqTransportOptions options_;
  TransportState* const state_;  // the transport's
  MessageSink* const sink_;      // the transport's user's

  Mutex turn_;
  // The thread that holds turn_. A thread reads it to learn if it is that thread itself, which must
  // not even try to lock turn_ again.
  std::atomic<Thread::Id> in_turn_{};
  PayloadSharing sharing_ ABSL_GUARDED_BY(turn_);
  ZmqPeers peers_ ABSL_GUARDED_BY(turn_);
  ZmqConnectionWatch watch_ ABSL_GUARDED_BY(turn_);
  ZmqReceiver receiver_ ABSL_GUARDED_BY(turn_);
  ZmqSender sender_ ABSL_GUARDED_BY(turn_);
  SteadyTime stop_by_ ABSL_GUARDED_BY(turn_) = SteadyTime::InfiniteFuture();
  // When a stopping loop stops waiting for the return of what is lent.
  SteadyTime returns_by_ ABSL_GUARDED_BY(turn_) = SteadyTime::InfiniteFuture();

  // Owned by the I/O thread. What it sleeps on: the links in order, the watch on processes if
  // sharing is on, then the links' monitors in order.
  std::vector<pollfd> fds_;
  SteadyTime sleep_until_;
  // All that had arrived by then shows in fds_.
  SteadyTime slept_at_ = SteadyTime::InfinitePast();
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_ZMQ_IO_LOOP_H_
