// SPDX-License-Identifier: Apache-2.0
// Moves messages between processes. It knows addresses of nodes and bytes, but nothing of tensors.
//
//   ZmqTransport transport(options);                     // or InProcessTransport
//   auto address = transport.Bind("tcp://127.0.0.1:0");  // servers and the scheduler; before Start
//   transport.Start(&sink);
//   auto server = transport.Connect("tcp://127.0.0.1:4711");
//   transport.Send(*server, std::move(message), {.priority = 3});
//
// Delivery is at most once and may fail silently when a peer dies. The sender is responsible for
// retries. Messages of equal priority to one peer arrive in the order of their Send calls.
#ifndef SLIMPS_PROTO_NET_TRANSPORT_H_
#define SLIMPS_PROTO_NET_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/frame.h"

namespace slimps {

// A connection, as this process numbers it: one for each Connect, and one for each remote socket
// that has written to a bound one. A transport never reuses a number.
enum class PeerId : uint64_t {};

// Receives what arrives, on the transport's I/O thread. OnUndeliverable may also run on a thread
// that calls Send with SendOptions::may_hand_over_here. A handler must not block. It may call Send.
class MessageSink {
 public:
  virtual ~MessageSink() = default;

  // Receives a message. The frame has been parsed and checked against proto/limits.h, and the
  // payload hashes were verified.
  virtual void OnMessage(PeerId from, Message message) = 0;

  // Reports bytes from `from` that are no valid frame. They were counted and dropped.
  virtual void OnBadFrame(PeerId from, const absl::Status& why) = 0;

  // Reports that a message could not be handed over to `to` (the peer is gone, so there is no
  // route).
  virtual void OnUndeliverable(PeerId to, const absl::Status& why) = 0;

  // Reports that the connection to `to`, one made by Connect, broke and is being made again.
  // Messages that were handed over before may be lost, and their answers too. Also reports that an
  // admitted one was closed from which messages came, where strangers are told apart.
  virtual void OnConnectionLost(PeerId /*to*/) {}

  // Reports that memory ran out on the I/O thread. Called while `error` is being handled. A sink
  // that cannot go on without its transport (a daemon's) rethrows, as here, and the process ends
  // (proto/base/out_of_memory.h).
  virtual void OnOutOfMemory(const std::bad_alloc& error) {
    (void)error;
    throw;
  }
};

struct SendOptions {
  int64_t priority = 0;  // higher leaves first
  // Called when the message is handed over, before any answer can arrive, mostly on the I/O thread.
  // The argument is when the first byte left the queue; on an emulated link, when the link began to
  // carry it. Never called for a message that is dropped.
  std::function<void(SteadyTime)> on_handed_over;
  // True lets Send hand over what is queued itself while the I/O thread sleeps. This suits a caller
  // that will wait for the answer. on_handed_over and OnUndeliverable may then run inside Send, so
  // the caller must hold no lock that they take.
  bool may_hand_over_here = false;
};

struct TransportStats {
  uint64_t messages_sent = 0;  // handed over to the network
  uint64_t bytes_sent = 0;
  uint64_t messages_received = 0;
  uint64_t bytes_received = 0;
  // The part of the bytes above that passed through shared memory.
  uint64_t bytes_lent = 0;
  uint64_t bytes_borrowed = 0;
  // How often a peer turned out to be unable to take payloads through shared memory. It then gets
  // them in-line. And why, the last time.
  uint64_t sharing_refusals = 0;
  std::string last_sharing_refusal;
  uint64_t bad_frames = 0;
  uint64_t undeliverable = 0;
};

// Thread-safe. Start and Stop are called once each. Stop sends what was accepted (for at most the
// linger time) and gives processes that borrowed shared memory half a second to return it. Then it
// joins the I/O thread. After that the sink is no longer called.
class Transport {
 public:
  virtual ~Transport() = default;

  // Listens on `address`; port 0 picks a free port. Returns the address to connect to.
  // REQUIRES: Start was not called.
  // InvalidArgument: `address` is no address.
  // Unavailable: the address is in use; the message says which.
  [[nodiscard]] virtual absl::StatusOr<std::string> Bind(std::string_view address) = 0;

  // Starts the I/O thread, which delivers to `sink`.
  // REQUIRES: `sink` lives until Stop has returned.
  [[nodiscard]] virtual absl::Status Start(MessageSink* sink) = 0;

  // Returns at once. The connection is made, and made again if lost, in the background.
  [[nodiscard]] virtual absl::StatusOr<PeerId> Connect(std::string_view address) = 0;

  // Gives up a connection that Connect made. What waits for it is dropped without a report, and it
  // is not made again. Send to it returns NotFound soon.
  virtual void Disconnect(PeerId /*peer*/) {}

  // Checks and queues the message.
  // ResourceExhausted: the queue to this peer is full.
  // InvalidArgument: the message is over a limit.
  // FailedPrecondition: the transport is stopped.
  // NotFound: there is no such peer.
  [[nodiscard]] virtual absl::Status Send(PeerId to, Message message, SendOptions options) = 0;

  virtual void Stop() = 0;

  // Lifts the strangers' bounds (TransportOptions::strangers) from a peer that the sink knows. Does
  // nothing for a peer that is admitted already.
  // REQUIRES: called from within OnMessage.
  virtual void Admit(PeerId /*peer*/) {}

  // Returns a time T: everything that arrived here before T has been handed to the sink. So a peer
  // that the sink has not heard from was really silent until T. After T its messages may be here,
  // waiting for the I/O thread. Liveness is judged by this, not by the present time.
  // Never waits. It asks the I/O thread to look, so a later call returns a later time. Returns
  // InfiniteFuture if this transport has no mailbox. Any thread may call it at any time.
  [[nodiscard]] virtual SteadyTime DeliveredUntil() { return SteadyTime::InfiniteFuture(); }

  // Returns what has gone through so far, payloads and headers. Any thread may call it at any time.
  [[nodiscard]] virtual TransportStats stats() const { return {}; }

  [[nodiscard]] absl::Status Send(PeerId to, Message message) {
    return Send(to, std::move(message), SendOptions{});
  }
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_TRANSPORT_H_
