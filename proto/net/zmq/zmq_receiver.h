// SPDX-License-Identifier: Apache-2.0
// Takes messages from the sockets to the sink: reads their parts, finds out who sent them, borrows
// the payloads that came by reference, parses, and delivers when the emulated link has carried
// them.
//
//   receiver.ReceiveReady();
//   receiver.DeliverDue(now);    // again at receiver.NextWake()
#ifndef SLIMPS_PROTO_NET_ZMQ_ZMQ_RECEIVER_H_
#define SLIMPS_PROTO_NET_ZMQ_ZMQ_RECEIVER_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/net/queue/arrival_queue.h"
#include "proto/net/queue/transport_state.h"
#include "proto/net/shared/payload_sharing.h"
#include "proto/net/transport.h"
#include "proto/net/zmq/zmq_connection_watch.h"
#include "proto/net/zmq/zmq_link.h"
#include "proto/net/zmq/zmq_options.h"
#include "proto/net/zmq/zmq_peers.h"
#include "proto/net/zmq/zmq_received_parts.h"
#include "proto/net/zmq/zmq_socket.h"

namespace slimps {

// Thread-compatible: used by one turn of the I/O loop at a time. Owned by the loop. Only the turns
// of the I/O thread receive and deliver.
class ZmqReceiver final {
 public:
  // What the pointers point to outlives this.
  ZmqReceiver(const ZmqTransportOptions* options, TransportState* state, MessageSink* sink,
              PayloadSharing* sharing, ZmqPeers* peers, ZmqConnectionWatch* watch);

  // Reads the sockets that are readable, each at most so far that the others get their turn.
  void ReceiveReady();

  // Gives the sink what the emulated link has carried.
  void DeliverDue(SteadyTime now);

  // True if the sockets are not read, because too much is on the emulated link.
  bool IsFull() const { return arrivals_.IsFull(); }

  // Returns when DeliverDue has something.
  SteadyTime NextWake() const { return arrivals_.NextWake(); }

 private:
  bool ReceiveOne(ZmqLink* link);
  PeerId PeerOf(ZmqLink* link, const ZmqPart& routing_id, int fd, const std::string& user_id);
  void TakeParts(const ZmqLink& link, PeerId from, const std::string& user_id, ReceivedParts parts,
                 size_t parts_too_many);
  void TakeControl(PeerId from, const ZmqPart& part);
  // Adds the size of borrowed payloads to `bytes`.
  absl::StatusOr<Message> ParseParts(const ZmqLink& link, PeerId from, ReceivedParts parts,
                                     size_t* bytes);

  const ZmqTransportOptions& options_;
  TransportState* const state_;
  MessageSink* const sink_;
  PayloadSharing* const sharing_;
  ZmqPeers* const peers_;
  ZmqConnectionWatch* const watch_;
  ArrivalQueue arrivals_;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_ZMQ_RECEIVER_H_
