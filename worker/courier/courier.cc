// SPDX-License-Identifier: Apache-2.0
#include "worker/courier/courier.h"

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "proto/base/simulation/mutant.h"
#include "proto/base/status_copy.h"
#include "proto/base/trace/trace.h"
#include "proto/status_proto.h"
#include "worker/courier/item_message.h"

namespace slimps {
namespace {

constexpr absl::Duration kTimerStep = absl::Milliseconds(100);

std::string Describe(const OutgoingItem& out, uint32_t server) {
  const char* kind = out.is<wire::PullItem>() ? "pull" : out.is<wire::PushItem>() ? "push" : "init";
  return absl::StrCat(kind, " of key ", out.key_name, " partition ", out.id().partition(),
                      " to server ", server);
}

void TracePassage(const OutgoingItem& out, SteadyTime handed_over, SteadyTime answered) {
  if (const auto* push = std::get_if<wire::PushItem>(&out.item)) {
    if (push->has_gradient_scale()) return;  // no part of the tensor
    TraceLog::Global().Add(TraceStage::kSend, {out.key_name, push->id().partition(), push->round()},
                           handed_over, answered);
  } else if (const auto* pull = std::get_if<wire::PullItem>(&out.item)) {
    if (pull->norm()) return;
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
      options_(std::move(options)),
      items_(std::move(servers), options_.timeout, options_.retry_interval),
      timer_("courier-timer", [this] { TimerLoop(); }) {
  MutexLock lock(&mutex_);
  if (options_.max_kept_bytes.has_value()) kept_.emplace(*options_.max_kept_bytes);
}

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
    if (failed.ok()) {
      const SteadyTime now = options_.clock->Now();
      if (items_.size() == 0 && options_.on_travel) options_.on_travel(true);
      for (OutgoingItem& out : items) {
        tickets.push_back(items_.Add(std::move(out), server, priority, now));
      }
      message = BuildMessage(tickets);
    }
  }
  if (!failed.ok()) {
    for (OutgoingItem& out : items) out.done(Answer{.status = failed});
    return;
  }
  Send(server, std::move(message), tickets, priority, sender);
}

Message Courier::BuildMessage(const std::vector<uint64_t>& tickets) {
  Message message;
  message.header = membership_->MakeHeader();
  // Servers group answers by request id: a message with its own id gets its own answer.
  if (!options_.coalesce) message.header.set_request_id(next_request_++);
  std::vector<const OutgoingItem*> items;
  for (uint64_t ticket : tickets) items.push_back(&items_.Find(ticket)->out);
  PutItems(items, options_.mode, options_.staleness, &message);
  return message;
}

void Courier::Send(uint32_t server, Message message, const std::vector<uint64_t>& tickets,
                   int64_t priority, Sender sender) {
  PeerId peer{};
  // Before transport_->Send: the message may be handed over before that returns.
  {
    MutexLock lock(&mutex_);
    peer = items_.PeerOf(server);
    items_.MarkQueued(tickets);
  }
  SendOptions options{.priority = priority, .may_hand_over_here = sender == Sender::kWaits};
  options.on_handed_over = [this, tickets](SteadyTime when) {
    MutexLock lock(&mutex_);
    items_.MarkHandedOver(tickets, when);
  };
  const absl::Status sent = transport_->Send(peer, std::move(message), std::move(options));
  if (sent.ok()) return;
  {
    const SteadyTime now = options_.clock->Now();
    MutexLock lock(&mutex_);
    items_.MarkUnsent(tickets, now);
  }
  // A full queue empties again: the items stay, and the timer retries. So they do where the server
  // was started again meanwhile, and that peer is no more.
  if (absl::IsResourceExhausted(sent)) return;
  if (absl::IsNotFound(sent) && options_.max_kept_bytes.has_value()) return;
  for (uint64_t ticket : tickets) AnswerItem(ticket, Answer{.status = sent});
}

// ---- answers ------------------------------------------------------------------------------------

bool Courier::HandleMessage(PeerId from, Message& message) {
  {
    MutexLock lock(&mutex_);
    items_.OnHeard(from, options_.clock->Now());
  }
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
  return items_.IsAsked(server, ticket);
}

void Courier::HandleStatuses(PeerId from,
                             const google::protobuf::RepeatedPtrField<wire::ItemStatus>& items) {
  for (const wire::ItemStatus& item : items) {
    if (!IsAsked(from, item.id().ticket())) continue;
    const absl::Status status = FromStatusProto(item.status());
    if (Defer(item.id().ticket(), status)) continue;
    Answer answer{.status = status,
                  .decode = absl::Nanoseconds(item.decode_ns()),
                  .standing = item.standing()};
    if (item.has_durable()) answer.durable = item.durable();
    AnswerItem(item.id().ticket(), std::move(answer));
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
  std::optional<OutstandingItem> item;
  bool wants_snapshot = false;
  {
    MutexLock lock(&mutex_);
    item = items_.Take(ticket);
    if (item.has_value() && items_.size() == 0 && options_.on_travel) options_.on_travel(false);
    // Before `done`, which may push the next round.
    if (item.has_value() && answer.status.ok()) {
      wants_snapshot = Keep(*item, answer.durable);
      if (item->owed) --owed_;
    }
  }
  if (!item.has_value()) return;  // answered before: a retried item is answered twice
  if (wants_snapshot) options_.on_snapshot_wanted(item->server);
  if (!answer.status.ok()) {
    answer.status = Prefixed(answer.status, Describe(item->out, item->server));
  }
  if (item->handed_over != SteadyTime::InfinitePast()) {
    const SteadyTime now = options_.clock->Now();
    if (!item->sent_again) answer.round_trip = now - item->handed_over;
    TracePassage(item->out, item->handed_over, now);
  }
  item->out.done(std::move(answer));  // without the lock: it may call Dispatch
  if (item->owed) TellIfReplayed();
}

bool Courier::Keep(const OutstandingItem& item, std::optional<uint64_t> durable) {
  if (!kept_.has_value()) return false;
  kept_->Keep(item.server, item.out);
  if (durable.has_value()) kept_->DropDurable(item.out.id(), *durable);
  return kept_->TakeWish();
}

bool Courier::Defer(uint64_t ticket, const absl::Status& status) {
  MutexLock lock(&mutex_);
  const bool stops = kept_.has_value() && absl::IsUnavailable(status);
  const bool is_behind =
      kept_.has_value() && absl::IsNotFound(status) && items_.IsOfKnownKey(ticket);
  if (!absl::IsResourceExhausted(status) && !stops && !is_behind) return false;
  return items_.Defer(ticket, status, options_.clock->Now());
}

void Courier::FailAll(const absl::Status& why) {
  // One by one: AnswerItem takes the lock itself.
  for (;;) {
    std::optional<uint64_t> ticket;
    {
      MutexLock lock(&mutex_);
      if (failed_.ok()) failed_ = why;  // from here on Dispatch adds none
      ticket = items_.First();
    }
    if (!ticket.has_value()) return;
    AnswerItem(*ticket, Answer{.status = why});
  }
}

// ---- retries ------------------------------------------------------------------------------------

void Courier::OnUndeliverable(PeerId server) {
  MutexLock lock(&mutex_);
  items_.OnUndeliverable(server);
}

void Courier::OnConnectionLost(PeerId server) {
  const SteadyTime now = options_.clock->Now();
  MutexLock lock(&mutex_);
  items_.OnConnectionLost(server, now);
  stop_.NotifyAll();  // wakes the timer
}

void Courier::OnServerRestarted(uint32_t server, PeerId peer) {
  absl::StatusOr<std::vector<wire::ItemId>> lacks = std::vector<wire::ItemId>();
  {
    const SteadyTime now = options_.clock->Now();
    MutexLock lock(&mutex_);
    if (kept_.has_value()) lacks = kept_->StartReplay(server);
    owed_ += items_.OnServerRestarted(server, peer, now);
    stop_.NotifyAll();  // wakes the timer, which sends what is outstanding
  }
  if (!lacks.ok()) return options_.on_not_replayed(lacks.status());
  for (const wire::ItemId& id : *lacks) {
    for (uint64_t i = 0; i < kReplaysAtOnce; ++i) ReplayNext(server, id);
  }
}

void Courier::ReplayNext(uint32_t server, const wire::ItemId& id) {
  std::vector<OutgoingItem> items;
  {
    MutexLock lock(&mutex_);
    std::optional<OutgoingItem> next = kept_->NextToReplay(id);
    if (!next.has_value()) return;
    items.push_back(*std::move(next));
    ++replays_;
  }
  items[0].done = [this, server, id](const Answer& answer) {
    OnReplayed(server, id, answer.status);
  };
  Dispatch(server, std::move(items), kBeforeAll - 1);
}

void Courier::OnReplayed(uint32_t server, const wire::ItemId& id, const absl::Status& status) {
  if (status.ok()) {
    ReplayNext(server, id);
  } else {
    options_.on_not_replayed(status);
  }
  ReleaseReplays();  // after the next one is counted
}

void Courier::HoldReplays(uint64_t epoch) {
  MutexLock lock(&mutex_);
  ++replays_;
  replayed_epoch_ = epoch;
}

void Courier::ReleaseReplays() {
  {
    MutexLock lock(&mutex_);
    --replays_;
    replayed_.NotifyAll();
  }
  TellIfReplayed();
}

void Courier::TellIfReplayed() {
  uint64_t epoch = 0;
  {
    MutexLock lock(&mutex_);
    if (replays_ > 0 || owed_ > 0 || !failed_.ok()) return;
    epoch = replayed_epoch_;
  }
  options_.on_replayed(epoch);
}

void Courier::AwaitReplays(absl::Duration timeout) {
  MutexLock lock(&mutex_);
  replayed_.Await(&mutex_, timeout,
                  [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return replays_ == 0; });
}

void Courier::TimerLoop() {
  for (;;) {
    {
      MutexLock lock(&mutex_);
      if (!stopping_) stop_.WaitFor(&mutex_, kTimerStep);
      if (stopping_) return;
    }
    OrTell(options_.on_out_of_memory, [&] { RetryAndExpire(options_.clock->Now()); });
  }
}

void Courier::RetryAndExpire(SteadyTime now) {
  RetryTracker::Due due;
  std::vector<std::pair<uint64_t, absl::Status>> expired;
  std::set<uint64_t> resends;
  {
    MutexLock lock(&mutex_);
    due = items_.TakeDue(now);
    for (uint64_t ticket : due.expired) expired.emplace_back(ticket, items_.Expired(ticket));
  }
  for (auto& [ticket, status] : expired) AnswerItem(ticket, Answer{.status = std::move(status)});
  {
    MutexLock lock(&mutex_);
    resends = items_.TakeResends(due.resend, now);
  }
  if (simulation::Is(Mutant::kNoResend)) return;
  for (uint64_t ticket : resends) SendAgain(ticket);
}

void Courier::SendAgain(uint64_t ticket) {
  uint32_t server = 0;
  int64_t priority = 0;
  Message message;
  {
    MutexLock lock(&mutex_);
    const OutstandingItem* item = items_.Find(ticket);
    if (item == nullptr) return;  // answered meanwhile
    server = item->server;
    priority = item->priority;
    message = BuildMessage({ticket});
    ++sent_again_;
  }
  Send(server, std::move(message), {ticket}, priority, Sender::kGoesOn);
}

size_t Courier::outstanding() const {
  MutexLock lock(&mutex_);
  return items_.size();
}

uint64_t Courier::sent_again() const {
  MutexLock lock(&mutex_);
  return sent_again_;
}

}  // namespace slimps
