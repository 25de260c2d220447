// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/zmq_peers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/net/address.h"
#include "proto/net/identity/node_keys.h"
#include "proto/net/zmq/curve/zmq_curve.h"

namespace slimps {
namespace {

// ZMQ_POLLOUT of a ROUTER says that some peer can take a message, but not which one. So the loop
// tries a full peer again after this time.
constexpr absl::Duration kRouterRetry = absl::Milliseconds(5);
// A stranger's answers in ZeroMQ are outside the bounds of our queue, so this bounds them.
constexpr size_t kMessagesAheadOfStranger = 16;

}  // namespace

ZmqPeers::ZmqPeers(const ZmqTransportOptions* options, TransportState* state, MessageSink* sink,
                   PayloadSharing* sharing, ZmqContext context, std::vector<ZmqSocket> bound)
    : options_(*options),
      state_(state),
      sink_(sink),
      sharing_(sharing),
      context_(std::move(context)) {
  for (ZmqSocket& socket : bound) {
    const bool is_ipc = LastEndpoint(socket.get()).starts_with("ipc://");
    const int fd = EventFd(socket.get());
    links_.push_back(ZmqLink{.socket = std::move(socket),
                             .fd = fd,
                             .is_router = true,
                             .is_ipc = is_ipc,
                             .is_curve = !is_ipc && !options_.secret_key.empty(),
                             .peers = PeerTable(options_.max_remembered_peers)});
    if (options_.strangers.has_value()) links_.back().Watch(context_.get());
  }
}

const ZmqRoute* ZmqPeers::Find(PeerId peer) const {
  const auto found = routes_.find(peer);
  return found == routes_.end() ? nullptr : &found->second;
}

ZmqRoute* ZmqPeers::Find(PeerId peer) {
  return const_cast<ZmqRoute*>(std::as_const(*this).Find(peer));
}

// ---- who comes and goes -------------------------------------------------------------------------

absl::StatusOr<ZmqSocket> ZmqPeers::Connect(const std::string& address) {
  SLIMPS_ASSIGN_OR_RETURN(Address to, ParseAddress(address));
  SLIMPS_ASSIGN_OR_RETURN(ZmqSocket socket, OpenSocket(context_.get(), ZMQ_DEALER, options_));
  if (const std::string key = std::exchange(to.key, ""); !key.empty()) {
    SLIMPS_ASSIGN_OR_RETURN(const std::string server_key, ParseNodeKey(key));
    SLIMPS_RETURN_IF_ERROR(UseCurve(socket.get(), options_.secret_key, server_key));
  }
  if (zmq_connect(socket.get(), to.ToString().c_str()) == 0) return socket;
  return absl::InvalidArgumentError(
      absl::StrCat("cannot connect to ", address, ": ", zmq_strerror(zmq_errno())));
}

void ZmqPeers::OpenConnections() {
  for (const TransportState::NewConnection& wanted : state_->TakeNewConnections()) {
    absl::StatusOr<ZmqSocket> socket = Connect(wanted.address);
    if (!socket.ok()) {
      Drop(wanted.peer, socket.status());
      continue;
    }
    const bool is_ipc = wanted.address.starts_with("ipc://");
    const int fd = EventFd(socket->get());
    links_.push_back(ZmqLink{.socket = *std::move(socket),
                             .fd = fd,
                             .is_ipc = is_ipc,
                             .peers = PeerTable(1),
                             .peer = wanted.peer});
    links_.back().Watch(context_.get());
    if (is_ipc) sharing_->AddPeer(wanted.peer);
    // Held until the socket reports a connection that it can write to.
    routes_.insert_or_assign(wanted.peer, ZmqRoute{.link = &links_.back(),
                                                   .held = ZmqRoute::Held::kUnwritable,
                                                   .retry_at = SteadyTime::InfiniteFuture()});
    held_.insert(wanted.peer);
  }
  for (const PeerId peer : state_->TakeGivenUp()) Disconnect(peer);
  if (!std::exchange(has_unused_links_, false)) return;
  links_.remove_if(
      [this](const ZmqLink& link) { return !link.is_router && Find(link.peer) == nullptr; });
}

void ZmqPeers::Disconnect(PeerId peer) {
  const ZmqRoute* const route = Find(peer);
  if (route == nullptr || route->link->is_router) return;
  Erase(peer);
  state_->RemovePeer(peer);
}

void ZmqPeers::Erase(PeerId peer) {
  const auto found = routes_.find(peer);
  if (found == routes_.end()) return;
  const ZmqRoute& route = found->second;
  if (route.link->is_router) {
    route.link->peers.Remove(route.routing_id);
  } else {
    has_unused_links_ = true;
  }
  held_.erase(peer);
  routes_.erase(found);
  sharing_->RemovePeer(peer);
}

PeerId ZmqPeers::PeerOf(ZmqLink* link, const Origin& origin) {
  if (const std::optional<PeerId> known = link->peers.Find(origin.routing_id)) {
    const ZmqRoute& route = routes_.at(*known);
    if (route.connection == origin.connection && route.user_id == origin.user_id) return *known;
    // A new connection that names the routing id of an old peer is not taken for that peer. Where
    // connections are not told apart, the user id tells.
    Drop(*known, absl::UnavailableError("the peer is gone"));
  }
  const PeerId peer = state_->AcceptPeer();
  const std::optional<PeerId> evicted = link->peers.Add(origin.routing_id, peer);
  routes_.insert_or_assign(peer, ZmqRoute{.link = link,
                                          .routing_id = origin.routing_id,
                                          .is_stranger = options_.strangers.has_value(),
                                          .fd = origin.fd,
                                          .connection = origin.connection,
                                          .user_id = origin.user_id});
  if (link->is_ipc) sharing_->AddPeer(peer);
  if (evicted) {
    Drop(*evicted, absl::ResourceExhaustedError(absl::StrCat(
                       "forgotten: more than ", options_.max_remembered_peers, " peers")));
  }
  return peer;
}

void ZmqPeers::Drop(PeerId peer, const absl::Status& why) {
  Erase(peer);
  for (size_t i = state_->RemovePeer(peer).size(); i > 0; --i) {
    state_->ReportUndeliverable(sink_, peer, why);
  }
}

void ZmqPeers::Close(absl::Duration linger) {
  const auto linger_ms = std::clamp<int64_t>(absl::ToInt64Milliseconds(linger), 0, 3600000);
  for (const ZmqLink& link : links_) {
    // What ZeroMQ still holds leaves while the context is destroyed. Its destruction waits this
    // long at most.
    SetSocketOption(link.socket.get(), ZMQ_LINGER, static_cast<int>(linger_ms), "linger")
        .IgnoreError();
  }
  routes_.clear();
  links_.clear();
  context_.reset();  // after all sockets: it waits for them
}

// ---- who cannot take a message now --------------------------------------------------------------

bool ZmqPeers::IsAhead(const ZmqRoute& route) const {
  return route.ahead->bytes >= options_.max_bytes_ahead_per_peer ||
         route.ahead->messages >= options_.max_messages_ahead_per_peer ||
         (route.is_stranger && route.ahead->messages >= kMessagesAheadOfStranger);
}

void ZmqPeers::HoldUnwritable(PeerId peer, ZmqRoute* route, SteadyTime now) {
  held_.insert(peer);
  route->held = ZmqRoute::Held::kUnwritable;
  route->retry_at = now + kRouterRetry;
  route->link->writable = false;
  state_->Hold(peer);
}

void ZmqPeers::HoldIfAhead(PeerId peer, ZmqRoute* route) {
  if (!IsAhead(*route)) return;
  route->ahead->watched = true;
  // Checked again after `watched` was set: a release before that signalled nothing.
  if (!IsAhead(*route)) {
    route->ahead->watched = false;
    return;
  }
  held_.insert(peer);
  route->held = ZmqRoute::Held::kAhead;
  state_->Hold(peer);
}

bool ZmqPeers::IsHeldUnwritable(PeerId peer) const {
  const ZmqRoute* const route = Find(peer);
  return route != nullptr && route->held == ZmqRoute::Held::kUnwritable;
}

void ZmqPeers::ReleaseHeld(SteadyTime now) {
  for (auto it = held_.begin(); it != held_.end();) {
    ZmqRoute& route = routes_.at(*it);
    bool release = false;
    if (route.held == ZmqRoute::Held::kAhead) {
      release = !IsAhead(route);
    } else {
      // A ROUTER cannot say which peer is writable, so its peers are tried again after a time.
      release = route.link->is_router ? route.retry_at <= now : route.link->writable;
    }
    if (!release) {
      ++it;
      continue;
    }
    route.held = ZmqRoute::Held::kNo;
    route.ahead->watched = false;
    state_->Release(*it, now);
    it = held_.erase(it);
  }
}

SteadyTime ZmqPeers::NextRetry() const {
  SteadyTime next = SteadyTime::InfiniteFuture();
  for (const PeerId peer : held_) {
    const ZmqRoute& route = routes_.at(peer);
    if (route.held == ZmqRoute::Held::kUnwritable && route.link->is_router) {
      next = std::min(next, route.retry_at);
    }
  }
  return next;
}

}  // namespace slimps
