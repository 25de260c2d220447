// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/zmq_sender.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "proto/net/zmq/zmq_ahead.h"

namespace slimps {
namespace {

// The largest number of messages sent before the loop looks at the rest.
constexpr int kMessagesPerTurn = 64;

absl::Status Gone() { return absl::UnavailableError("the peer is gone"); }

}  // namespace

void ZmqSender::SendControls(SteadyTime now) {
  const auto may_send = [this](PeerId peer) { return !peers_->IsHeldUnwritable(peer); };
  for (PayloadSharing::Control& control : sharing_->TakeControls(may_send)) {
    const PeerId peer = control.peer;
    SendResult result = SendResult::kNoRoute;
    if (ZmqRoute* const route = peers_->Find(peer)) {
      route->link->unchecked = true;
      result = SendParts(route->link->socket.get(), route->routing_id, {&control.part, 1}, nullptr);
      if (result == SendResult::kWouldBlock) peers_->HoldUnwritable(peer, route, now);
    }
    if (result == SendResult::kSent) continue;
    // Put back before the peer is dropped: its returns are then due to its process, perhaps by
    // another connection.
    sharing_->PutBack(std::move(control));
    if (result == SendResult::kNoRoute) peers_->Drop(peer, Gone());
    if (result != SendResult::kWouldBlock) state_->wakeup()->Signal();
  }
}

void ZmqSender::SendReady(SteadyTime now) {
  more_to_send_ = true;
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    std::optional<Outgoing> next = state_->Pop(now);
    if (!next) {
      more_to_send_ = false;
      return;
    }
    HandOver(*std::move(next), now);
  }
}

void ZmqSender::HandOver(Outgoing message, SteadyTime now) {
  const PeerId peer = message.to;
  ZmqRoute* const route = peers_->Find(peer);
  // Without a route it was forgotten while the emulated link carried it.
  if (route == nullptr) return state_->ReportUndeliverable(sink_, peer, Gone());
  switch (SendFrame(route, message)) {
    case SendResult::kSent:
      state_->CountSent(message.bytes);
      if (message.on_handed_over) message.on_handed_over(message.carried ? message.began : now);
      peers_->HoldIfAhead(peer, route);
      return;
    case SendResult::kWouldBlock:
      peers_->HoldUnwritable(peer, route, now);
      state_->Return(std::move(message));
      return;
    case SendResult::kLost:
      state_->ReportUndeliverable(sink_, peer,
                                  absl::UnavailableError("broken off while it was being sent"));
      return;
    case SendResult::kNoRoute:
      state_->ReportUndeliverable(sink_, peer, Gone());
      peers_->Drop(peer, Gone());
      return;
  }
}

// Sends the frame, with payloads lent as far as possible.
SendResult ZmqSender::SendFrame(ZmqRoute* route, const Outgoing& message) {
  route->link->unchecked = true;
  SendResult result = SendResult::kLost;
  const std::optional<PayloadSharing::Loan> loan = sharing_->Lend(message.to, message.frame);
  const absl::Cleanup take_back = [&] {
    if (loan && result != SendResult::kSent) sharing_->TakeBack(loan->leases);
  };
  const std::shared_ptr<void> token = std::make_shared<ZmqAheadToken>(
      route->ahead, state_->wakeup(), loan ? loan->inline_bytes : message.bytes);
  result = SendParts(route->link->socket.get(), route->routing_id,
                     loan ? loan->parts : message.frame, token);
  if (loan && result == SendResult::kSent) state_->CountLent(loan->lent_bytes);
  return result;
}

}  // namespace slimps
