// SPDX-License-Identifier: Apache-2.0
// Courier: when it sends an item again, and when it gives the item up.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "worker/courier/courier.h"

namespace slimps {
namespace {

constexpr absl::Duration kTimerStep = absl::Milliseconds(100);
// After a server's refusal for want of room the item waits before the next try. The wait begins
// here and doubles with each refusal, this many times at most.
constexpr absl::Duration kFirstDeferral = absl::Milliseconds(100);
constexpr int kMostDoublings = 4;

}  // namespace

bool Courier::AnswersCome(const Request& request, SteadyTime now) const {
  const bool asked = request.handed_over != SteadyTime::InfinitePast();
  return asked && now - heard_[request.server] < options_.retry_interval &&
         now - request.dispatched < options_.timeout / 2;
}

void Courier::OnConnectionLost(PeerId server) {
  const SteadyTime now = options_.clock->Now();
  MutexLock lock(&mutex_);
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i] == server) heard_[i] = SteadyTime::InfinitePast();  // no answer is on its way
  }
  for (const auto& [ticket, request] : requests_) {
    if (servers_[request.server] == server && !request.queued) retries_.Postpone(ticket, now);
  }
  stop_.NotifyAll();  // wakes the timer
}

bool Courier::Defer(uint64_t ticket, const absl::Status& status) {
  if (!absl::IsResourceExhausted(status)) return false;
  MutexLock lock(&mutex_);
  const auto found = requests_.find(ticket);
  if (found == requests_.end()) return false;
  Request& request = found->second;
  const int doublings = std::min(request.refusals++, kMostDoublings);
  request.refusal = status;
  deferred_.emplace(ticket, options_.clock->Now() + kFirstDeferral * (1 << doublings));
  return true;
}

absl::Status Courier::Expired(uint64_t ticket) const {
  MutexLock lock(&mutex_);
  const std::string within = absl::StrCat(" within ", absl::FormatDuration(options_.timeout));
  const auto found = requests_.find(ticket);
  if (found == requests_.end() || found->second.refusals == 0) {
    return absl::DeadlineExceededError(absl::StrCat("no answer", within));
  }
  const Request& request = found->second;
  return absl::DeadlineExceededError(absl::StrCat("refused ", request.refusals, " times", within,
                                                  ", last: ", request.refusal.message()));
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
  struct Resend {
    uint32_t server;
    int64_t priority;
    std::vector<uint64_t> tickets;
    Message message;
  };
  std::vector<Resend> resends;
  RetryTracker::Due due;
  {
    MutexLock lock(&mutex_);
    due = retries_.TakeDue(now);
  }
  for (uint64_t ticket : due.expired) {
    AnswerItem(ticket, Answer{.status = Expired(ticket)});
  }
  {
    MutexLock lock(&mutex_);
    std::set<uint64_t> resend;
    for (uint64_t ticket : due.resend) {
      const auto found = requests_.find(ticket);
      if (found == requests_.end()) continue;  // answered meanwhile
      const Request& request = found->second;
      if (request.queued) {
        // Its turn in the queue has not come (a slow link): a copy would only lengthen the queue.
        retries_.Postpone(ticket, now + options_.retry_interval);
      } else if (AnswersCome(request, now)) {
        retries_.Postpone(ticket, heard_[request.server] + options_.retry_interval);
      } else {
        resend.insert(ticket);
      }
    }
    for (auto at = deferred_.begin(); at != deferred_.end();) {
      if (at->second > now) {
        ++at;
        continue;
      }
      resend.insert(at->first);
      at = deferred_.erase(at);
    }
    for (uint64_t ticket : resend) {
      auto found = requests_.find(ticket);
      if (found == requests_.end()) continue;  // answered meanwhile
      const Request& request = found->second;
      if (request.queued) continue;  // it is on its way again already
      resends.push_back({request.server, request.priority, {ticket}, BuildMessage({ticket})});
    }
  }
  // Without the lock, which Send takes.
  for (Resend& resend : resends) {
    Send(resend.server, std::move(resend.message), resend.tickets, resend.priority,
         Sender::kGoesOn);
  }
}

}  // namespace slimps
