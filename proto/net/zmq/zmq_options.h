// SPDX-License-Identifier: Apache-2.0
// The settings of ZeroMQ's sockets. Each default here is deliberate, because most of ZeroMQ's own
// are "unlimited".
//
//   ZmqTransportOptions options;
//   options.max_bytes_ahead_per_peer = size_t{256} << 10;
//   SLIMPS_ASSIGN_OR_RETURN(ZmqSocket socket, OpenSocket(context, ZMQ_DEALER, options));
#ifndef SLIMPS_PROTO_NET_ZMQ_ZMQ_OPTIONS_H_
#define SLIMPS_PROTO_NET_ZMQ_ZMQ_OPTIONS_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/net/identity/allowed_keys.h"
#include "proto/net/shared/shared_memory.h"
#include "proto/net/transport_options.h"
#include "proto/net/zmq/zmq_socket.h"

namespace slimps {

struct ZmqTransportOptions : TransportOptions {
  int io_threads = 1;  // ZeroMQ's own threads, beneath ours
  // How many connections may be open at a time: one to each other node of the largest job, and some
  // that are made while ZeroMQ still closes others.
  int max_connections = 4096 + 256;

  // How much ZeroMQ may hold that it has not yet passed on to the system. It is small, because a
  // higher priority can no longer overtake what ZeroMQ holds. It is large enough to keep the
  // system's buffers full meanwhile. A message larger than the bytes goes alone.
  size_t max_bytes_ahead_per_peer = size_t{1} << 20;
  size_t max_messages_ahead_per_peer = 64;
  // ZeroMQ's high-water marks count messages. The two bounds above limit sending; this mark lies
  // well above them.
  int send_high_water_mark = 1000;
  // This times max_message_bytes bounds what one peer can make us hold before the I/O thread looks
  // at it.
  int receive_high_water_mark = 32;
  int socket_send_buffer_bytes = -1;  // -1: the system tunes it
  int socket_receive_buffer_bytes = -1;
  int listen_backlog = 512;

  // A connection on which nothing arrived for the timeout, not even a heartbeat, is closed and made
  // again. An emulated link switches heartbeats off, because its delays would look like a dead
  // peer. Zero: off.
  absl::Duration heartbeat_interval = absl::Seconds(5);
  absl::Duration heartbeat_timeout = absl::Seconds(60);
  absl::Duration tcp_keepalive_idle = absl::Seconds(30);
  absl::Duration connect_timeout = absl::Seconds(5);
  absl::Duration handshake_timeout = absl::Seconds(10);
  // A lost connection is tried again after the first interval, then after twice as long each time,
  // up to the second.
  absl::Duration reconnect_interval = absl::Milliseconds(50);
  absl::Duration reconnect_interval_max = absl::Seconds(2);

  // Payloads in this memory pass by reference over ipc if the other side can read it
  // (payload_sharing.h). Not owned. Null: all payloads travel in-line. ShareMemory (same_host.h)
  // sets it.
  SharedMemory* shared_memory = nullptr;
  size_t min_shared_bytes = size_t{32} << 10;  // smaller payloads travel in-line
  // What may be lent to one process at a time. Beyond it payloads travel in-line.
  size_t max_leased_bytes_per_process = size_t{1} << 30;

  // This node's secret key (proto/net/identity). With it every tcp socket speaks CURVE, and none
  // speaks plainly. Empty: none does.
  std::string secret_key;
  // With a secret key: who may connect to a bound tcp address. Stop closes it. Null: this
  // node binds none.
  std::shared_ptr<AllowedKeys> allowed_keys;

  // For each bound address. Beyond it the peer that was silent the longest is forgotten
  // (peer_table.h).
  size_t max_remembered_peers = 4096;
};

// Opens a socket of ZeroMQ's `type`, ZMQ_ROUTER or ZMQ_DEALER, with all of the above set.
// InvalidArgument: ZeroMQ refuses a value.
// ResourceExhausted: ZeroMQ has no more sockets.
[[nodiscard]] absl::StatusOr<ZmqSocket> OpenSocket(void* context, int type,
                                                   const ZmqTransportOptions& options);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_ZMQ_OPTIONS_H_
