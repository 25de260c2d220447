// SPDX-License-Identifier: Apache-2.0
// What the callers of a transport share with its I/O thread, for any kind of network: the send
// queue, the request to stop, the counters, and the wake-up between them.
//
//   caller:      state.Send(peer, std::move(message), options);
//   I/O thread:  while (std::optional<Outgoing> next = state.Pop(now)) ...   // hand it over
#ifndef SLIMPS_PROTO_NET_QUEUE_TRANSPORT_STATE_H_
#define SLIMPS_PROTO_NET_QUEUE_TRANSPORT_STATE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/net/queue/send_queue.h"
#include "proto/net/queue/wakeup.h"
#include "proto/net/transport.h"
#include "proto/net/transport_options.h"

namespace slimps {

// Thread-safe.
class TransportState final {
 public:
  struct NewConnection {
    PeerId peer{};
    std::string address;
  };

  explicit TransportState(const TransportOptions& options);

  // ---- any thread ---------------------------------------------------------
  // Does what Transport::Send does, without the wake-up.
  [[nodiscard]] absl::Status Queue(PeerId to, Message message, SendOptions options);

  // Transport::Send.
  [[nodiscard]] absl::Status Send(PeerId to, Message message, SendOptions options);

  // Numbers a connection to `address`. Its messages are held until the I/O thread releases them.
  // FailedPrecondition: the transport is stopping.
  [[nodiscard]] absl::StatusOr<PeerId> Connect(std::string address);

  // Transport::Disconnect.
  void Disconnect(PeerId peer);

  void Stop();

  // Runs `run`, the I/O thread's loop, until it returns. If memory runs out, tells the sink and
  // runs it once more, so that what the sink sends about it can leave. If memory runs out again,
  // tells the sink and stops.
  void RunOrTell(MessageSink* sink, const std::function<void()>& run);

  TransportStats stats() const;

  // Transport::DeliveredUntil.
  SteadyTime DeliveredUntil();

  const std::shared_ptr<Wakeup>& wakeup() const { return wakeup_; }

  // ---- in a turn of I/O: the I/O thread, or a caller with may_hand_over_here ----
  PeerId AcceptPeer();
  void Admit(PeerId peer);

  // Takes the strangers whose messages found no room in the queue.
  std::vector<PeerId> TakeOverflowed();

  std::vector<Outgoing> RemovePeer(PeerId peer);
  std::vector<NewConnection> TakeNewConnections();
  std::vector<PeerId> TakeGivenUp();  // the connections that callers gave up
  std::optional<Outgoing> Pop(SteadyTime now);

  // Puts back a message that could not be handed over, and holds its peer.
  void Return(Outgoing message);

  void Hold(PeerId peer);
  void Release(PeerId peer, SteadyTime now);
  SteadyTime NextSend() const;
  bool stopping() const;
  bool NothingToSend() const;
  std::vector<Outgoing> TakeAll();

  // Records that the sink has been given all that had arrived by `until`.
  void Delivered(SteadyTime until);

  void CountSent(size_t bytes);
  void CountReceived(size_t bytes);
  void CountLent(size_t bytes) { bytes_lent_ += bytes; }
  void CountBorrowed(size_t bytes) { bytes_borrowed_ += bytes; }
  void CountSharingRefusal(std::string why);

  // Count the event and tell the sink.
  void ReportBadFrame(MessageSink* sink, PeerId from, const absl::Status& why);
  void ReportUndeliverable(MessageSink* sink, PeerId to, const absl::Status& why);

 private:
  const Limits limits_;
  const bool accepts_strangers_;
  const Clock* const clock_;
  // Shared with messages on their way, which may outlive the transport.
  const std::shared_ptr<Wakeup> wakeup_;

  mutable Mutex mutex_;
  SendQueue queue_ ABSL_GUARDED_BY(mutex_);
  std::vector<NewConnection> new_connections_ ABSL_GUARDED_BY(mutex_);
  std::vector<PeerId> given_up_ ABSL_GUARDED_BY(mutex_);
  std::vector<PeerId> overflowed_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_peer_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t sharing_refusals_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string last_sharing_refusal_ ABSL_GUARDED_BY(mutex_);

  // Nanoseconds since the clock's epoch. Publishes what the sink was given until then.
  std::atomic<int64_t> delivered_until_ns_{std::numeric_limits<int64_t>::min()};
  // The counters publish nothing but themselves.
  std::atomic<uint64_t> messages_sent_{0}, bytes_sent_{0};
  std::atomic<uint64_t> messages_received_{0}, bytes_received_{0};
  std::atomic<uint64_t> bytes_lent_{0}, bytes_borrowed_{0};
  std::atomic<uint64_t> bad_frames_{0}, undeliverable_{0};
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_QUEUE_TRANSPORT_STATE_H_
