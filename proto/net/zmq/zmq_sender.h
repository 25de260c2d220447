// SPDX-License-Identifier: Apache-2.0
// Hands over to ZeroMQ what may leave: the messages of the send queue, best first, with payloads
// lent as far as possible, and what is to be said about lent payloads.
//
//   sender.SendControls(now);
//   sender.SendReady(now);
#ifndef SLIMPS_PROTO_NET_ZMQ_ZMQ_SENDER_H_
#define SLIMPS_PROTO_NET_ZMQ_ZMQ_SENDER_H_

#include "proto/base/clock.h"
#include "proto/net/queue/send_queue.h"
#include "proto/net/queue/transport_state.h"
#include "proto/net/shared/payload_sharing.h"
#include "proto/net/transport.h"
#include "proto/net/zmq/zmq_peers.h"
#include "proto/net/zmq/zmq_socket.h"

namespace slimps {

// Thread-compatible: used by one turn of the I/O loop at a time. Owned by the loop.
class ZmqSender final {
 public:
  // What the pointers point to outlives this.
  ZmqSender(TransportState* state, MessageSink* sink, PayloadSharing* sharing, ZmqPeers* peers)
      : state_(state), sink_(sink), sharing_(sharing), peers_(peers) {}

  // Sends what PayloadSharing has to say to peers that can take it.
  void SendControls(SteadyTime now);

  // Sends messages until none may leave now, or until it is the turn of the sockets' other work.
  void SendReady(SteadyTime now);

  // True if the last SendReady may have left messages that could leave.
  bool more_to_send() const { return more_to_send_; }

 private:
  void HandOver(Outgoing message, SteadyTime now);
  SendResult SendFrame(ZmqRoute* route, const Outgoing& message);

  TransportState* const state_;
  MessageSink* const sink_;
  PayloadSharing* const sharing_;
  ZmqPeers* const peers_;
  bool more_to_send_ = false;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_ZMQ_SENDER_H_
