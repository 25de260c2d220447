// SPDX-License-Identifier: Apache-2.0
// The part of ZmqIoLoop that takes messages from a socket to the sink.
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "proto/net/zmq/zmq_io_loop.h"

namespace slimps {

bool ZmqIoLoop::ReceiveOne(Link* link) {
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
  while (more) {
    part = std::make_shared<ZmqPart>();
    if (!part->Receive(link->socket.get())) break;
    more = part->more();
    fd = part->source_fd();  // the part with the routing id may have none
    // ZMTP frames a part with 2 bytes, or with 9 if it is long.
    bytes += part->bytes().size() + (part->bytes().size() < 256 ? 2 : 9);
    // Read further even beyond the limit, so that the next message begins at its first part.
    if (parts.size() <= options_.limits.max_payload_frames) {
      parts.push_back(std::move(part));
    } else {
      ++too_many;
    }
  }
  const PeerId from = routing_id == nullptr ? link->peer : PeerOf(link, *routing_id, fd);
  if (routing_id != nullptr && connections_.Knows(fd)) connections_.Received(fd, from, bytes);
  TakeParts(*link, from, std::move(parts), too_many);
  return true;
}

PeerId ZmqIoLoop::PeerOf(Link* link, const ZmqPart& part, int fd) {
  const std::span<const std::byte> bytes = part.bytes();
  const std::string routing_id(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (options_.strangers.has_value() && !link->peers.Find(routing_id).has_value()) {
    // The connection may have the descriptor of an earlier one whose end has not been handled yet.
    TakeEvents(link);
    HeedEvents(link);
  }
  const uint64_t connection = ConnectionNumber(link, fd);
  if (const std::optional<PeerId> known = link->peers.Find(routing_id)) {
    if (routes_.at(*known).connection == connection) return *known;
    // A new connection that names the routing id of an old peer is not taken for that peer.
    DropPeer(*known, absl::UnavailableError("the peer is gone"));
  }
  const PeerId peer = state_->AcceptPeer();
  const std::optional<PeerId> evicted = link->peers.Add(routing_id, peer);
  routes_[peer] = Route{.link = link,
                        .routing_id = routing_id,
                        .ahead = std::make_shared<Ahead>(),
                        .is_stranger = options_.strangers.has_value(),
                        .fd = fd,
                        .connection = connection};
  if (link->is_ipc) sharing_.AddPeer(peer);
  if (evicted) {
    DropPeer(*evicted, absl::ResourceExhaustedError(absl::StrCat(
                           "forgotten: more than ", options_.max_remembered_peers, " peers")));
  }
  return peer;
}

void ZmqIoLoop::TakeParts(const Link& link, PeerId from, ReceivedParts parts, size_t too_many) {
  if (too_many > 0) {
    ReportBadFrame(from, absl::InvalidArgumentError(
                             absl::StrCat(parts.size() + too_many, " parts, at most ",
                                          options_.limits.max_payload_frames + 1, " are allowed")));
    return;
  }
  size_t bytes = 0;
  for (const auto& part : parts) bytes += part->bytes().size();
  if (SaysTooMuch(from, bytes)) {
    return CloseStranger(from, absl::StrCat("sent a message of ", bytes, " bytes"));
  }
  if (link.is_ipc && parts.size() == 1 && IsSharingPart(parts[0]->bytes())) {
    const absl::Status handled = sharing_.HandleControl(from, parts[0]->bytes());
    if (!handled.ok()) ReportBadFrame(from, handled);
    std::string refusal = sharing_.TakeRefusal();
    if (!refusal.empty()) state_->CountSharingRefusal(std::move(refusal));
    return;
  }
  // The peer chose the size. If memory runs out here, this message is lost and the process goes on.
  const auto parse = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return ParseParts(link, from, std::move(parts), &bytes);
  };
  absl::StatusOr<Message> message = OrOutOfMemory(parse, "a received message");
  if (!message.ok()) {
    ReportBadFrame(from, message.status());
    return;
  }
  state_->CountReceived(bytes);
  if (arrivals_.emulated()) {
    arrivals_.Push(from, *std::move(message), bytes, options_.clock->Now());
  } else {
    sink_->OnMessage(from, *std::move(message));
  }
}

absl::StatusOr<Message> ZmqIoLoop::ParseParts(const Link& link, PeerId from, ReceivedParts parts,
                                              size_t* bytes) {
  std::vector<PayloadSharing::Borrowed> borrowed;
  if (link.is_ipc && !parts.empty() && IsSharingPart(parts[0]->bytes())) {
    SLIMPS_ASSIGN_OR_RETURN(borrowed, sharing_.Borrow(from, parts[0]->bytes()));
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

void ZmqIoLoop::DeliverDue(SteadyTime now) {
  while (std::optional<Arrival> arrival = arrivals_.Pop(now)) {
    sink_->OnMessage(arrival->from, std::move(arrival->message));
  }
}

void ZmqIoLoop::ReportBadFrame(PeerId from, const absl::Status& why) {
  state_->CountBadFrame();
  sink_->OnBadFrame(from, why);
}

}  // namespace slimps
