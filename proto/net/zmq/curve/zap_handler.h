// SPDX-License-Identifier: Apache-2.0
// Answers ZeroMQ's question, for each client of a CURVE socket, whether its key may connect (ZAP,
// ZeroMQ's RFC 27). ZeroMQ then attaches the answer's User-Id to each message of the connection.
//
//   ZapHandler handler(allowed);                        // destroyed after the context has ended
//   SLIMPS_RETURN_IF_ERROR(handler.Start(context));     // before a CURVE socket of it is bound
//   allowed->Close();                                   // before the context ends
#ifndef SLIMPS_PROTO_NET_ZMQ_CURVE_ZAP_HANDLER_H_
#define SLIMPS_PROTO_NET_ZMQ_CURVE_ZAP_HANDLER_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "proto/base/thread.h"
#include "proto/net/identity/allowed_keys.h"
#include "proto/net/zmq/zmq_socket.h"

namespace slimps {

// Has a thread of its own, so that no sink that is slow or waits can hold up a handshake. The
// thread ends with the context. While no keys are known, handshakes wait for them.
class ZapHandler final {
 public:
  // REQUIRES: `allowed` is not null.
  explicit ZapHandler(std::shared_ptr<AllowedKeys> allowed) : allowed_(std::move(allowed)) {}

  // REQUIRES: the context has ended.
  ~ZapHandler();
  ZapHandler(const ZapHandler&) = delete;
  ZapHandler& operator=(const ZapHandler&) = delete;

  // Begins to answer for the sockets of `context`. Call it once.
  // ResourceExhausted: no socket or thread is left, or the context has a handler.
  [[nodiscard]] absl::Status Start(void* context);

 private:
  void Run(ZmqSocket socket) const;

  const std::shared_ptr<AllowedKeys> allowed_;
  Thread thread_;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_CURVE_ZAP_HANDLER_H_
