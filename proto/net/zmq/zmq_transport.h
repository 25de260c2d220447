// SPDX-License-Identifier: Apache-2.0
// Transport over ZeroMQ, for tcp:// and ipc:// addresses. A bound address is a ROUTER socket. A
// connection is a DEALER socket.
//
//   ZmqTransport transport(ZmqTransportOptions{});
//   SLIMPS_ASSIGN_OR_RETURN(std::string address, transport.Bind("tcp://127.0.0.1:0"));
//   SLIMPS_RETURN_IF_ERROR(transport.Start(&sink));
//
// Facts that the interface leaves open:
//  - Payloads leave and arrive without being copied, except small or misaligned ones on arrival
//    (see ToPayload).
//  - A message waits in the queue while the connection is not made, or is lost. A message that
//    ZeroMQ had already taken may be lost.
//  - OnUndeliverable is mostly for peers of bound addresses. For a connection it reports what Stop
//    could not send, a message that broke off while it was sent, and what was queued if no socket
//    could be opened.
//  - Stop waits up to half a second more for payloads that were lent to other processes of this
//    machine. Payloads not returned by then are kept until those processes have ended
//    (orphaned_loans.h).
//  - A remote process that reconnects is a new peer.
//  - With a secret key, tcp connections are encrypted. The other side of Connect is the one whose
//    key the address names, and Message::user_id says with whose key a message came to a bound one.
//  - ZeroMQ itself drops bytes that are not ZMTP. OnBadFrame reports a ZMTP message that is no
//    frame of ours.
#ifndef SLIMPS_PROTO_NET_ZMQ_ZMQ_TRANSPORT_H_
#define SLIMPS_PROTO_NET_ZMQ_ZMQ_TRANSPORT_H_

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/base/thread.h"
#include "proto/net/queue/transport_state.h"
#include "proto/net/transport.h"
#include "proto/net/zmq/zmq_options.h"
#include "proto/net/zmq/zmq_socket.h"

namespace slimps {

class ZapHandler;
class ZmqIoLoop;

// Thread-safe.
class ZmqTransport final : public Transport {
 public:
  explicit ZmqTransport(const ZmqTransportOptions& options);
  ~ZmqTransport() override;  // stops

  using Transport::Send;
  [[nodiscard]] absl::StatusOr<std::string> Bind(std::string_view address) override;
  [[nodiscard]] absl::Status Start(MessageSink* sink) override;
  [[nodiscard]] absl::StatusOr<PeerId> Connect(std::string_view address) override;
  void Disconnect(PeerId peer) override { state_.Disconnect(peer); }
  [[nodiscard]] absl::Status Send(PeerId to, Message message, SendOptions options) override;
  // REQUIRES: not called on the I/O thread.
  void Stop() override;
  void Admit(PeerId peer) override;
  [[nodiscard]] SteadyTime DeliveredUntil() override { return state_.DeliveredUntil(); }
  [[nodiscard]] TransportStats stats() const override;

 private:
  // Makes the bound socket a CURVE server. The first one starts the thread that checks keys.
  absl::Status Secure(void* socket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ZmqTransportOptions options_;
  TransportState state_;

  Mutex mutex_;                                              // guards starting and stopping
  std::unique_ptr<ZapHandler> zap_ ABSL_GUARDED_BY(mutex_);  // before the context, and loop_
  ZmqContext context_ ABSL_GUARDED_BY(mutex_);               // moves to loop_ in Start
  std::vector<ZmqSocket> bound_ ABSL_GUARDED_BY(mutex_);     // moves to loop_ in Start
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<ZmqIoLoop> loop_ ABSL_GUARDED_BY(mutex_);
  std::atomic<ZmqIoLoop*> running_{nullptr};  // publishes loop_ to senders
  Thread io_thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_ZMQ_TRANSPORT_H_
