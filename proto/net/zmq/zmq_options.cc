// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/zmq_options.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

int Milliseconds(absl::Duration duration) {
  const int64_t count = absl::ToInt64Milliseconds(duration);
  return static_cast<int>(std::clamp<int64_t>(count, 0, std::numeric_limits<int>::max()));
}

absl::Status SetLiveness(void* socket, const ZmqTransportOptions& options) {
  const bool emulated = options.emulate_link_bytes_per_second > 0 ||
                        options.emulate_link_latency > absl::ZeroDuration();
  if (!emulated && options.heartbeat_interval > absl::ZeroDuration()) {
    SLIMPS_RETURN_IF_ERROR(SetSocketOption(
        socket, ZMQ_HEARTBEAT_IVL, Milliseconds(options.heartbeat_interval), "heartbeat interval"));
    SLIMPS_RETURN_IF_ERROR(SetSocketOption(socket, ZMQ_HEARTBEAT_TIMEOUT,
                                           Milliseconds(options.heartbeat_timeout),
                                           "heartbeat timeout"));
  }
  SLIMPS_RETURN_IF_ERROR(SetSocketOption(socket, ZMQ_TCP_KEEPALIVE, 1, "TCP keepalive"));
  SLIMPS_RETURN_IF_ERROR(SetSocketOption(
      socket, ZMQ_TCP_KEEPALIVE_IDLE,
      std::max(1, static_cast<int>(absl::ToInt64Seconds(options.tcp_keepalive_idle))),
      "TCP keepalive idle time"));
  SLIMPS_RETURN_IF_ERROR(SetSocketOption(socket, ZMQ_CONNECT_TIMEOUT,
                                         Milliseconds(options.connect_timeout), "connect timeout"));
  SLIMPS_RETURN_IF_ERROR(SetSocketOption(
      socket, ZMQ_HANDSHAKE_IVL, Milliseconds(options.handshake_timeout), "handshake timeout"));
  SLIMPS_RETURN_IF_ERROR(SetSocketOption(
      socket, ZMQ_RECONNECT_IVL, Milliseconds(options.reconnect_interval), "reconnect interval"));
  return SetSocketOption(socket, ZMQ_RECONNECT_IVL_MAX,
                         Milliseconds(options.reconnect_interval_max),
                         "longest reconnect interval");
}

absl::Status SetBounds(void* socket, const ZmqTransportOptions& options) {
  SLIMPS_RETURN_IF_ERROR(SetSocketOption(socket, ZMQ_MAXMSGSIZE,
                                         static_cast<int64_t>(options.limits.max_message_bytes),
                                         "maximum frame size"));
  SLIMPS_RETURN_IF_ERROR(
      SetSocketOption(socket, ZMQ_SNDHWM, options.send_high_water_mark, "send mark"));
  SLIMPS_RETURN_IF_ERROR(
      SetSocketOption(socket, ZMQ_RCVHWM, options.receive_high_water_mark, "receive mark"));
  SLIMPS_RETURN_IF_ERROR(
      SetSocketOption(socket, ZMQ_SNDBUF, options.socket_send_buffer_bytes, "send buffer"));
  SLIMPS_RETURN_IF_ERROR(
      SetSocketOption(socket, ZMQ_RCVBUF, options.socket_receive_buffer_bytes, "receive buffer"));
  SLIMPS_RETURN_IF_ERROR(
      SetSocketOption(socket, ZMQ_BACKLOG, options.listen_backlog, "listen backlog"));
  // The transport sets what is left of the linger time when it stops.
  return SetSocketOption(socket, ZMQ_LINGER, 0, "linger");
}

}  // namespace

absl::StatusOr<ZmqSocket> OpenSocket(void* context, int type, const ZmqTransportOptions& options) {
  ZmqSocket socket(zmq_socket(context, type));
  if (socket == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("ZeroMQ gives no socket: ", zmq_strerror(zmq_errno())));
  }
  SLIMPS_RETURN_IF_ERROR(SetBounds(socket.get(), options));
  SLIMPS_RETURN_IF_ERROR(SetLiveness(socket.get(), options));
  SLIMPS_RETURN_IF_ERROR(SetSocketOption(socket.get(), ZMQ_IPV6, 0, "IPv6"));
  if (type == ZMQ_ROUTER) {
    // Without it a ROUTER silently drops what it cannot route.
    SLIMPS_RETURN_IF_ERROR(
        SetSocketOption(socket.get(), ZMQ_ROUTER_MANDATORY, 1, "mandatory routing"));
  } else {
    // Until there is a connection, messages wait in our queue, where priorities and bounds apply.
    SLIMPS_RETURN_IF_ERROR(SetSocketOption(socket.get(), ZMQ_IMMEDIATE, 1, "immediate"));
  }
  return socket;
}

}  // namespace slimps
