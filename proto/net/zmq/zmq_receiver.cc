// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/zmq_receiver.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "proto/net/zmq/curve/zmq_curve.h"

namespace slimps {
namespace {

// The largest number of messages received from a socket before the loop looks at the rest.
constexpr int kMessagesPerTurn = 64;

}  // namespace

ZmqReceiver::ZmqReceiver(const ZmqTransportOptions* options, TransportState* state,
                         MessageSink* sink, PayloadSharing* sharing, ZmqPeers* peers,
                         ZmqConnectionWatch* watch)
    : options_(*options),
      state_(state),
      sink_(sink),
      sharing_(sharing),
      peers_(peers),
      watch_(watch),
      arrivals_(*options) {}

void ZmqReceiver::ReceiveReady() {
  for (ZmqLink& link : peers_->links()) {
    if (std::exchange(link.has_events, false)) link.TakeEvents();
    if ((!link.readable && link.events.empty()) || arrivals_.IsFull()) continue;
    link.unchecked = true;
    for (int i = 0; i < kMessagesPerTurn && !arrivals_.IsFull(); ++i) {
      if (ReceiveOne(&link)) continue;
      watch_->HeedEvents(&link);
      break;
    }
  }
}

bool ZmqReceiver::ReceiveOne(ZmqLink* link) {
  auto part = std::make_shared<ZmqPart>();
  if (!part->Receive(link->socket.get())) return false;
  bool more = part->more();
  std::shared_ptr<ZmqPart> routing_id;
  ReceivedParts parts;
  if (link->is_router) {
    routing_id = std::move(part);
  } else {
    parts.push_back(std::move(part));
  }
  // ZeroMQ hands over a message only when all its parts are there.
  size_t too_many = 0;
  size_t bytes = 0;  // with ZeroMQ's framing, as TCP counted them
  int fd = -1;
  std::string user_id;
  while (more) {
    part = std::make_shared<ZmqPart>();
    if (!part->Receive(link->socket.get())) break;
    more = part->more();
    fd = part->source_fd();  // the part with the routing id may have none
    if (link->is_curve) user_id = part->user_id();
    // ZMTP frames a part with 2 bytes, or with 9 if it is long.
    const size_t size = part->bytes().size() + (link->is_curve ? kCurvePartBytes : 0);
    bytes += size + (size < 256 ? 2 : 9);
    // Read further even beyond the limit, so that the next message begins at its first part.
    if (parts.size() <= options_.limits.max_payload_frames) {
      parts.push_back(std::move(part));
    } else {
      ++too_many;
    }
  }
  const PeerId from = routing_id == nullptr ? link->peer : PeerOf(link, *routing_id, fd, user_id);
  if (routing_id != nullptr) watch_->Received(fd, from, bytes);
  TakeParts(*link, from, user_id, std::move(parts), too_many);
  return true;
}

PeerId ZmqReceiver::PeerOf(ZmqLink* link, const ZmqPart& part, int fd, const std::string& user_id) {
  const std::span<const std::byte> bytes = part.bytes();
  const std::string routing_id(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (options_.strangers.has_value() && !link->peers.Find(routing_id).has_value()) {
    // The connection may have the descriptor of an earlier one whose end has not been handled yet.
    watch_->CatchUp(link);
  }
  const uint64_t connection = watch_->NumberOf(link, fd);
  return peers_->PeerOf(
      link, {.routing_id = routing_id, .fd = fd, .connection = connection, .user_id = user_id});
}

void ZmqReceiver::TakeParts(const ZmqLink& link, PeerId from, const std::string& user_id,
                            ReceivedParts parts, size_t too_many) {
  // No CURVE connection has a message without one, since the handler gives none.
  if (link.is_curve && user_id.empty()) {
    return state_->ReportBadFrame(sink_, from, absl::PermissionDeniedError("no proven sender"));
  }
  if (too_many > 0) {
    return state_->ReportBadFrame(sink_, from,
                                  absl::InvalidArgumentError(absl::StrCat(
                                      parts.size() + too_many, " parts, at most ",
                                      options_.limits.max_payload_frames + 1, " are allowed")));
  }
  size_t bytes = 0;
  for (const auto& part : parts) bytes += part->bytes().size();
  if (watch_->SaysTooMuch(from, bytes)) {
    return watch_->CloseStranger(from, absl::StrCat("sent a message of ", bytes, " bytes"));
  }
  if (link.is_ipc && parts.size() == 1 && IsSharingPart(parts[0]->bytes())) {
    return TakeControl(from, *parts[0]);
  }
  // The peer chose the size. If memory runs out here, this message is lost and the process goes on.
  const auto parse = [&] { return ParseParts(link, from, std::move(parts), &bytes); };
  absl::StatusOr<Message> message = OrOutOfMemory(parse, "a received message");
  if (!message.ok()) return state_->ReportBadFrame(sink_, from, message.status());
  message->user_id = user_id;
  state_->CountReceived(bytes);
  if (arrivals_.emulated()) {
    arrivals_.Push(from, *std::move(message), bytes, options_.clock->Now());
  } else {
    sink_->OnMessage(from, *std::move(message));
  }
}

void ZmqReceiver::TakeControl(PeerId from, const ZmqPart& part) {
  const absl::Status handled = sharing_->HandleControl(from, part.bytes());
  if (!handled.ok()) state_->ReportBadFrame(sink_, from, handled);
  std::string refusal = sharing_->TakeRefusal();
  if (!refusal.empty()) state_->CountSharingRefusal(std::move(refusal));
}

absl::StatusOr<Message> ZmqReceiver::ParseParts(const ZmqLink& link, PeerId from,
                                                ReceivedParts parts, size_t* bytes) {
  std::vector<PayloadSharing::Borrowed> borrowed;
  if (link.is_ipc && !parts.empty() && IsSharingPart(parts[0]->bytes())) {
    SLIMPS_ASSIGN_OR_RETURN(borrowed, sharing_->Borrow(from, parts[0]->bytes()));
    parts.erase(parts.begin());
  }
  size_t borrowed_bytes = 0;
  for (const PayloadSharing::Borrowed& payload : borrowed) borrowed_bytes += payload.bytes.size();
  SLIMPS_ASSIGN_OR_RETURN(Message message,
                          ParseReceived(std::move(parts), std::move(borrowed), options_.limits));
  state_->CountBorrowed(borrowed_bytes);
  *bytes += borrowed_bytes;
  return message;
}

void ZmqReceiver::DeliverDue(SteadyTime now) {
  while (std::optional<Arrival> arrival = arrivals_.Pop(now)) {
    sink_->OnMessage(arrival->from, std::move(arrival->message));
  }
}

}  // namespace slimps
