// SPDX-License-Identifier: Apache-2.0
#include "proto/net/queue/transport_state.h"

#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace slimps {

TransportState::TransportState(const TransportOptions& options)
    : limits_(options.limits),
      accepts_strangers_(options.strangers.has_value()),
      clock_(options.clock),
      wakeup_(std::make_shared<Wakeup>(options.clock)),
      queue_(options) {}

absl::Status TransportState::Queue(PeerId to, Message message, SendOptions options) {
  Outgoing outgoing;
  outgoing.to = to;
  outgoing.priority = options.priority;
  outgoing.on_handed_over = std::move(options.on_handed_over);
  SLIMPS_ASSIGN_OR_RETURN(outgoing.frame, BuildFrame(std::move(message), limits_));
  for (const Payload& part : outgoing.frame) outgoing.bytes += part.size();
  outgoing.queued_at = clock_->Now();
  MutexLock lock(&mutex_);
  if (stopping_) return absl::FailedPreconditionError("the transport is stopped");
  const absl::Status pushed = queue_.Push(std::move(outgoing));
  if (absl::IsResourceExhausted(pushed) && queue_.IsStranger(to)) overflowed_.push_back(to);
  return pushed;
}

absl::Status TransportState::Send(PeerId to, Message message, SendOptions options) {
  SLIMPS_RETURN_IF_ERROR(Queue(to, std::move(message), std::move(options)));
  wakeup_->Signal();
  return absl::OkStatus();
}

SteadyTime TransportState::DeliveredUntil() {
  wakeup_->Signal();
  return SteadyTime::AtEpochPlus(absl::Nanoseconds(delivered_until_ns_.load()));
}

void TransportState::Delivered(SteadyTime until) {
  delivered_until_ns_.store(absl::ToInt64Nanoseconds(until - SteadyTime()));
}

absl::StatusOr<PeerId> TransportState::Connect(std::string address) {
  PeerId peer{};
  {
    MutexLock lock(&mutex_);
    if (stopping_) return absl::FailedPreconditionError("the transport is stopped");
    peer = PeerId{++last_peer_};
    queue_.AddPeer(peer);
    queue_.Hold(peer);
    new_connections_.push_back({peer, std::move(address)});
  }
  wakeup_->Signal();
  return peer;
}

void TransportState::Disconnect(PeerId peer) {
  {
    MutexLock lock(&mutex_);
    given_up_.push_back(peer);
  }
  wakeup_->Signal();
}

void TransportState::RunOrTell(MessageSink* sink, const std::function<void()>& run) {
  for (int i = 0; i < 2; ++i) {
    try {
      return run();
    } catch (const std::bad_alloc& error) {
      sink->OnOutOfMemory(error);
    }
  }
  Stop();
}

void TransportState::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wakeup_->Signal();
}

TransportStats TransportState::stats() const {
  TransportStats stats;
  stats.messages_sent = messages_sent_;
  stats.bytes_sent = bytes_sent_;
  stats.messages_received = messages_received_;
  stats.bytes_received = bytes_received_;
  stats.bytes_lent = bytes_lent_;
  stats.bytes_borrowed = bytes_borrowed_;
  stats.bad_frames = bad_frames_;
  stats.undeliverable = undeliverable_;
  MutexLock lock(&mutex_);
  stats.sharing_refusals = sharing_refusals_;
  stats.last_sharing_refusal = last_sharing_refusal_;
  return stats;
}

PeerId TransportState::AcceptPeer() {
  MutexLock lock(&mutex_);
  const PeerId peer{++last_peer_};
  queue_.AddPeer(peer,
                 accepts_strangers_ ? SendQueue::PeerKind::kStranger : SendQueue::PeerKind::kKnown);
  return peer;
}

void TransportState::Admit(PeerId peer) {
  MutexLock lock(&mutex_);
  queue_.Admit(peer);
}

std::vector<PeerId> TransportState::TakeOverflowed() {
  MutexLock lock(&mutex_);
  return std::exchange(overflowed_, {});
}

std::vector<Outgoing> TransportState::RemovePeer(PeerId peer) {
  MutexLock lock(&mutex_);
  return queue_.RemovePeer(peer);
}

std::vector<TransportState::NewConnection> TransportState::TakeNewConnections() {
  MutexLock lock(&mutex_);
  return std::exchange(new_connections_, {});
}

std::vector<PeerId> TransportState::TakeGivenUp() {
  MutexLock lock(&mutex_);
  return std::exchange(given_up_, {});
}

std::optional<Outgoing> TransportState::Pop(SteadyTime now) {
  MutexLock lock(&mutex_);
  return queue_.Pop(now);
}

void TransportState::Return(Outgoing message) {
  MutexLock lock(&mutex_);
  queue_.Hold(message.to);
  queue_.Return(std::move(message));
}

void TransportState::Hold(PeerId peer) {
  MutexLock lock(&mutex_);
  queue_.Hold(peer);
}

void TransportState::Release(PeerId peer, SteadyTime now) {
  MutexLock lock(&mutex_);
  queue_.Release(peer, now);
}

SteadyTime TransportState::NextSend() const {
  MutexLock lock(&mutex_);
  return queue_.NextWake();
}

bool TransportState::stopping() const {
  MutexLock lock(&mutex_);
  return stopping_;
}

bool TransportState::NothingToSend() const {
  MutexLock lock(&mutex_);
  return queue_.empty();
}

std::vector<Outgoing> TransportState::TakeAll() {
  MutexLock lock(&mutex_);
  return queue_.TakeAll();
}

void TransportState::CountSent(size_t bytes) {
  ++messages_sent_;
  bytes_sent_ += bytes;
}

void TransportState::CountSharingRefusal(std::string why) {
  MutexLock lock(&mutex_);
  ++sharing_refusals_;
  last_sharing_refusal_ = std::move(why);
}

void TransportState::CountReceived(size_t bytes) {
  ++messages_received_;
  bytes_received_ += bytes;
}

void TransportState::ReportBadFrame(MessageSink* sink, PeerId from, const absl::Status& why) {
  ++bad_frames_;
  sink->OnBadFrame(from, why);
}

void TransportState::ReportUndeliverable(MessageSink* sink, PeerId to, const absl::Status& why) {
  ++undeliverable_;
  sink->OnUndeliverable(to, why);
}

}  // namespace slimps
