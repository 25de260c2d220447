// SPDX-License-Identifier: Apache-2.0
#include "worker/courier/outstanding_items.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

// How long an answer is awaited from a server that answers others, until it is asked again.
constexpr absl::Duration kLongestPostponement = absl::Seconds(30);

// After a server's refusal for want of room the item waits before the next try. The wait begins
// here and doubles with each refusal, this many times at most.
constexpr absl::Duration kFirstDeferral = absl::Milliseconds(100);
constexpr int kMaxDoublings = 4;

}  // namespace

OutstandingItems::OutstandingItems(std::vector<PeerId> servers, absl::Duration timeout,
                                   absl::Duration retry_interval)
    : servers_(std::move(servers)),
      timeout_(timeout),
      retry_interval_(retry_interval),
      retries_({.first_interval = retry_interval}),
      heard_(servers_.size(), SteadyTime::InfinitePast()) {}

uint64_t OutstandingItems::Add(OutgoingItem&& out, uint32_t server, int64_t priority,
                               SteadyTime now) {
  const uint64_t ticket = next_ticket_++;
  out.mutable_id()->set_ticket(ticket);
  retries_.Add(ticket, now + timeout_, now);
  OutstandingItem& item = items_[ticket];
  item.out = std::move(out);
  item.server = server;
  item.priority = priority;
  item.dispatched = now;
  return ticket;
}

const OutstandingItem* OutstandingItems::Find(uint64_t ticket) const {
  const auto found = items_.find(ticket);
  return found == items_.end() ? nullptr : &found->second;
}

OutstandingItem* OutstandingItems::FindMutable(uint64_t ticket) {
  const auto found = items_.find(ticket);
  return found == items_.end() ? nullptr : &found->second;
}

std::optional<OutstandingItem> OutstandingItems::Take(uint64_t ticket) {
  const auto found = items_.find(ticket);
  if (found == items_.end()) return std::nullopt;
  std::optional<OutstandingItem> item = std::move(found->second);
  items_.erase(found);
  retries_.OnAnswer(ticket);
  deferred_.erase(ticket);
  return item;
}

std::optional<uint64_t> OutstandingItems::First() const {
  if (items_.empty()) return std::nullopt;
  return items_.begin()->first;
}

bool OutstandingItems::IsAsked(PeerId server, uint64_t ticket) const {
  const OutstandingItem* item = Find(ticket);
  return item != nullptr && servers_[item->server] == server;
}

// ---- what becomes of an item --------------------------------------------------------------------

void OutstandingItems::MarkQueued(const std::vector<uint64_t>& tickets) {
  for (uint64_t ticket : tickets) {
    if (OutstandingItem* item = FindMutable(ticket)) item->queued = true;
  }
}

void OutstandingItems::MarkHandedOver(const std::vector<uint64_t>& tickets, SteadyTime when) {
  for (uint64_t ticket : tickets) {
    OutstandingItem* item = FindMutable(ticket);
    if (item == nullptr) continue;
    // Only the first time counts: after a second one nobody knows which of them was answered.
    item->sent_again = item->handed_over != SteadyTime::InfinitePast();
    if (!item->sent_again) item->handed_over = when;
    item->queued = false;
  }
}

void OutstandingItems::MarkUnsent(const std::vector<uint64_t>& tickets, SteadyTime now) {
  for (uint64_t ticket : tickets) {
    OutstandingItem* item = FindMutable(ticket);
    if (item == nullptr) continue;
    item->queued = false;
    retries_.Postpone(ticket, now + retry_interval_);
  }
}

void OutstandingItems::OnUndeliverable(PeerId server) {
  for (auto& [ticket, item] : items_) {
    if (servers_[item.server] == server) item.queued = false;
  }
}

void OutstandingItems::OnHeard(PeerId server, SteadyTime now) {
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i] == server) heard_[i] = now;
  }
}

void OutstandingItems::OnConnectionLost(PeerId server, SteadyTime now) {
  OnHeard(server, SteadyTime::InfinitePast());  // no answer is on its way
  for (const auto& [ticket, item] : items_) {
    if (servers_[item.server] == server && !item.queued) retries_.Postpone(ticket, now);
  }
}

size_t OutstandingItems::OnServerRestarted(uint32_t server, PeerId peer, SteadyTime now) {
  servers_[server] = peer;
  restarted_.insert(server);
  heard_[server] = SteadyTime::InfinitePast();
  size_t owed = 0;
  for (auto& [ticket, item] : items_) {
    if (item.server != server) continue;
    item.queued = false;
    retries_.Postpone(ticket, now);
    const bool is_push = std::holds_alternative<wire::PushItem>(item.out.item);
    if (is_push && !std::exchange(item.owed, true)) ++owed;
  }
  return owed;
}

bool OutstandingItems::IsOfKnownKey(uint64_t ticket) const {
  const OutstandingItem* item = Find(ticket);
  if (item == nullptr) return false;
  const auto* init = std::get_if<wire::InitItem>(&item->out.item);
  const bool asks = init != nullptr && init->format() == wire::ABSENT;
  return !asks || restarted_.contains(item->server);
}

bool OutstandingItems::Defer(uint64_t ticket, const absl::Status& refusal, SteadyTime now) {
  OutstandingItem* item = FindMutable(ticket);
  if (item == nullptr) return false;
  const int doublings = std::min(item->refusals++, kMaxDoublings);
  item->refusal = refusal;
  deferred_.emplace(ticket, now + kFirstDeferral * (1 << doublings));
  return true;
}

// ---- when to send it again ----------------------------------------------------------------------

bool OutstandingItems::AnswersCome(const OutstandingItem& item, SteadyTime now) const {
  const bool asked = item.handed_over != SteadyTime::InfinitePast();
  return asked && now - heard_[item.server] < retry_interval_ &&
         now - item.dispatched < std::min(timeout_ / 2, kLongestPostponement);
}

std::set<uint64_t> OutstandingItems::TakeResends(const std::vector<uint64_t>& due, SteadyTime now) {
  std::set<uint64_t> resends;
  for (uint64_t ticket : due) {
    const OutstandingItem* item = Find(ticket);
    if (item == nullptr) continue;  // answered meanwhile
    if (item->queued) {
      // Its turn in the queue has not come (a slow link): a copy would only lengthen the queue.
      retries_.Postpone(ticket, now + retry_interval_);
    } else if (AnswersCome(*item, now)) {
      retries_.Postpone(ticket, heard_[item->server] + retry_interval_);
    } else {
      resends.insert(ticket);
    }
  }
  for (auto at = deferred_.begin(); at != deferred_.end();) {
    if (at->second > now) {
      ++at;
      continue;
    }
    // An item that is queued is on its way again already.
    const OutstandingItem* item = Find(at->first);
    if (item != nullptr && !item->queued) resends.insert(at->first);
    at = deferred_.erase(at);
  }
  return resends;
}

absl::Status OutstandingItems::Expired(uint64_t ticket) const {
  const std::string within = absl::StrCat(" within ", absl::FormatDuration(timeout_));
  const OutstandingItem* item = Find(ticket);
  if (item == nullptr || item->refusals == 0) {
    return absl::DeadlineExceededError(absl::StrCat("no answer", within));
  }
  return absl::DeadlineExceededError(absl::StrCat("refused ", item->refusals, " times", within,
                                                  ", last: ", item->refusal.message()));
}

}  // namespace slimps
