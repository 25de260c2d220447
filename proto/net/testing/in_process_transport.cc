// SPDX-License-Identifier: Apache-2.0
#include "proto/net/testing/in_process_transport.h"

#include <algorithm>
#include <span>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"

namespace slimps {
namespace {

constexpr int kMessagesPerTurn = 64;  // sent, then received, before the other's turn

}  // namespace

InProcessTransport::InProcessTransport(std::shared_ptr<InProcessNetwork> network,
                                       const TransportOptions& options)
    : options_(options),
      network_(std::move(network)),
      state_(options),
      inbox_(network_->OpenInbox(state_.wakeup())),
      arrivals_(options) {}

InProcessTransport::~InProcessTransport() {
  Stop();
  network_->CloseInbox(inbox_);
}

absl::StatusOr<std::string> InProcessTransport::Bind(std::string_view address) {
  MutexLock lock(&mutex_);
  if (started_) return absl::FailedPreconditionError("Bind comes before Start");
  return network_->Bind(std::string(address), inbox_);
}

absl::Status InProcessTransport::Start(MessageSink* sink) {
  MutexLock lock(&mutex_);
  if (started_ || state_.stopping()) {
    return absl::FailedPreconditionError("a transport starts once, before it stops");
  }
  if (!state_.wakeup()->ok()) return absl::ResourceExhaustedError("no file descriptor left");
  sink_ = sink;
  started_ = true;
  try {
    io_thread_ =
        Thread("slimps-inproc", [this, sink] { state_.RunOrTell(sink, [this] { Run(); }); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("no I/O thread: ", error.what()));
  }
  return absl::OkStatus();
}

absl::StatusOr<PeerId> InProcessTransport::Connect(std::string_view address) {
  if (address.substr(0, 9) != "inproc://" || address.size() == 9 || address == "inproc://*") {
    return absl::InvalidArgumentError(
        absl::StrCat("'", std::string(address), "' is no address to connect to"));
  }
  return state_.Connect(std::string(address));
}

absl::Status InProcessTransport::Send(PeerId to, Message message, SendOptions options) {
  return state_.Send(to, std::move(message), std::move(options));
}

void InProcessTransport::Stop() {
  state_.Stop();
  Thread io_thread;
  {
    MutexLock lock(&mutex_);
    io_thread = std::move(io_thread_);
  }
  if (io_thread.joinable()) io_thread.Join();
}

TransportStats InProcessTransport::stats() const { return state_.stats(); }

void InProcessTransport::Run() {
  for (;;) {
    const SteadyTime now = options_.clock->Now();
    OpenConnections();
    ReleaseHeld(now);
    SendReady(now);
    DeliverDue(now);
    if (Finished(options_.clock->Now())) break;
    Wait();
    ReceiveReady();
  }
  for (const Outgoing& message : state_.TakeAll()) {
    ReportUndeliverable(message.to, "stopped before it could be sent");
  }
  network_->CloseInbox(inbox_);
}

// ---- sending ------------------------------------------------------------

void InProcessTransport::OpenConnections() {
  for (const PeerId peer : state_.TakeGivenUp()) {
    routes_.erase(peer);
    held_.erase(peer);
    state_.RemovePeer(peer);
  }
  for (TransportState::NewConnection& wanted : state_.TakeNewConnections()) {
    routes_[wanted.peer].address = std::move(wanted.address);
    held_.insert(wanted.peer);
  }
}

std::shared_ptr<InProcessInbox> InProcessTransport::InboxOf(Route* route) {
  std::shared_ptr<InProcessInbox> inbox = route->inbox.lock();
  if (inbox != nullptr && inbox->closed()) inbox = nullptr;
  if (inbox == nullptr && !route->address.empty()) {
    // Another transport may serve the name now. The connection is then made again.
    inbox = network_->Find(route->address);
    route->inbox = inbox;
  }
  return inbox;
}

void InProcessTransport::ReleaseHeld(SteadyTime now) {
  for (auto it = held_.begin(); it != held_.end();) {
    Route& route = routes_.at(*it);
    const std::shared_ptr<InProcessInbox> inbox = InboxOf(&route);
    // An accepted peer that is gone is released too, so that HandOver reports it.
    const bool release = inbox == nullptr ? route.address.empty() : inbox->IsReady();
    if (release) state_.Release(*it, now);
    it = release ? held_.erase(it) : std::next(it);
  }
}

void InProcessTransport::SendReady(SteadyTime now) {
  more_to_do_ = true;
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    std::optional<Outgoing> next = state_.Pop(now);
    if (!next) {
      more_to_do_ = false;
      return;
    }
    HandOver(*std::move(next), now);
  }
}

void InProcessTransport::HandOver(Outgoing message, SteadyTime now) {
  const PeerId peer = message.to;
  const auto found = routes_.find(peer);
  if (found == routes_.end()) {
    ReportUndeliverable(peer, "the peer is gone");
    return;
  }
  Route& route = found->second;
  const std::shared_ptr<InProcessInbox> inbox = InboxOf(&route);
  InProcessInbox::Delivery delivery = InProcessInbox::Delivery::kClosed;
  if (inbox != nullptr) {
    delivery =
        inbox->Deliver({inbox_, inbox_->id(), peer, route.remote, message.frame}, state_.wakeup());
  }
  if (delivery == InProcessInbox::Delivery::kTaken) {
    state_.CountSent(message.bytes);
    if (message.on_handed_over) message.on_handed_over(message.carried ? message.began : now);
  } else if (delivery == InProcessInbox::Delivery::kClosed && route.address.empty()) {
    ReportUndeliverable(peer, "the peer is gone");
    DropPeer(peer);
  } else {
    held_.insert(peer);
    state_.Return(std::move(message));
  }
}

void InProcessTransport::DropPeer(PeerId peer) {
  held_.erase(peer);
  routes_.erase(peer);
  std::erase_if(accepted_, [peer](const auto& entry) { return entry.second == peer; });
  for (size_t i = state_.RemovePeer(peer).size(); i > 0; --i) {
    ReportUndeliverable(peer, "the peer is gone");
  }
}

void InProcessTransport::ReportUndeliverable(PeerId peer, const char* why) {
  state_.ReportUndeliverable(sink_, peer, absl::UnavailableError(why));
}

// ---- receiving ------------------------------------------------------------

void InProcessTransport::Wait() {
  std::vector<pollfd> none;
  state_.wakeup()->Sleep(
      &none, more_to_do_ ? SteadyTime::InfinitePast()
                         : std::min({state_.NextSend(), arrivals_.NextWake(), stop_by_}));
  state_.wakeup()->Clear();
}

void InProcessTransport::ReceiveReady() {
  const SteadyTime began = options_.clock->Now();
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    if (arrivals_.IsFull()) return;
    std::optional<Packet> packet = inbox_->Take();
    if (!packet) return state_.Delivered(began);
    TakePacket(*std::move(packet));
  }
  state_.wakeup()->Signal();  // the inbox may hold more
}

void InProcessTransport::TakePacket(Packet packet) {
  PeerId from{};
  if (packet.to) {
    from = *packet.to;
  } else {
    PeerId& known = accepted_[{packet.from_inbox, packet.from_peer}];
    if (known == PeerId{}) {
      known = state_.AcceptPeer();
      routes_[known] = Route{.address = "", .inbox = packet.from, .remote = packet.from_peer};
    }
    from = known;
  }
  std::vector<std::span<const std::byte>> spans;
  size_t bytes = 0;
  for (const Payload& part : packet.frame) {
    spans.push_back(part.bytes());
    bytes += part.size();
  }
  absl::StatusOr<wire::Header> header = ParseFrame(spans, options_.limits);
  if (!header.ok()) return state_.ReportBadFrame(sink_, from, header.status());
  Message message;
  message.header = *std::move(header);
  message.payloads.assign(std::make_move_iterator(packet.frame.begin() + 1),
                          std::make_move_iterator(packet.frame.end()));
  state_.CountReceived(bytes);
  if (arrivals_.emulated()) {
    arrivals_.Push(from, std::move(message), bytes, options_.clock->Now());
  } else {
    sink_->OnMessage(from, std::move(message));
  }
}

void InProcessTransport::DeliverDue(SteadyTime now) {
  while (std::optional<Arrival> arrival = arrivals_.Pop(now)) {
    sink_->OnMessage(arrival->from, std::move(arrival->message));
    // There is room again. Packets may wait in the inbox, and their signal came long ago.
    state_.wakeup()->Signal();
  }
}

bool InProcessTransport::Finished(SteadyTime now) {
  if (!state_.stopping()) return false;
  if (stop_by_ == SteadyTime::InfiniteFuture()) stop_by_ = now + options_.linger;
  return state_.NothingToSend() || now >= stop_by_;
}

}  // namespace slimps
