// SPDX-License-Identifier: Apache-2.0
// The part of ZmqIoLoop that knows whose connections there are and closes those of strangers that
// exceed their bounds.
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/net/zmq/zmq_io_loop.h"

namespace slimps {
namespace {

// The interval at which strangers' connections are checked for what ZeroMQ holds of them.
constexpr absl::Duration kStrangersInterval = absl::Milliseconds(20);

}  // namespace

void ZmqIoLoop::WatchConnections(Link* link) {
  absl::StatusOr<ZmqMonitor> monitor = ZmqMonitor::Watch(context_.get(), link->socket.get());
  // Without a monitor, connections are known only by the messages that come from them.
  if (monitor.ok()) link->monitor = *std::move(monitor);
}

void ZmqIoLoop::TakeEvents(Link* link) {
  for (const ZmqMonitor::Event& event : link->monitor.Take()) link->events.push_back(event);
}

// Handles the monitor's events. ZeroMQ reports the end of a connection only after it has handed
// over all that came on it, so ReceiveReady calls this only when it has read the socket empty.
void ZmqIoLoop::HeedEvents(Link* link) {
  for (const ZmqMonitor::Event& event : std::exchange(link->events, {})) {
    const bool lost = event.kind == ZmqMonitor::Kind::kDisconnected;
    if (!link->is_router) {
      if (lost) sink_->OnConnectionLost(link->peer);
    } else if (!lost) {
      connections_.Accepted(event.fd);
      next_strangers_ = SteadyTime::InfinitePast();
    } else if (const std::optional<PeerId> stranger = connections_.Closed(event.fd)) {
      DropPeer(*stranger, absl::UnavailableError("the peer is gone"));
    }
  }
}

// Returns the number of the connection; 0 if connections are not told apart.
uint64_t ZmqIoLoop::ConnectionNumber(Link* link, int fd) {
  if (fd < 0 || !options_.strangers.has_value()) return 0;
  // The first message of a connection whose event has not been taken yet.
  if (!connections_.Knows(fd)) {
    TakeEvents(link);
    HeedEvents(link);
  }
  return connections_.Knows(fd) ? connections_.NumberOf(fd) : 0;
}

void ZmqIoLoop::Admit(PeerId peer) {
  // A handler runs in a turn of its own thread. This also avoids locking turn_ twice.
  if (in_turn_ != std::this_thread::get_id()) return;
  // This thread holds turn_ (checked above), which the analysis cannot see.
  [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto found = routes_.find(peer);
    if (found == routes_.end() || !std::exchange(found->second.is_stranger, false)) return;
    Route& route = found->second;
    state_->Admit(peer);
    route.link->peers.Admit(route.routing_id);
    connections_.Admit(route.fd);
  }();
}

bool ZmqIoLoop::SaysTooMuch(PeerId from, size_t bytes) const {
  if (!options_.strangers.has_value() || bytes <= options_.strangers->max_message_bytes) {
    return false;
  }
  const auto found = routes_.find(from);
  return found != routes_.end() && found->second.is_stranger;
}

void ZmqIoLoop::CloseStranger(PeerId peer, const std::string& why) {
  const auto found = routes_.find(peer);
  if (found == routes_.end() || !connections_.MarkClosing(found->second.fd)) return;
  CloseConnection(found->second.fd);
  ReportBadFrame(peer, absl::ResourceExhaustedError(
                           absl::StrCat("closed the connection of a stranger that ", why)));
}

void ZmqIoLoop::CloseExcessive(SteadyTime now) {
  if (!options_.strangers.has_value()) return;
  for (const PeerId peer : state_->TakeOverflowed()) CloseStranger(peer, "does not read");
  if (now < next_strangers_) return;
  // Looking at each connection costs a system call, so it happens at an interval only.
  for (const Connections::Excess& excess : connections_.TakeExcess(ArrivedBytes)) {
    CloseConnection(excess.fd);
    ReportBadFrame(excess.peer.value_or(PeerId{}),
                   absl::ResourceExhaustedError(
                       absl::StrCat("closed the connection of a stranger that ", excess.why)));
  }
  next_strangers_ =
      connections_.HasStrangers() ? now + kStrangersInterval : SteadyTime::InfiniteFuture();
}

}  // namespace slimps
