// SPDX-License-Identifier: Apache-2.0
#include "server/shard/shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status_copy.h"

namespace slimps {
namespace {

// True if the tensors that the items name are small, whatever the items carry.
bool IsSmall(const ShardItems& items, size_t limit) {
  if (!items.inits.empty()) return false;
  const uint64_t limit_elements = limit / sizeof(float);
  uint64_t elements = 0;
  const auto add = [&](const auto& works) {
    for (const auto& work : works) {
      // A peer gives these counts: the sum must not wrap around.
      elements += std::min<uint64_t>(work.item.elements(), limit_elements + 1);
    }
  };
  add(items.pushes);
  add(items.pulls);
  return elements <= limit_elements;
}

}  // namespace

Shard::Shard(const ShardOptions& options, std::unique_ptr<ShardState> state, const Clock* clock,
             SendFunction send)
    : options_(options),
      clock_(clock),
      send_(std::move(send)),
      state_(std::move(state)),
      thread_("shard", [this] { Run(); }) {}

Shard::~Shard() { Stop(); }

absl::Status Shard::Post(ShardItems* items) {
  const size_t bytes = items->PayloadBytes();
  const bool small = IsSmall(*items, kSmallBytes);
  {
    MutexLock lock(&mutex_);
    if (stopping_) return CopyUnshared(stopped_);
    if (mailbox_.size() >= options_.max_mailbox_entries ||
        mailbox_bytes_ > options_.max_mailbox_bytes ||
        bytes > options_.max_mailbox_bytes - mailbox_bytes_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the server's mailbox is full: ", mailbox_.size(), " messages of at most ",
                       options_.max_mailbox_entries, ", ", mailbox_bytes_, " bytes of at most ",
                       options_.max_mailbox_bytes));
    }
    // Complete rounds that were left to the shard thread come first.
    const bool busy = wake_at_ == SteadyTime::InfinitePast();
    if (!small || in_use_ || busy || !mailbox_.empty()) {
      mailbox_bytes_ += bytes;
      mailbox_.emplace_back(std::move(*items));
      arrived_.NotifyOne();
      return absl::OkStatus();
    }
    in_use_ = true;
  }
  HandleHere(std::move(*items));
  return absl::OkStatus();
}

void Shard::HandleHere(ShardItems items) {
  Handle(std::move(items));
  // Post takes the state only when no round is complete, so these rounds come from the items.
  while (state_->HasCompleteRound() && state_->NextRoundBytes() <= kSmallBytes) {
    state_->ApplyOne();
  }
  SendReplies();
  GiveBack();
}

void Shard::GiveBack() {
  const SteadyTime deadline = state_->NextDeadline();
  const bool busy = state_->HasCompleteRound();
  MutexLock lock(&mutex_);
  in_use_ = false;
  const bool earlier = deadline < wake_at_;
  wake_at_ = busy ? SteadyTime::InfinitePast() : deadline;
  // Wakes the shard thread only if it has something to do: waking it costs more than small items.
  if (busy || earlier || awaits_state_ || stopping_ || !mailbox_.empty()) arrived_.NotifyOne();
}

absl::Status Shard::PostControl(Control control) {
  MutexLock lock(&mutex_);
  if (stopping_) return CopyUnshared(stopped_);
  if (peer_controls_ >= options_.max_controls) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server's mailbox is full: ", peer_controls_,
                     " control messages of at most ", options_.max_controls));
  }
  ++peer_controls_;
  mailbox_.emplace_back(std::move(control));
  arrived_.NotifyOne();
  return absl::OkStatus();
}

void Shard::PostOwnControl(Control control) {
  MutexLock lock(&mutex_);
  if (stopping_) return;
  mailbox_.emplace_back(std::move(control));
  arrived_.NotifyOne();
}

size_t Shard::waiting() const {
  MutexLock lock(&mutex_);
  return mailbox_.size();
}

void Shard::Stop(const absl::Status& why) {
  {
    MutexLock lock(&mutex_);
    if (!stopping_) stopped_ = CopyUnshared(why);
    stopping_ = true;
    arrived_.NotifyOne();
  }
  if (thread_.joinable()) thread_.Join();
}

bool Shard::Take(std::deque<Entry>* entries) {
  MutexLock lock(&mutex_);
  for (;;) {
    if (!in_use_) {
      const absl::Duration wait = wake_at_ - clock_->Now();
      const bool due = wait <= absl::ZeroDuration();
      if (stopping_ && mailbox_.empty() && wake_at_ != SteadyTime::InfinitePast()) return false;
      if (due || stopping_ || !mailbox_.empty()) break;
      arrived_.WaitFor(&mutex_, wait);
    } else {
      awaits_state_ = true;
      arrived_.Wait(&mutex_);
      awaits_state_ = false;
    }
  }
  in_use_ = true;
  entries->swap(mailbox_);
  mailbox_bytes_ = 0;
  peer_controls_ = 0;
  return true;
}

void Shard::Handle(Entry entry) {
  if (auto* items = std::get_if<ShardItems>(&entry)) {
    state_->HandleItems(std::move(*items));
  } else {
    std::get<Control>(entry)(*state_);
  }
}

void Shard::Run() {
  std::deque<Entry> entries;
  while (Take(&entries)) {
    HandleAll(&entries);
    entries.clear();
    GiveBack();
  }
  absl::Status why;
  {
    MutexLock lock(&mutex_);
    why = CopyUnshared(stopped_);
  }
  state_->Fail(why);
  SendReplies();
}

void Shard::HandleAll(std::deque<Entry>* entries) {
  const bool idle = entries->empty();
  while (!entries->empty()) {
    Handle(std::move(entries->front()));
    entries->pop_front();
    if (state_->has_many_copies()) SendReplies();
  }
  if (state_->HasCompleteRound() && (idle || state_->NextRoundBytes() <= kSmallBytes)) {
    state_->ApplyOne();
  }
  state_->ExpirePulls();
  // Answers of small rounds wait for each other. They do not wait for a large round, nor when much
  // copied memory waits.
  if (!state_->HasCompleteRound() || state_->NextRoundBytes() > kSmallBytes ||
      state_->has_many_copies()) {
    SendReplies();
  }
}

void Shard::SendReplies() {
  do {
    for (Reply& reply : state_->TakeReplies()) send_(std::move(reply));
  } while (state_->AnswerPutOff());
}

}  // namespace slimps
