// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/zmq_connection_watch.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace slimps {
namespace {

// The interval at which strangers' connections are checked for what ZeroMQ holds of them.
constexpr absl::Duration kStrangersInterval = absl::Milliseconds(20);

// `why` is that of the monitor's event.
absl::Status Refusal(int why) {
  constexpr int kKeyRefused = 400;
  if (why == kKeyRefused) return absl::PermissionDeniedError("the other side refuses our key");
  return absl::PermissionDeniedError(
      "the other side does not speak as we do: one of both has keys, or it is none of ours");
}

}  // namespace

ZmqConnectionWatch::ZmqConnectionWatch(const ZmqTransportOptions* options, TransportState* state,
                                       MessageSink* sink, ZmqPeers* peers)
    : options_(*options),
      state_(state),
      sink_(sink),
      peers_(peers),
      connections_(options->strangers.value_or(StrangerLimits{})) {}

void ZmqConnectionWatch::HeedEvents(ZmqLink* link) {
  for (const ZmqMonitor::Event& event : std::exchange(link->events, {})) {
    const bool lost = event.kind == ZmqMonitor::Kind::kDisconnected;
    if (!link->is_router) {
      if (lost) sink_->OnConnectionLost(link->peer);
      if (event.kind == ZmqMonitor::Kind::kRefused) peers_->Drop(link->peer, Refusal(event.fd));
    } else if (!lost) {
      connections_.Accepted(event.fd);
      next_look_ = SteadyTime::InfinitePast();
    } else if (const std::optional<Connections::Ended> ended = connections_.Closed(event.fd)) {
      if (ended->admitted) {
        sink_->OnConnectionLost(ended->peer);
      } else {
        peers_->Drop(ended->peer, absl::UnavailableError("the peer is gone"));
      }
    }
  }
}

void ZmqConnectionWatch::CatchUp(ZmqLink* link) {
  link->TakeEvents();
  HeedEvents(link);
}

uint64_t ZmqConnectionWatch::NumberOf(ZmqLink* link, int fd) {
  if (fd < 0 || !options_.strangers.has_value()) return 0;
  // The first message of a connection whose event has not been taken yet.
  if (!connections_.Knows(fd)) CatchUp(link);
  return connections_.Knows(fd) ? connections_.NumberOf(fd) : 0;
}

void ZmqConnectionWatch::Received(int fd, PeerId from, size_t bytes) {
  if (connections_.Knows(fd)) connections_.Received(fd, from, bytes);
}

void ZmqConnectionWatch::Admit(PeerId peer) {
  ZmqRoute* const route = peers_->Find(peer);
  if (route == nullptr || !std::exchange(route->is_stranger, false)) return;
  state_->Admit(peer);
  route->link->peers.Admit(route->routing_id);
  connections_.Admit(route->fd);
}

bool ZmqConnectionWatch::SaysTooMuch(PeerId from, size_t bytes) const {
  if (!options_.strangers.has_value() || bytes <= options_.strangers->max_message_bytes) {
    return false;
  }
  const ZmqRoute* const route = peers_->Find(from);
  return route != nullptr && route->is_stranger;
}

void ZmqConnectionWatch::Close(int fd, PeerId peer, const std::string& why) {
  CloseConnection(fd);
  state_->ReportBadFrame(
      sink_, peer,
      absl::ResourceExhaustedError(absl::StrCat("closed the connection of a stranger that ", why)));
}

void ZmqConnectionWatch::CloseStranger(PeerId peer, const std::string& why) {
  const ZmqRoute* const route = peers_->Find(peer);
  if (route == nullptr || !connections_.MarkClosing(route->fd)) return;
  Close(route->fd, peer, why);
}

void ZmqConnectionWatch::CloseExcessive(SteadyTime now) {
  if (!options_.strangers.has_value()) return;
  for (const PeerId peer : state_->TakeOverflowed()) CloseStranger(peer, "does not read");
  if (now < next_look_) return;
  // Looking at each connection costs a system call, so it happens at an interval only.
  for (const Connections::Excess& excess : connections_.TakeExcess(ArrivedBytes)) {
    Close(excess.fd, excess.peer.value_or(PeerId{}), excess.why);
  }
  next_look_ =
      connections_.HasStrangers() ? now + kStrangersInterval : SteadyTime::InfiniteFuture();
}

}  // namespace slimps
