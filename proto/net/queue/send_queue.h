// SPDX-License-Identifier: Apache-2.0
// Holds what waits to leave a transport. Each peer has a lane, ordered by priority, then by
// arrival. Over all lanes, the message of highest priority whose peer can take it leaves first. It
// leaves across the emulated link if there is one. Pure.
//
//   queue.AddPeer(peer);
//   SLIMPS_RETURN_IF_ERROR(queue.Push({.to = peer, .frame = frame, ...}));
//   while (auto next = queue.Pop(now)) ...            // hand over; or Hold(peer) and Return(*next)
//   wait until queue.NextWake(), a Push, or a Release
#ifndef SLIMPS_PROTO_NET_QUEUE_SEND_QUEUE_H_
#define SLIMPS_PROTO_NET_QUEUE_SEND_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/frame.h"
#include "proto/net/queue/link_emulator.h"
#include "proto/net/transport.h"
#include "proto/net/transport_options.h"

namespace slimps {

struct Outgoing {
  PeerId to{};
  Frame frame;
  size_t bytes = 0;
  int64_t priority = 0;
  std::function<void(SteadyTime)> on_handed_over;
  SteadyTime queued_at;
  // Set by the queue.
  uint64_t sequence = 0;
  bool carried = false;  // the emulated link has carried it, beginning at `began`
  SteadyTime began = SteadyTime::InfinitePast();
};

// Thread-compatible.
class SendQueue final {
 public:
  explicit SendQueue(const TransportOptions& options);

  enum class PeerKind { kKnown, kStranger };
  void AddPeer(PeerId peer, PeerKind kind = PeerKind::kKnown);

  // Lifts the strangers' bounds from this peer.
  void Admit(PeerId peer);

  bool IsStranger(PeerId peer) const;

  // Forgets the peer. Returns what was queued for it.
  std::vector<Outgoing> RemovePeer(PeerId peer);

  // Queues the message.
  // NotFound: there is no such peer.
  // ResourceExhausted: the peer's lane is full.
  [[nodiscard]] absl::Status Push(Outgoing message);

  // Puts back a message that could not be handed over, at the place it had.
  void Return(Outgoing message);

  // Keeps the peer's messages in the queue until Release.
  void Hold(PeerId peer);
  void Release(PeerId peer, SteadyTime now);
  bool IsHeld(PeerId peer) const;

  // Returns the next message to hand over at `now`; nullopt if nothing may leave yet.
  std::optional<Outgoing> Pop(SteadyTime now);

  // Returns when Pop may return a message even without a Push or a Release; InfiniteFuture if
  // never.
  SteadyTime NextWake() const;

  bool empty() const { return messages_ == 0; }

  // Takes everything queued, in no particular order, and leaves the queue empty.
  std::vector<Outgoing> TakeAll();

 private:
  using Order = std::pair<int64_t, uint64_t>;  // minus priority, sequence
  struct Lane {
    std::map<Order, Outgoing> messages;
    size_t bytes = 0;
    bool held = false;
    bool is_stranger = false;
    SteadyTime released_at = SteadyTime::InfinitePast();
    std::optional<Order> listed;  // its entry in heads_
  };

  absl::Status CheckStranger(const Lane& lane, size_t bytes) const;
  void Insert(Outgoing message, Lane* lane);
  void ListHead(PeerId peer, Lane* lane);
  std::optional<Outgoing> TakeBest();

  const size_t max_bytes_per_peer_;
  const size_t max_messages_per_peer_;
  const StrangerLimits strangers_;
  std::map<PeerId, Lane> lanes_;
  std::set<std::tuple<int64_t, uint64_t, PeerId>> heads_;  // first messages of lanes not held
  uint64_t next_sequence_ = 0;
  size_t messages_ = 0;

  LinkEmulator link_;
  std::optional<Outgoing> on_link_;  // the link carries it until on_link_until_
  SteadyTime on_link_until_ = SteadyTime::InfiniteFuture();
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_QUEUE_SEND_QUEUE_H_
