// SPDX-License-Identifier: Apache-2.0
#include "proto/net/queue/send_queue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace slimps {

SendQueue::SendQueue(const TransportOptions& options)
    : max_bytes_per_peer_(options.max_queued_bytes_per_peer),
      max_messages_per_peer_(options.max_queued_messages_per_peer),
      strangers_(options.strangers.value_or(StrangerLimits{})),
      link_(options.emulate_link_bytes_per_second) {}

void SendQueue::AddPeer(PeerId peer, PeerKind kind) {
  lanes_.try_emplace(peer).first->second.is_stranger = kind == PeerKind::kStranger;
}

void SendQueue::Admit(PeerId peer) {
  const auto found = lanes_.find(peer);
  if (found != lanes_.end()) found->second.is_stranger = false;
}

bool SendQueue::IsStranger(PeerId peer) const {
  const auto found = lanes_.find(peer);
  return found != lanes_.end() && found->second.is_stranger;
}

absl::Status SendQueue::CheckStranger(const Lane& lane, size_t bytes) const {
  const size_t queued = lane.bytes + lane.messages.size() * kStrangerMessageBytes;
  const size_t more = bytes + kStrangerMessageBytes;
  if (queued + more <= strangers_.max_queued_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("a stranger does not read: ", lane.messages.size(), " messages of ", lane.bytes,
                   " bytes wait for it, ", bytes, " more do not fit"));
}

std::vector<Outgoing> SendQueue::RemovePeer(PeerId peer) {
  std::vector<Outgoing> dropped;
  const auto found = lanes_.find(peer);
  if (found == lanes_.end()) return dropped;
  Hold(peer);  // removes its entry from heads_
  for (auto& [order, message] : found->second.messages) dropped.push_back(std::move(message));
  messages_ -= dropped.size();
  lanes_.erase(found);
  return dropped;
}

absl::Status SendQueue::Push(Outgoing message) {
  const auto found = lanes_.find(message.to);
  if (found == lanes_.end()) {
    return absl::NotFoundError(
        absl::StrCat("no peer ", static_cast<uint64_t>(message.to), ", or it is gone"));
  }
  Lane& lane = found->second;
  if (lane.is_stranger) SLIMPS_RETURN_IF_ERROR(CheckStranger(lane, message.bytes));
  if (lane.messages.size() >= max_messages_per_peer_ ||
      message.bytes > max_bytes_per_peer_ - std::min(lane.bytes, max_bytes_per_peer_)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the queue to peer ", static_cast<uint64_t>(message.to), " holds ", lane.messages.size(),
        " messages of ", lane.bytes, " bytes, at most ", max_messages_per_peer_, " and ",
        max_bytes_per_peer_, "; ", message.bytes, " bytes more do not fit"));
  }
  message.sequence = next_sequence_++;
  Insert(std::move(message), &lane);
  return absl::OkStatus();
}

void SendQueue::Return(Outgoing message) {
  const auto found = lanes_.find(message.to);
  if (found == lanes_.end()) return;
  Insert(std::move(message), &found->second);
}

void SendQueue::Insert(Outgoing message, Lane* lane) {
  const PeerId peer = message.to;
  const size_t bytes = message.bytes;
  const Order order{-message.priority, message.sequence};
  lane->messages.emplace(order, std::move(message));
  ListHead(peer, lane);
  lane->bytes += bytes;
  ++messages_;
}

void SendQueue::ListHead(PeerId peer, Lane* lane) {
  std::optional<Order> head;
  if (!lane->held && !lane->messages.empty()) head = lane->messages.begin()->first;
  if (head == lane->listed) return;
  if (lane->listed) heads_.erase({lane->listed->first, lane->listed->second, peer});
  if (head) heads_.emplace(head->first, head->second, peer);
  lane->listed = head;
}

void SendQueue::Hold(PeerId peer) {
  const auto found = lanes_.find(peer);
  if (found == lanes_.end()) return;
  found->second.held = true;
  ListHead(peer, &found->second);
}

void SendQueue::Release(PeerId peer, SteadyTime now) {
  const auto found = lanes_.find(peer);
  if (found == lanes_.end() || !found->second.held) return;
  found->second.held = false;
  found->second.released_at = now;
  ListHead(peer, &found->second);
}

bool SendQueue::IsHeld(PeerId peer) const {
  const auto found = lanes_.find(peer);
  return found != lanes_.end() && found->second.held;
}

std::optional<Outgoing> SendQueue::TakeBest() {
  if (heads_.empty()) return std::nullopt;
  const PeerId peer = std::get<2>(*heads_.begin());
  Lane& lane = lanes_.at(peer);
  const auto first = lane.messages.begin();
  Outgoing message = std::move(first->second);
  lane.messages.erase(first);
  lane.bytes -= message.bytes;
  --messages_;
  // A message could not begin before its peer could take it, however early it was queued.
  message.queued_at = std::max(message.queued_at, lane.released_at);
  ListHead(peer, &lane);
  return message;
}

std::optional<Outgoing> SendQueue::Pop(SteadyTime now) {
  if (!on_link_) {
    std::optional<Outgoing> best = TakeBest();
    if (!best || !link_.on() || best->carried) return best;
    const LinkEmulator::Passage passage = link_.Carry(best->queued_at, best->bytes);
    best->carried = true;
    best->began = passage.begin;
    on_link_ = std::move(best);
    on_link_until_ = passage.end;
    ++messages_;
  }
  if (on_link_until_ > now) return std::nullopt;
  std::optional<Outgoing> arrived = std::exchange(on_link_, std::nullopt);
  on_link_until_ = SteadyTime::InfiniteFuture();
  --messages_;
  return arrived;
}

SteadyTime SendQueue::NextWake() const { return on_link_until_; }

std::vector<Outgoing> SendQueue::TakeAll() {
  std::vector<Outgoing> all;
  if (on_link_) all.push_back(*std::exchange(on_link_, std::nullopt));
  on_link_until_ = SteadyTime::InfiniteFuture();
  for (auto& [peer, lane] : lanes_) {
    for (auto& [order, message] : lane.messages) all.push_back(std::move(message));
    lane.messages.clear();
    lane.bytes = 0;
    ListHead(peer, &lane);
  }
  messages_ = 0;
  return all;
}

}  // namespace slimps
