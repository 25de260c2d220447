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
  absl::MutexLock lock(&mutex_);
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
  return absl::OkStatus();
}

void Shard::PostControl(Control control) {
  absl::MutexLock lock(&mutex_);
  if (!stopping_) mailbox_.emplace_back(std::move(control));
}

void Shard::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

std::optional<Shard::Entry> Shard::Next(bool busy, bool* stop) {
  absl::MutexLock lock(&mutex_);
  if (!busy) {
    const auto wake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !mailbox_.empty();
    };
    const absl::Duration wait = state_->NextDeadline() - clock_->Now();
    mutex_.AwaitWithTimeout(absl::Condition(&wake), std::max(wait, absl::ZeroDuration()));
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
