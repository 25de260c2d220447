// SPDX-License-Identifier: Apache-2.0
// Knows by which socket each peer of a transport is reached, and which peers cannot take a message
// now. Those are held in the send queue.
//
//   peers.OpenConnections();                          // those that callers asked for
//   const PeerId from = peers.PeerOf(link, {routing_id, fd, connection, user_id});
//   if (ZmqRoute* route = peers.Find(to)) ...         // send; then HoldIfAhead or HoldUnwritable
//   peers.ReleaseHeld(now);
#ifndef SLIMPS_PROTO_NET_ZMQ_ZMQ_PEERS_H_
#define SLIMPS_PROTO_NET_ZMQ_ZMQ_PEERS_H_

#include <cstdint>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/net/queue/transport_state.h"
#include "proto/net/shared/payload_sharing.h"
#include "proto/net/transport.h"
#include "proto/net/zmq/zmq_ahead.h"
#include "proto/net/zmq/zmq_link.h"
#include "proto/net/zmq/zmq_options.h"
#include "proto/net/zmq/zmq_socket.h"

namespace slimps {

// The way to one peer.
struct ZmqRoute {
  enum class Held { kNo, kUnwritable, kAhead };

  ZmqLink* link = nullptr;
  std::string routing_id;  // empty for a DEALER
  std::shared_ptr<ZmqAhead> ahead = std::make_shared<ZmqAhead>();
  Held held = Held::kNo;
  SteadyTime retry_at;  // when to try a ROUTER's unwritable peer again
  // For a ROUTER's peer, if strangers are bounded: the connection on which it came.
  bool is_stranger = false;
  int fd = -1;
  uint64_t connection = 0;
  std::string user_id;  // that of its first message
};

// Thread-compatible: used by one turn of the I/O loop at a time. Owned by the loop.
class ZmqPeers final {
 public:
  // `bound` are ROUTER sockets that listen already. What the pointers point to outlives this.
  ZmqPeers(const ZmqTransportOptions* options, TransportState* state, MessageSink* sink,
           PayloadSharing* sharing, ZmqContext context, std::vector<ZmqSocket> bound);

  // All sockets, those that listen first. Only OpenConnections and Close remove some.
  std::list<ZmqLink>& links() { return links_; }

  // Returns the way to the peer; nullptr if it is gone.
  ZmqRoute* Find(PeerId peer);
  const ZmqRoute* Find(PeerId peer) const;

  // Makes the connections that callers asked for, and closes the sockets of those that they gave up
  // or that were refused. A new one's peer is held until it is writable.
  // REQUIRES: the I/O thread calls, which does not sleep on the sockets then.
  void OpenConnections();

  // What came with a message of a ROUTER.
  struct Origin {
    std::string routing_id;
    int fd = -1;
    uint64_t connection = 0;
    std::string user_id;
  };

  // Returns the peer behind the routing id; a new one if the routing id is new, or comes by another
  // connection or with another user id than before. The peer that had it is then dropped.
  PeerId PeerOf(ZmqLink* link, const Origin& origin);

  // Forgets the peer. Reports what was queued for it as undeliverable.
  void Drop(PeerId peer, const absl::Status& why);

  // Holds a peer that took nothing.
  void HoldUnwritable(PeerId peer, ZmqRoute* route, SteadyTime now);

  // Holds the peer if ZeroMQ holds enough for it.
  void HoldIfAhead(PeerId peer, ZmqRoute* route);

  bool IsHeldUnwritable(PeerId peer) const;

  // Releases the peers that may be able to take a message again.
  void ReleaseHeld(SteadyTime now);

  // Returns when ReleaseHeld will release a peer of a ROUTER.
  SteadyTime NextRetry() const;

  // Closes all sockets. What ZeroMQ still holds leaves within `linger`.
  void Close(absl::Duration linger);

 private:
  absl::StatusOr<ZmqSocket> Connect(const std::string& address);
  // Forgets a connection that the caller gave up.
  void Disconnect(PeerId peer);
  // Forgets the peer's route.
  void Erase(PeerId peer);
  bool IsAhead(const ZmqRoute& route) const;

  const ZmqTransportOptions& options_;
  TransportState* const state_;
  MessageSink* const sink_;
  PayloadSharing* const sharing_;
  ZmqContext context_;        // before the sockets: it is destroyed after them
  std::list<ZmqLink> links_;  // a list, because routes point into it
  std::unordered_map<PeerId, ZmqRoute> routes_;
  std::set<PeerId> held_;
  bool has_unused_links_ = false;  // of connections whose route is erased
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_ZMQ_PEERS_H_
