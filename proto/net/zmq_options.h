// How ZeroMQ's sockets are set. Every default here is on purpose; ZeroMQ's own are mostly
// "unlimited".
#ifndef SLIMPS_PROTO_NET_ZMQ_OPTIONS_H_
#define SLIMPS_PROTO_NET_ZMQ_OPTIONS_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/net/shared_memory.h"
#include "proto/net/transport_options.h"
#include "proto/net/zmq_socket.h"

namespace slimps {

struct ZmqTransportOptions : TransportOptions {
  int io_threads = 1;  // ZeroMQ's own, beneath ours

  // How much may be handed over to ZeroMQ before it has passed it on to the system. Small, for what
  // is handed over can no longer be overtaken by a higher priority; large enough to keep the
  // system's buffers full meanwhile. A message larger than the bytes goes alone.
  size_t max_bytes_ahead_per_peer = size_t{1} << 20;
  size_t max_messages_ahead_per_peer = 64;
  // ZeroMQ's marks count messages. Sending is bounded by the two above; this mark lies well over
  // them.
  int send_high_water_mark = 1000;
  // Times max_message_bytes this bounds what one peer can make us hold before the I/O thread looks
  // at it.
  int receive_high_water_mark = 32;
  int socket_send_buffer_bytes = -1;  // -1: the system tunes it
  int socket_receive_buffer_bytes = -1;
  int listen_backlog = 512;

  // A connection on which nothing, not even a heartbeat, arrived for the timeout is made anew. Off
  // on an emulated link, whose delays would look like a dead peer. Zero: off.
  absl::Duration heartbeat_interval = absl::Seconds(5);
  absl::Duration heartbeat_timeout = absl::Seconds(60);
  absl::Duration tcp_keepalive_idle = absl::Seconds(30);
  absl::Duration connect_timeout = absl::Seconds(5);
  absl::Duration handshake_timeout = absl::Seconds(10);
  // A lost connection is tried again after the first interval, then after twice as long, up to the
  // second.
  absl::Duration reconnect_interval = absl::Milliseconds(50);
  absl::Duration reconnect_interval_max = absl::Seconds(2);

  // Payloads that lie in it pass by reference over ipc, where the other side can read it (payload_sharing.h). Not owned.
  // Null: all payloads travel in-line. ShareMemory (same_host.h) sets it.
  SharedMemory* shared_memory = nullptr;
  size_t min_shared_bytes = size_t{32} << 10;  // smaller ones travel in-line
  // Lent to one process; beyond it payloads travel in-line.
  size_t max_leased_bytes_per_process = size_t{1} << 30;

  // On one bound address; beyond it the peer that was silent the longest is forgotten.
  size_t max_remembered_peers = 4096;
};

// A ROUTER or DEALER with all of the above set. InvalidArgument: ZeroMQ refuses a value.
// ResourceExhausted: no more sockets.
[[nodiscard]] absl::StatusOr<ZmqSocket> OpenSocket(void* context, int type,
                                                   const ZmqTransportOptions& options);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_OPTIONS_H_
