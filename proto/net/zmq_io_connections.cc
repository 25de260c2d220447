// ZmqIoLoop: whose connections there are, and which strangers have too much.
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/net/zmq_io_loop.h"

namespace slimps {
namespace {

// What ZeroMQ holds of strangers is looked at so often.
constexpr absl::Duration kStrangersInterval = absl::Milliseconds(20);

}  // namespace

void ZmqIoLoop::WatchConnections(Link* link) {
  absl::StatusOr<ZmqMonitor> monitor = ZmqMonitor::Watch(context_.get(), link->socket.get());
  // Without one, connections are known by what they say.
  if (monitor.ok()) link->monitor = *std::move(monitor);
}

void ZmqIoLoop::TakeEvents(Link* link) {
  for (const ZmqMonitor::Event& event : link->monitor.Take()) link->events.push_back(event);
}

// ZeroMQ tells of a connection's end after it has handed over all that came by it.
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

// 0 where connections are not told apart.
uint64_t ZmqIoLoop::ConnectionNumber(Link* link, int fd) {
  if (fd < 0 || !options_.strangers.has_value()) return 0;
  // The first words of a connection that was accepted meanwhile.
  if (!connections_.Knows(fd)) {
    TakeEvents(link);
    HeedEvents(link);
  }
  return connections_.Knows(fd) ? connections_.NumberOf(fd) : 0;
}

void ZmqIoLoop::Admit(PeerId peer) {
  if (in_turn_ != std::this_thread::get_id()) return;
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
