#include "server/shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace slimps {

Shard::Shard(const ShardOptions& options, std::unique_ptr<ShardState> state, const Clock* clock,
             SendFunction send)
    : options_(options),
      clock_(clock),
      send_(std::move(send)),
      state_(std::move(state)),
      thread_([this] { Run(); }) {}

Shard::~Shard() { Stop(); }

absl::Status Shard::Post(ShardItems* items) {
  const size_t bytes = items->PayloadBytes();
  MutexLock lock(&mutex_);
  if (stopping_) return absl::UnavailableError("the server is stopping");
  if (mailbox_.size() >= options_.max_mailbox_entries ||
      mailbox_bytes_ > options_.max_mailbox_bytes ||
      bytes > options_.max_mailbox_bytes - mailbox_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server's mailbox is full: ", mailbox_.size(), " messages of at most ",
                     options_.max_mailbox_entries, ", ", mailbox_bytes_, " bytes of at most ",
                     options_.max_mailbox_bytes));
  }
  mailbox_bytes_ += bytes;
  mailbox_.emplace_back(std::move(*items));
  arrived_.NotifyOne();
  return absl::OkStatus();
}

void Shard::PostControl(Control control) {
  MutexLock lock(&mutex_);
  if (stopping_) return;
  mailbox_.emplace_back(std::move(control));
  arrived_.NotifyOne();
}

void Shard::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    arrived_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
}

std::optional<Shard::Entry> Shard::Next(bool busy, bool* stop) {
  MutexLock lock(&mutex_);
  // One wait is enough: a spurious wake-up costs the caller's loop a turn, and a deadline that has come is its business.
  if (!busy && !stopping_ && mailbox_.empty()) {
    const absl::Duration wait = state_->NextDeadline() - clock_->Now();
    arrived_.WaitFor(&mutex_, std::max(wait, absl::ZeroDuration()));
  }
  if (mailbox_.empty()) {
    *stop = stopping_ && !busy;
    return std::nullopt;
  }
  Entry entry = std::move(mailbox_.front());
  mailbox_.pop_front();
  if (const auto* items = std::get_if<ShardItems>(&entry)) mailbox_bytes_ -= items->PayloadBytes();
  return entry;
}

void Shard::Run() {
  bool stop = false;
  while (!stop) {
    std::optional<Entry> entry = Next(state_->HasCompleteRound(), &stop);
    if (!entry.has_value()) {
      if (state_->HasCompleteRound()) state_->ApplyOne();
    } else if (auto* items = std::get_if<ShardItems>(&*entry)) {
      state_->HandleItems(std::move(*items));
      begun_.store(state_->begun(), std::memory_order_relaxed);
    } else {
      std::get<Control> (*entry)(*state_);
    }
    state_->ExpirePulls();
    SendReplies();
  }
  state_->Fail(absl::UnavailableError("the server is stopping"));
  SendReplies();
}

void Shard::SendReplies() {
  for (Reply& reply : state_->TakeReplies()) send_(std::move(reply));
}

}  // namespace slimps
