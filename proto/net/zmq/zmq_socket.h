// SPDX-License-Identifier: Apache-2.0
// Wraps ZeroMQ's C API with owners and Statuses: context, socket, received part. Only this package
// includes zmq.h. Errors are results; the only exception is OutOfMemory
// (proto/base/out_of_memory.h).
//
//   ZmqSocket socket(zmq_socket(context.get(), ZMQ_DEALER));
//   SLIMPS_RETURN_IF_ERROR(SetSocketOption(socket.get(), ZMQ_LINGER, 0, "linger"));
//   SendResult result = SendParts(socket.get(), "", frame, nullptr);
#ifndef SLIMPS_PROTO_NET_ZMQ_ZMQ_SOCKET_H_
#define SLIMPS_PROTO_NET_ZMQ_ZMQ_SOCKET_H_

#include <zmq.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/buffer.h"

namespace slimps {

struct ZmqContextDeleter {
  void operator()(void* context) const { zmq_ctx_term(context); }
};
// Owns a context. Its destruction waits until the linger times of its sockets are over.
// Thread-safe.
using ZmqContext = std::unique_ptr<void, ZmqContextDeleter>;

struct ZmqSocketDeleter {
  void operator()(void* socket) const { zmq_close(socket); }
};
// Owns a socket. Thread-compatible: a socket may move to another thread only across a full fence
// (here the lock of ZmqIoLoop's turns).
using ZmqSocket = std::unique_ptr<void, ZmqSocketDeleter>;

// One received part. Its bytes are ZeroMQ's own memory. It cannot move, because the bytes of a
// small part lie in the object itself. Thread-compatible.
class ZmqPart final {
 public:
  ZmqPart() { zmq_msg_init(&message_); }
  ~ZmqPart() { zmq_msg_close(&message_); }
  ZmqPart(const ZmqPart&) = delete;
  ZmqPart& operator=(const ZmqPart&) = delete;

  // Receives the next part without waiting. Returns false if there is none.
  bool Receive(void* socket);

  // Waits for the next part. Returns false if the socket's context ends first.
  bool Await(void* socket);

  // Returns the descriptor of the connection on which the part came; -1 if it came by none.
  int source_fd() const { return zmq_msg_get(&message_, ZMQ_SRCFD); }
  // Returns whose key the connection was made with, as the ZapHandler named it; "" where no key was
  // asked for. Only on a CURVE connection is it proven: on others the peer may name what it likes.
  std::string user_id() const {
    const char* const name = zmq_msg_gets(&message_, "User-Id");
    return name == nullptr ? "" : name;
  }
  bool more() const { return zmq_msg_more(&message_) != 0; }
  std::span<const std::byte> bytes() const {
    zmq_msg_t* message = const_cast<zmq_msg_t*>(&message_);
    return {static_cast<const std::byte*>(zmq_msg_data(message)), zmq_msg_size(message)};
  }

 private:
  zmq_msg_t message_;
};

// Turns a received part into a Payload aligned for floats. A large, aligned part is shared in
// place. Any other is copied (a small part would pin ZeroMQ's whole receive buffer).
[[nodiscard]] Payload ToPayload(std::shared_ptr<ZmqPart> part);

// Sets a socket option. `what` names the option in the error.
// InvalidArgument: ZeroMQ refuses the value.
[[nodiscard]] absl::Status SetSocketOption(void* socket, int option, int value, const char* what);
[[nodiscard]] absl::Status SetSocketOption(void* socket, int option, int64_t value,
                                           const char* what);

// Returns the address that a socket was last bound or connected to; "" if there is none.
[[nodiscard]] std::string LastEndpoint(void* socket);

// Returns the descriptor that becomes readable when ZMQ_EVENTS of the socket may have changed.
[[nodiscard]] int EventFd(void* socket);

// Returns ZMQ_EVENTS: flags that tell if the socket can be read from and written to.
[[nodiscard]] int Events(void* socket);

enum class SendResult {
  kSent,
  kWouldBlock,  // nothing was taken; the same message may be tried again
  kNoRoute,     // the peer is gone
  kLost,        // the peer went away in mid-message; it receives no whole frame
};

// Sends `routing_id` (unless it is empty) and all parts of one message, without copying payloads.
// ZeroMQ releases each part and `token` when it is done with them, on any thread.
[[nodiscard]] SendResult SendParts(void* socket, const std::string& routing_id,
                                   std::span<const Payload> parts,
                                   const std::shared_ptr<void>& token);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_ZMQ_SOCKET_H_
