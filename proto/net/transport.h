// Moves messages between processes. Knows nodes' addresses and bytes, nothing of tensors.
//
//   ZmqTransport transport(options);                              // or InProcessTransport
//   auto address = transport.Bind("tcp://127.0.0.1:0");           // servers and the scheduler; before Start
//   transport.Start(&sink);
//   auto server = transport.Connect("tcp://127.0.0.1:4711");
//   transport.Send(*server, std::move(message), {.priority = 3});
//
// Delivery is at most once and may fail silently when a peer dies: retries belong to the sender
// (retry_tracker.h). Messages of equal priority to one peer arrive in the order of their Send
// calls.
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

// A connection as this process numbers it: one per Connect, one per remote socket that has written
// to a bound one. The number is never reused within a transport.
enum class PeerId : uint64_t {};

// Receives what arrives, on the transport's I/O thread; OnUndeliverable also on that of a Send that hands over itself
// (SendOptions::may_hand_over_here). A handler must not block; it may call Send.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  // The frame has been parsed and checked against proto/limits.h, and payload hashes were verified.
  virtual void OnMessage(PeerId from, Message message) = 0;
  // Bytes from `from` that are no valid frame. They were counted and dropped.
  virtual void OnBadFrame(PeerId from, const absl::Status& why) = 0;
  // A message could not be handed over to `to` (no route: the peer is gone).
  virtual void OnUndeliverable(PeerId to, const absl::Status& why) = 0;
  // The connection to `to`, one of Connect's, broke, and is made anew: what was handed over before may be lost, and so may
  // be its answers.
  virtual void OnConnectionLost(PeerId /*to*/) {}
  // Memory ran out on the I/O thread. Called while `error` is handled; a sink that does not live on without its transport,
  // a daemon's, lets it go on, and the process ends (proto/base/out_of_memory.h).
  virtual void OnOutOfMemory(const std::bad_alloc& error) {
    (void)error;
    throw;
  }
};

struct SendOptions {
  int64_t priority = 0;  // higher leaves first
  // Called where it is handed over, mostly on the I/O thread, before any answer can arrive, with the
  // time at which the first byte was: after queueing; on an emulated link, the time at which the link
  // began to carry it. Never called for what is dropped.
  std::function<void(SteadyTime)> on_handed_over;
  // A caller who will wait for the answer may do the I/O thread's work while that one sleeps: Send then hands over what
  // is queued before it returns, on_handed_over and OnUndeliverable may run in it, and the caller holds no lock that they
  // take.
  bool may_hand_over_here = false;
};

struct TransportStats {
  uint64_t messages_sent = 0;  // handed over to the network
  uint64_t bytes_sent = 0;
  uint64_t messages_received = 0;
  uint64_t bytes_received = 0;
  // Of the bytes above, those that passed through shared memory.
  uint64_t bytes_lent = 0;
  uint64_t bytes_borrowed = 0;
  // How often a peer was found unable to take payloads through shared memory, so that it is sent them in-line; and why,
  // the last time.
  uint64_t sharing_refusals = 0;
  std::string last_sharing_refusal;
  uint64_t bad_frames = 0;
  uint64_t undeliverable = 0;
};

// Thread-safe. Start and Stop once each; Stop drains what was accepted (up to the linger time), gives those whom it lent
// shared memory half a second to return it, then joins the I/O thread, after which the sink is no longer called.
class Transport {
 public:
  virtual ~Transport() = default;

  // Listens; port 0 picks a free one. Returns the address to connect to. InvalidArgument: not an
  // address. Unavailable: in use (the message says which).
  [[nodiscard]] virtual absl::StatusOr<std::string> Bind(std::string_view address) = 0;
  [[nodiscard]] virtual absl::Status Start(MessageSink* sink) = 0;
  // Returns at once; the connection is made, and remade, in the background.
  [[nodiscard]] virtual absl::StatusOr<PeerId> Connect(std::string_view address) = 0;
  // Checks and queues the message. ResourceExhausted: the queue to this peer is full.
  // InvalidArgument: over a limit. FailedPrecondition: stopped. NotFound: no such peer.
  [[nodiscard]] virtual absl::Status Send(PeerId to, Message message, SendOptions options) = 0;
  virtual void Stop() = 0;
  // The sink knows who this peer is: strangers' bounds (TransportOptions::strangers) are its no longer. From within
  // OnMessage alone; again and again, if one likes.
  virtual void Admit(PeerId /*peer*/) {}
  // A time by which all that had arrived here has been handed to the sink: who was not heard from until then was silent,
  // whatever lies in the mailbox. Never waits; it asks the I/O thread to look, so that a later call tells a later time.
  // InfiniteFuture: this transport has no mailbox. Any thread, any time.
  [[nodiscard]] virtual SteadyTime DeliveredUntil() { return SteadyTime::InfiniteFuture(); }
  // What has gone through so far, payloads and headers. Any thread, any time.
  [[nodiscard]] virtual TransportStats stats() const { return {}; }

  [[nodiscard]] absl::Status Send(PeerId to, Message message) {
    return Send(to, std::move(message), SendOptions{});
  }
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_TRANSPORT_H_
