// SPDX-License-Identifier: Apache-2.0
// One socket of a transport and what is known of it between turns: a ROUTER with many peers, or a
// DEALER with the one peer it was made for.
#ifndef SLIMPS_PROTO_NET_ZMQ_ZMQ_LINK_H_
#define SLIMPS_PROTO_NET_ZMQ_ZMQ_LINK_H_

#include <vector>

#include "proto/net/transport.h"
#include "proto/net/zmq/peer_table.h"
#include "proto/net/zmq/zmq_monitor.h"
#include "proto/net/zmq/zmq_socket.h"

namespace slimps {

// Thread-compatible: used by one turn of the I/O loop at a time.
struct ZmqLink {
  // Watches the connections of the socket come and go.
  void Watch(void* context);

  // Moves what the monitor has seen to `events`.
  void TakeEvents();

  // Reads ZMQ_EVENTS if the socket was used since the last call.
  void CheckReadiness();

  ZmqSocket socket;
  int fd = -1;  // readable when ZMQ_EVENTS may have changed
  bool is_router = false;
  bool is_ipc = false;
  bool is_curve = false;    // a ROUTER's: each message has a proven user id
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

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_ZMQ_LINK_H_
