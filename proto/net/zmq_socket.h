// ZeroMQ's C API with owners and Statuses: context, socket, received part. The only package that
// includes zmq.h is this one, and no file of it throws.
#ifndef SLIMPS_PROTO_NET_ZMQ_SOCKET_H_
#define SLIMPS_PROTO_NET_ZMQ_SOCKET_H_

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
// Destroying it waits until its sockets' linger times are over. Thread-safe.
using ZmqContext = std::unique_ptr<void, ZmqContextDeleter>;

struct ZmqSocketDeleter {
  void operator()(void* socket) const { zmq_close(socket); }
};
// Thread-compatible: a socket moves between threads only across a full fence (here: the lock of ZmqIoLoop's turns).
using ZmqSocket = std::unique_ptr<void, ZmqSocketDeleter>;

// One received part; its bytes are ZeroMQ's own memory. Thread-compatible, and never moved: the
// bytes of small parts lie in the object itself.
class ZmqPart final {
 public:
  ZmqPart() { zmq_msg_init(&message_); }
  ~ZmqPart() { zmq_msg_close(&message_); }
  ZmqPart(const ZmqPart&) = delete;
  ZmqPart& operator=(const ZmqPart&) = delete;

  // False: nothing there.
  bool Receive(void* socket);
  // The descriptor of the connection that it came by; -1: by none that has one.
  int source_fd() const { return zmq_msg_get(&message_, ZMQ_SRCFD); }
  bool more() const { return zmq_msg_more(&message_) != 0; }
  std::span<const std::byte> bytes() const {
    zmq_msg_t* message = const_cast<zmq_msg_t*>(&message_);
    return {static_cast<const std::byte*>(zmq_msg_data(message)), zmq_msg_size(message)};
  }

 private:
  zmq_msg_t message_;
};

// A received part as a Payload aligned for floats: shared where it lies if it is large and aligned,
// else copied. (A small part would pin ZeroMQ's whole receive buffer.)
[[nodiscard]] Payload ToPayload(std::shared_ptr<ZmqPart> part);

// `what` names the option in the error.
[[nodiscard]] absl::Status SetSocketOption(void* socket, int option, int value, const char* what);
[[nodiscard]] absl::Status SetSocketOption(void* socket, int option, int64_t value,
                                           const char* what);

// The address that a socket was last bound or connected to; "" if none.
[[nodiscard]] std::string LastEndpoint(void* socket);

// The descriptor that becomes readable when ZMQ_EVENTS of the socket may have changed.
[[nodiscard]] int EventFd(void* socket);

// ZMQ_EVENTS: whether the socket can be read from and written to.
[[nodiscard]] int Events(void* socket);

enum class SendResult {
  kSent,
  kWouldBlock,  // nothing was taken; the same message may be tried again
  kNoRoute,     // the peer is gone
  kLost,        // the peer went away in the middle; no whole frame of it arrives
};

// Sends `routing_id` (when not empty) and all parts of one message, without copying payloads. Each
// part and `token` are released when ZeroMQ is done with it, on any thread.
[[nodiscard]] SendResult SendParts(void* socket, const std::string& routing_id,
                                   std::span<const Payload> parts,
                                   const std::shared_ptr<void>& token);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_SOCKET_H_
