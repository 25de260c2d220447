// SPDX-License-Identifier: Apache-2.0
#include "worker/courier/courier.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "proto/base/clock.h"
#include "proto/base/trace/trace.h"
#include "proto/header_body.h"
#include "proto/status_proto.h"

namespace slimps {
namespace {

// No limits: payloads are the callers' memory, and the callers bound what they hand over.
RetryOptions WithoutLimits(absl::Duration first_interval) {
  return {.first_interval = first_interval,
          .max_items = std::numeric_limits<size_t>::max(),
          .max_bytes = std::numeric_limits<size_t>::max()};
}

wire::ItemId* MutableId(OutgoingItem& out) {
  return std::visit([](auto& item) { return item.mutable_id(); }, out.item);
}

std::string Describe(const OutgoingItem& out, uint32_t server) {
  const char* kind = std::holds_alternative<wire::PullItem>(out.item)   ? "pull"
                     : std::holds_alternative<wire::PushItem>(out.item) ? "push"
                                                                        : "init";
  const wire::ItemId& id =
      std::visit([](const auto& item) -> const wire::ItemId& { return item.id(); }, out.item);
  return absl::StrCat(kind, " of key ", out.key_name, " partition ", id.partition(), " to server ",
                      server);
}

absl::Status Annotate(const absl::Status& status, const OutgoingItem& out, uint32_t server) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(Describe(out, server), ": ", status.message()));
}

void TracePassage(const OutgoingItem& out, SteadyTime handed_over, SteadyTime answered) {
  if (const auto* push = std::get_if<wire::PushItem>(&out.item)) {
    TraceLog::Global().Add(TraceStage::kSend, {out.key_name, push->id().partition(), push->round()},
                           handed_over, answered);
  } else if (const auto* pull = std::get_if<wire::PullItem>(&out.item)) {
    TraceLog::Global().Add(TraceStage::kPull,
                           {out.key_name, pull->id().partition(), pull->min_version()}, handed_over,
                           answered);
  }
}

}  // namespace

Courier::Courier(Transport* transport, Membership* membership, std::vector<PeerId> servers,
                 CourierOptions options)
    : transport_(transport),
      membership_(membership),
      servers_(std::move(servers)),
      options_(options),
      retries_(WithoutLimits(options.retry_interval)),
      heard_(servers_.size(), SteadyTime::InfinitePast()),
      timer_("courier-timer", [this] { TimerLoop(); }) {}

Courier::~Courier() { Stop(); }

void Courier::Stop() {
  FailAll(absl::CancelledError("the store was closed"));
  Thread timer;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stop_.NotifyAll();
    timer = std::move(timer_);
  }
  if (timer.joinable()) timer.Join();  // without the lock, which the timer thread takes
}

void Courier::Dispatch(uint32_t server, std::vector<OutgoingItem> items, int64_t priority,
                       Sender sender) {
  const std::span<OutgoingItem> all = items;
  OrTell(options_.on_out_of_memory, [&] {
    if (options_.coalesce) return DispatchTogether(server, all, priority, sender);
    for (size_t i = 0; i < all.size(); ++i) {
      DispatchTogether(server, all.subspan(i, 1), priority, sender);
    }
  });
}

void Courier::DispatchTogether(uint32_t server, std::span<OutgoingItem> items, int64_t priority,
                               Sender sender) {
  std::vector<uint64_t> tickets;
  Message message;
  absl::Status failed;
  {
    MutexLock lock(&mutex_);
    failed = failed_;
    if (failed.ok()) message = Enter(server, items, priority, &tickets);
  }
  if (!failed.ok()) {
    for (OutgoingItem& out : items) out.done(Answer{.status = failed});
    return;
  }
  Send(server, std::move(message), tickets, priority, sender);
}

Message Courier::Enter(uint32_t server, std::span<OutgoingItem> items, int64_t priority,
                       std::vector<uint64_t>* tickets) {
  const SteadyTime now = options_.clock->Now();
  for (OutgoingItem& out : items) {
    const uint64_t ticket = next_ticket_++;
    MutableId(out)->set_ticket(ticket);
    tickets->push_back(ticket);
    const absl::Status added =
        retries_.Add(ticket, out.payload.size(), now + options_.timeout, now);
    CHECK(added.ok()) << added;  // a new ticket, and no limits
    requests_.emplace(
        ticket,
        Request{.out = std::move(out), .server = server, .priority = priority, .dispatched = now});
  }
  return BuildMessage(*tickets);
}

Message Courier::BuildMessage(const std::vector<uint64_t>& tickets) {
  Message message;
  message.header = membership_->MakeHeader();
  // Servers group answers by request id: a message with its own id gets its own answer.
  if (!options_.coalesce) message.header.set_request_id(next_request_++);
  bool pushes = false, pulls = false;
  for (uint64_t ticket : tickets) {
    const OutgoingItem& out = requests_.at(ticket).out;
    pushes |= std::holds_alternative<wire::PushItem>(out.item);
    pulls |= std::holds_alternative<wire::PullItem>(out.item);
    if (!out.payload.empty()) message.payloads.push_back(out.payload);
  }
  GiveBody(pushes && pulls ? wire::Header::kPushPull
           : pushes        ? wire::Header::kPush
           : pulls         ? wire::Header::kPull
                           : wire::Header::kInit,
           &message.header);
  for (uint64_t ticket : tickets) {
    const OutgoingItem& out = requests_.at(ticket).out;
    wire::Header& header = message.header;
    if (const auto* push = std::get_if<wire::PushItem>(&out.item)) {
      *(pulls ? header.mutable_push_pull()->add_push() : header.mutable_push()->add_items()) =
          *push;
    } else if (const auto* pull = std::get_if<wire::PullItem>(&out.item)) {
      *(pushes ? header.mutable_push_pull()->add_pull() : header.mutable_pull()->add_items()) =
          *pull;
    } else {
      header.mutable_init()->set_mode(options_.mode);
      header.mutable_init()->set_staleness(options_.staleness);
      *header.mutable_init()->add_items() = std::get<wire::InitItem>(out.item);
    }
  }
  return message;
}

void Courier::Send(uint32_t server, Message message, const std::vector<uint64_t>& tickets,
                   int64_t priority, Sender sender) {
  // Before transport_->Send: the message may be handed over before that returns.
  MarkQueued(tickets);
  SendOptions options{.priority = priority, .may_hand_over_here = sender == Sender::kWaits};
  options.on_handed_over = [this, tickets](SteadyTime when) { MarkHandedOver(tickets, when); };
  const absl::Status sent =
      transport_->Send(servers_[server], std::move(message), std::move(options));
  if (sent.ok()) return;
  MarkUnsent(tickets);
  // A full queue empties again: the items stay, and the timer retries.
  if (absl::IsResourceExhausted(sent)) return;
  for (uint64_t ticket : tickets) AnswerItem(ticket, Answer{.status = sent});
}

void Courier::MarkHandedOver(const std::vector<uint64_t>& tickets, SteadyTime when) {
  MutexLock lock(&mutex_);
  for (uint64_t ticket : tickets) {
    auto found = requests_.find(ticket);
    if (found == requests_.end()) continue;
    Request& request = found->second;
    // Only the first time counts: after a second one nobody knows which of them was answered.
    request.sent_again = request.handed_over != SteadyTime::InfinitePast();
    if (!request.sent_again) request.handed_over = when;
    request.queued = false;
  }
}

void Courier::MarkQueued(const std::vector<uint64_t>& tickets) {
  MutexLock lock(&mutex_);
  for (uint64_t ticket : tickets) {
    auto found = requests_.find(ticket);
    if (found != requests_.end()) found->second.queued = true;
  }
}

void Courier::MarkUnsent(const std::vector<uint64_t>& tickets) {
  const SteadyTime again = options_.clock->Now() + options_.retry_interval;
  MutexLock lock(&mutex_);
  for (uint64_t ticket : tickets) {
    auto found = requests_.find(ticket);
    if (found == requests_.end()) continue;
    found->second.queued = false;
    retries_.Postpone(ticket, again);
  }
}

void Courier::OnUndeliverable(PeerId server) {
  MutexLock lock(&mutex_);
  for (auto& [ticket, request] : requests_) {
    if (servers_[request.server] == server) request.queued = false;
  }
}

void Courier::NoteHeard(PeerId from) {
  MutexLock lock(&mutex_);
  for (size_t server = 0; server < servers_.size(); ++server) {
    if (servers_[server] == from) heard_[server] = options_.clock->Now();
  }
}

bool Courier::HandleMessage(PeerId from, Message& message) {
  NoteHeard(from);
  const wire::Header& header = message.header;
  switch (header.body_case()) {
    case wire::Header::kPushReply:
      HandleStatuses(from, header.push_reply().items());
      return true;
    case wire::Header::kInitReply:
      HandleStatuses(from, header.init_reply().items());
      return true;
    case wire::Header::kPullReply:
      HandleStatuses(from, header.pull_reply().pushed());
      HandlePullReply(from, message);
      return true;
    default:
      return false;
  }
}

bool Courier::IsAsked(PeerId server, uint64_t ticket) const {
  MutexLock lock(&mutex_);
  const auto found = requests_.find(ticket);
  return found != requests_.end() && servers_[found->second.server] == server;
}

void Courier::HandleStatuses(PeerId from,
                             const google::protobuf::RepeatedPtrField<wire::ItemStatus>& items) {
  for (const wire::ItemStatus& item : items) {
    if (!IsAsked(from, item.id().ticket())) continue;
    const absl::Status status = FromStatusProto(item.status());
    if (Defer(item.id().ticket(), status)) continue;
    AnswerItem(item.id().ticket(),
               Answer{.status = status, .decode = absl::Nanoseconds(item.decode_ns())});
  }
}

void Courier::HandlePullReply(PeerId from, Message& message) {
  size_t next_payload = 0;
  for (const wire::PullReplyItem& item : message.header.pull_reply().items()) {
    // Takes the payload of every item, also of one that is skipped below. ParseFrame has checked
    // that the frames match the items.
    Payload payload;
    if (item.payload_bytes() > 0) payload = std::move(message.payloads[next_payload++]);
    if (!IsAsked(from, item.id().ticket())) continue;
    Answer answer{
        .status = FromStatusProto(item.status()), .pull = item, .payload = std::move(payload)};
    if (Defer(item.id().ticket(), answer.status)) continue;
    AnswerItem(item.id().ticket(), std::move(answer));
  }
}

void Courier::AnswerItem(uint64_t ticket, Answer answer) {
  Request request;
  {
    MutexLock lock(&mutex_);
    auto found = requests_.find(ticket);
    if (found == requests_.end()) return;  // answered before: a retried item is answered twice
    request = std::move(found->second);
    requests_.erase(found);
    retries_.OnAnswer(ticket);
    deferred_.erase(ticket);
  }
  answer.status = Annotate(answer.status, request.out, request.server);
  if (request.handed_over != SteadyTime::InfinitePast()) {
    const SteadyTime now = options_.clock->Now();
    if (!request.sent_again) answer.round_trip = now - request.handed_over;
    TracePassage(request.out, request.handed_over, now);
  }
  request.out.done(std::move(answer));  // without the lock: it may call Dispatch
}

void Courier::FailAll(const absl::Status& why) {
  // One by one: AnswerItem takes the lock itself.
  for (;;) {
    uint64_t ticket = 0;
    {
      MutexLock lock(&mutex_);
      if (failed_.ok()) failed_ = why;  // from here on Dispatch adds none
      if (requests_.empty()) return;
      ticket = requests_.begin()->first;
    }
    AnswerItem(ticket, Answer{.status = why});
  }
}

size_t Courier::outstanding() const {
  MutexLock lock(&mutex_);
  return requests_.size();
}

}  // namespace slimps
