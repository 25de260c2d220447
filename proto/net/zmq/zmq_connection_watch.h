// SPDX-License-Identifier: Apache-2.0
// Follows the connections of all sockets as they come and go, and closes those of strangers that
// exceed their bounds (StrangerLimits).
//
//   watch.HeedEvents(link);                               // the link was read empty
//   if (watch.SaysTooMuch(peer, bytes)) watch.CloseStranger(peer, "sent ...");
//   watch.CloseExcessive(now);                            // again at watch.NextLook()
#ifndef SLIMPS_PROTO_NET_ZMQ_ZMQ_CONNECTION_WATCH_H_
#define SLIMPS_PROTO_NET_ZMQ_ZMQ_CONNECTION_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "proto/base/clock.h"
#include "proto/net/queue/transport_state.h"
#include "proto/net/transport.h"
#include "proto/net/zmq/connections.h"
#include "proto/net/zmq/zmq_link.h"
#include "proto/net/zmq/zmq_options.h"
#include "proto/net/zmq/zmq_peers.h"

namespace slimps {

// Thread-compatible: used by one turn of the I/O loop at a time. Owned by the loop.
class ZmqConnectionWatch final {
 public:
  // What the pointers point to outlives this.
  ZmqConnectionWatch(const ZmqTransportOptions* options, TransportState* state, MessageSink* sink,
                     ZmqPeers* peers);

  // Handles the events that were taken from the monitor. ZeroMQ reports the end of a connection
  // only after it has handed over all that came on it.
  // REQUIRES: the socket was read empty, or a message of a new connection has come out of it.
  void HeedEvents(ZmqLink* link);

  // Takes and handles the events of a ROUTER that has handed over a message of a new connection.
  void CatchUp(ZmqLink* link);

  // Returns the number of the connection; 0 if connections are not told apart.
  uint64_t NumberOf(ZmqLink* link, int fd);

  // Counts a message that came out of a ROUTER. `bytes` include ZeroMQ's framing.
  void Received(int fd, PeerId from, size_t bytes);

  // Lifts the strangers' bounds from the peer.
  void Admit(PeerId peer);

  // True if `from` is a stranger and may not send a message of this many bytes.
  bool SaysTooMuch(PeerId from, size_t bytes) const;

  // Closes the connection of the peer. `why` ends the sentence "a stranger that".
  void CloseStranger(PeerId peer, const std::string& why);

  // Closes connections of strangers that exceed their bounds.
  void CloseExcessive(SteadyTime now);

  // Returns when to look at strangers' connections again.
  SteadyTime NextLook() const { return next_look_; }

 private:
  void Close(int fd, PeerId peer, const std::string& why);

  const ZmqTransportOptions& options_;
  TransportState* const state_;
  MessageSink* const sink_;
  ZmqPeers* const peers_;
  Connections connections_;
  SteadyTime next_look_ = SteadyTime::InfiniteFuture();
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_ZMQ_CONNECTION_WATCH_H_
