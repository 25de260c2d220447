// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/zmq_io_loop.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"

namespace slimps {
namespace {

// The largest number of messages sent, or received per socket, before the loop looks at the rest.
constexpr int kMessagesPerTurn = 64;
// ZMQ_POLLOUT of a ROUTER says that some peer can take a message, but not which one. So the loop
// tries a full peer again after this time.
constexpr absl::Duration kRouterRetry = absl::Milliseconds(5);
// How long a stopping transport waits for the return of what it lent, with nothing else to do.
constexpr absl::Duration kReturnLinger = absl::Milliseconds(500);
// A stranger's answers in ZeroMQ are outside the bounds of our queue, so this bounds them.
constexpr size_t kMessagesAheadOfStranger = 16;

PayloadSharingOptions SharingOptions(const ZmqTransportOptions& options) {
  return {.limits = options.limits,
          .memory = options.shared_memory,
          .min_bytes = options.min_shared_bytes,
          .max_leased_bytes = options.max_leased_bytes_per_process};
}

}  // namespace

// Counts one message as ahead while ZeroMQ holds any of its parts.
class ZmqIoLoop::AheadToken final {
 public:
  AheadToken(std::shared_ptr<Ahead> ahead, std::shared_ptr<Wakeup> wakeup, size_t bytes)
      : ahead_(std::move(ahead)), wakeup_(std::move(wakeup)), bytes_(bytes) {
    ahead_->bytes += bytes_;
    ++ahead_->messages;
  }
  ~AheadToken() {
    ahead_->bytes -= bytes_;
    --ahead_->messages;
    if (ahead_->watched) wakeup_->Signal();
  }
  AheadToken(const AheadToken&) = delete;
  AheadToken& operator=(const AheadToken&) = delete;

 private:
  const std::shared_ptr<Ahead> ahead_;
  const std::shared_ptr<Wakeup> wakeup_;
  const size_t bytes_;
};

ZmqIoLoop::ZmqIoLoop(const ZmqTransportOptions& options, TransportState* state, MessageSink* sink,
                     ZmqContext context, std::vector<ZmqSocket> bound)
    : options_(options),
      state_(state),
      sink_(sink),
      context_(std::move(context)),
      arrivals_(options),
      connections_(options.strangers.value_or(StrangerLimits{})),
      sharing_(SharingOptions(options), state->wakeup()) {
  for (ZmqSocket& socket : bound) {
    const bool is_ipc = LastEndpoint(socket.get()).starts_with("ipc://");
    const int fd = EventFd(socket.get());
    links_.push_back(Link{.socket = std::move(socket),
                          .fd = fd,
                          .is_router = true,
                          .is_ipc = is_ipc,
                          .peers = PeerTable(options.max_remembered_peers)});
    if (options.strangers.has_value()) WatchConnections(&links_.back());
  }
}

class ABSL_SCOPED_LOCKABLE ZmqIoLoop::TurnLock final {
 public:
  struct Locked {};  // this thread holds turn_ already

  explicit TurnLock(ZmqIoLoop* loop) ABSL_EXCLUSIVE_LOCK_FUNCTION(loop->turn_) : loop_(loop) {
    loop_->turn_.Lock();
    loop_->in_turn_ = Thread::CurrentId();
  }
  TurnLock(ZmqIoLoop* loop, Locked) ABSL_EXCLUSIVE_LOCKS_REQUIRED(loop->turn_) : loop_(loop) {
    loop_->in_turn_ = Thread::CurrentId();
  }
  ~TurnLock() ABSL_UNLOCK_FUNCTION() {
    loop_->in_turn_ = Thread::Id();
    loop_->turn_.Unlock();
  }
  TurnLock(const TurnLock&) = delete;
  TurnLock& operator=(const TurnLock&) = delete;

 private:
  ZmqIoLoop* const loop_;
};

void ZmqIoLoop::Run() {
  while (Turn()) Sleep();
}

bool ZmqIoLoop::Turn() {
  const TurnLock lock(this);
  CheckEvents();
  ReceiveReady();
  SteadyTime now = options_.clock->Now();
  DeliverDue(now);
  CloseExcessive(now);
  // Cleared before the queue is read: what is sent before this line leaves below (also what the
  // handlers above sent); a Send after it signals again and ends the next sleep.
  state_->wakeup()->Clear();
  OpenConnections();
  ReleaseHeld(now);
  SendControls(now);
  SendReady(now);
  now = options_.clock->Now();
  if (Finished(now)) {
    Close(now);
    return false;
  }
  // ReceiveReady and SendReady used sockets, which may have swallowed the signal on their fds. So
  // the events are read once more before the thread sleeps on the fds.
  sleep_until_ = CheckEvents() ? SteadyTime::InfinitePast() : NextWake();
  // No socket has anything left, so the sink has all that had arrived when the last sleep began.
  if (std::ranges::none_of(links_, &Link::readable)) state_->Delivered(slept_at_);
  fds_.clear();
  for (const Link& link : links_) fds_.push_back({link.fd, POLLIN, 0});
  if (sharing_.on()) fds_.push_back({sharing_.process_fd(), POLLIN, 0});
  for (const Link& link : links_) fds_.push_back({link.monitor.fd(), POLLIN, 0});
  return true;
}

void ZmqIoLoop::Sleep() {
  slept_at_ = options_.clock->Now();
  state_->wakeup()->Sleep(&fds_, sleep_until_);
  const TurnLock lock(this);
  size_t i = 0;
  for (Link& link : links_) link.unchecked |= fds_[i++].revents != 0;
  if (sharing_.on() && fds_[i++].revents != 0) sharing_.TakeEndedProcesses();
  for (Link& link : links_) link.has_events |= fds_[i++].revents != 0;
}

void ZmqIoLoop::SendHere() {
  // A sink that sends from a handler is in a turn of this thread already. Even to try the lock
  // would then be undefined behaviour.
  if (in_turn_ == Thread::CurrentId() || !turn_.TryLock()) {
    return state_->wakeup()->Signal();
  }
  bool more = true;
  {
    const TurnLock lock(this, TurnLock::Locked());
    SendReady(options_.clock->Now());
    // Using a socket may swallow the signal on its fd on which the I/O thread sleeps.
    more = CheckEvents() || !state_->NothingToSend();
  }
  if (more) state_->wakeup()->Signal();
}

// ---- sending ------------------------------------------------------------

void ZmqIoLoop::OpenConnections() {
  for (TransportState::NewConnection& wanted : state_->TakeNewConnections()) {
    absl::StatusOr<ZmqSocket> socket = OpenSocket(context_.get(), ZMQ_DEALER, options_);
    absl::Status opened = socket.status();
    if (opened.ok() && zmq_connect(socket->get(), wanted.address.c_str()) != 0) {
      opened = absl::InvalidArgumentError(
          absl::StrCat("cannot connect to ", wanted.address, ": ", zmq_strerror(zmq_errno())));
    }
    if (!opened.ok()) {
      DropPeer(wanted.peer, opened);
      continue;
    }
    const bool is_ipc = wanted.address.starts_with("ipc://");
    const int fd = EventFd(socket->get());
    links_.push_back(Link{.socket = *std::move(socket),
                          .fd = fd,
                          .is_ipc = is_ipc,
                          .peers = PeerTable(1),
                          .peer = wanted.peer});
    WatchConnections(&links_.back());
    if (is_ipc) sharing_.AddPeer(wanted.peer);
    // Held until the socket reports a connection that it can write to.
    routes_[wanted.peer] = Route{.link = &links_.back(),
                                 .ahead = std::make_shared<Ahead>(),
                                 .held = Held::kUnwritable,
                                 .retry_at = SteadyTime::InfiniteFuture()};
    held_.insert(wanted.peer);
  }
}

bool ZmqIoLoop::IsAhead(const Route& route) const {
  return route.ahead->bytes >= options_.max_bytes_ahead_per_peer ||
         route.ahead->messages >= options_.max_messages_ahead_per_peer ||
         (route.is_stranger && route.ahead->messages >= kMessagesAheadOfStranger);
}

void ZmqIoLoop::ReleaseHeld(SteadyTime now) {
  for (auto it = held_.begin(); it != held_.end();) {
    Route& route = routes_.at(*it);
    bool release = false;
    if (route.held == Held::kAhead) {
      release = !IsAhead(route);
    } else {
      // A ROUTER cannot say which peer is writable, so its peers are tried again after a time.
      release = route.link->is_router ? route.retry_at <= now : route.link->writable;
    }
    if (!release) {
      ++it;
      continue;
    }
    route.held = Held::kNo;
    route.ahead->watched = false;
    state_->Release(*it, now);
    it = held_.erase(it);
  }
}

void ZmqIoLoop::SendControls(SteadyTime now) {
  const auto may_send = [this](PeerId peer)
                            ABSL_NO_THREAD_SAFETY_ANALYSIS { return !IsHeldUnwritable(peer); };
  for (PayloadSharing::Control& control : sharing_.TakeControls(may_send)) {
    const PeerId peer = control.peer;
    const auto found = routes_.find(peer);
    SendResult result = SendResult::kNoRoute;
    if (found != routes_.end()) {
      Route& route = found->second;
      route.link->unchecked = true;
      result = SendParts(route.link->socket.get(), route.routing_id, {&control.part, 1}, nullptr);
      if (result == SendResult::kWouldBlock) HoldUnwritable(peer, &route, now);
    }
    if (result == SendResult::kSent) continue;
    // Put back before the peer is dropped: its returns are then due to its process, perhaps by
    // another connection.
    sharing_.PutBack(std::move(control));
    if (result == SendResult::kNoRoute) DropPeer(peer, absl::UnavailableError("the peer is gone"));
    if (result != SendResult::kWouldBlock) state_->wakeup()->Signal();
  }
}

void ZmqIoLoop::SendReady(SteadyTime now) {
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

// Sends the frame, with payloads lent as far as possible.
SendResult ZmqIoLoop::SendFrame(Route* route, const Outgoing& message) {
  route->link->unchecked = true;
  SendResult result = SendResult::kLost;
  const std::optional<PayloadSharing::Loan> loan = sharing_.Lend(message.to, message.frame);
  const absl::Cleanup take_back = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (loan && result != SendResult::kSent) sharing_.TakeBack(loan->leases);
  };
  const std::shared_ptr<void> token = std::make_shared<AheadToken>(
      route->ahead, state_->wakeup(), loan ? loan->inline_bytes : message.bytes);
  result = SendParts(route->link->socket.get(), route->routing_id,
                     loan ? loan->parts : message.frame, token);
  if (loan && result == SendResult::kSent) state_->CountLent(loan->lent_bytes);
  return result;
}

void ZmqIoLoop::HandOver(Outgoing message, SteadyTime now) {
  const PeerId peer = message.to;
  const auto found = routes_.find(peer);
  if (found == routes_.end()) {  // forgotten while the emulated link carried it
    ReportUndeliverable(peer, 1, absl::UnavailableError("the peer is gone"));
    return;
  }
  Route& route = found->second;
  switch (SendFrame(&route, message)) {
    case SendResult::kSent:
      state_->CountSent(message.bytes);
      if (message.on_handed_over) message.on_handed_over(message.carried ? message.began : now);
      HoldIfAhead(peer, &route);
      return;
    case SendResult::kWouldBlock:
      HoldUnwritable(peer, &route, now);
      state_->Return(std::move(message));
      return;
    case SendResult::kLost:
      ReportUndeliverable(peer, 1, absl::UnavailableError("broken off while it was being sent"));
      return;
    case SendResult::kNoRoute:
      ReportUndeliverable(peer, 1, absl::UnavailableError("the peer is gone"));
      DropPeer(peer, absl::UnavailableError("the peer is gone"));
      return;
  }
}

void ZmqIoLoop::HoldUnwritable(PeerId peer, Route* route, SteadyTime now) {
  held_.insert(peer);
  route->held = Held::kUnwritable;
  route->retry_at = now + kRouterRetry;
  route->link->writable = false;
  state_->Hold(peer);
}

void ZmqIoLoop::HoldIfAhead(PeerId peer, Route* route) {
  if (!IsAhead(*route)) return;
  route->ahead->watched = true;
  // Checked again after `watched` was set: a release before that signalled nothing.
  if (!IsAhead(*route)) {
    route->ahead->watched = false;
    return;
  }
  held_.insert(peer);
  route->held = Held::kAhead;
  state_->Hold(peer);
}

void ZmqIoLoop::DropPeer(PeerId peer, const absl::Status& why) {
  const auto found = routes_.find(peer);
  if (found != routes_.end()) {
    if (found->second.link->is_router) found->second.link->peers.Remove(found->second.routing_id);
    held_.erase(peer);
    routes_.erase(found);
    sharing_.RemovePeer(peer);
  }
  ReportUndeliverable(peer, state_->RemovePeer(peer).size(), why);
}

void ZmqIoLoop::ReportUndeliverable(PeerId peer, size_t messages, const absl::Status& why) {
  for (size_t i = 0; i < messages; ++i) {
    state_->CountUndeliverable();
    sink_->OnUndeliverable(peer, why);
  }
}

// ---- receiving ------------------------------------------------------------

SteadyTime ZmqIoLoop::NextWake() const {
  SteadyTime wake =
      std::min({state_->NextSend(), arrivals_.NextWake(), stop_by_, returns_by_, next_strangers_});
  for (const PeerId peer : held_) {
    const Route& route = routes_.at(peer);
    if (route.held == Held::kUnwritable && route.link->is_router) {
      wake = std::min(wake, route.retry_at);
    }
  }
  return wake;
}

bool ZmqIoLoop::IsHeldUnwritable(PeerId peer) const {
  const auto found = routes_.find(peer);
  return found != routes_.end() && found->second.held == Held::kUnwritable;
}

bool ZmqIoLoop::CheckEvents() {
  bool work = more_to_send_;
  for (Link& link : links_) {
    if (link.unchecked) {
      const int events = Events(link.socket.get());
      link.readable = (events & ZMQ_POLLIN) != 0;
      link.writable = (events & ZMQ_POLLOUT) != 0;
      link.unchecked = false;
    }
    work |= link.readable && !arrivals_.IsFull();
    work |= link.writable && !link.is_router && IsHeldUnwritable(link.peer);
  }
  return work;
}

void ZmqIoLoop::ReceiveReady() {
  for (Link& link : links_) {
    if (std::exchange(link.has_events, false)) TakeEvents(&link);
    if ((!link.readable && link.events.empty()) || arrivals_.IsFull()) continue;
    link.unchecked = true;
    for (int i = 0; i < kMessagesPerTurn && !arrivals_.IsFull(); ++i) {
      if (ReceiveOne(&link)) continue;
      HeedEvents(&link);
      break;
    }
  }
}

// ---- stopping ------------------------------------------------------------

bool ZmqIoLoop::Finished(SteadyTime now) {
  if (!state_->stopping()) return false;
  if (stop_by_ == SteadyTime::InfiniteFuture()) stop_by_ = now + options_.linger;
  // The linger time bounds everything. Once nothing is left to send, only loans are waited for, and
  // for a shorter time.
  if (now >= stop_by_) return true;
  if (!state_->NothingToSend()) return false;
  if (returns_by_ == SteadyTime::InfiniteFuture()) returns_by_ = now + kReturnLinger;
  return !sharing_.lends() || now >= returns_by_;
}

void ZmqIoLoop::Close(SteadyTime now) {
  for (const Outgoing& message : state_->TakeAll()) {
    ReportUndeliverable(message.to, 1, absl::UnavailableError("stopped before it could be sent"));
  }
  const int64_t linger_ms = absl::ToInt64Milliseconds(stop_by_ - now);
  for (Link& link : links_) {
    // What ZeroMQ still holds leaves while the context is destroyed. Its destruction waits this
    // long at most.
    [[maybe_unused]] const absl::Status set =
        SetSocketOption(link.socket.get(), ZMQ_LINGER,
                        static_cast<int>(std::clamp<int64_t>(linger_ms, 0, 3600000)), "linger");
  }
  // The last returns leave, so that their lenders need not keep the payloads.
  SendControls(now);
  sharing_.Close();
  routes_.clear();
  links_.clear();
  context_.reset();  // after all sockets: it waits for them
}

}  // namespace slimps
