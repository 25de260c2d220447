// SPDX-License-Identifier: Apache-2.0
#include "worker/courier/rpc_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/net/send_in_parts.h"
#include "proto/status_proto.h"

namespace slimps {
namespace {

absl::Status StatusIn(const wire::Header& answer) {
  return FromStatusProto(answer.has_error() ? answer.error().status() : answer.ack().status());
}

}  // namespace

absl::StatusOr<Message> RpcClient::Exchange(const std::function<PeerId()>& find, Message question,
                                            absl::Duration timeout, const std::string& what,
                                            Patience patience) {
  const SteadyTime deadline = clock_->Now() + timeout;
  uint64_t id = 0;
  {
    MutexLock lock(&mutex_);
    id = next_id_++;
    pending_[id].patience = patience;  // references into the map stay valid until the erase below
  }
  question.header.set_request_id(id);
  bool answered = false;
  while (!answered && clock_->Now() < deadline) {
    const absl::Status sent = question.payloads.empty()
                                  ? SendInParts(transport_, find(), question.header)
                                  : transport_->Send(find(), question);
    MutexLock lock(&mutex_);
    // A full queue is no failure: the loop sends again after the interval.
    const bool is_retried = absl::IsResourceExhausted(sent) ||
                            (absl::IsNotFound(sent) && patience == Patience::kMayReturn);
    if (!sent.ok() && !is_retried) {
      pending_.erase(id);
      return Prefixed(sent, what);
    }
    const Pending& pending = pending_.at(id);
    const auto settled = [this, &pending]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return pending.answer.has_value() || !failed_.ok();
    };
    answered =
        settled_.Await(&mutex_, std::min(deadline - clock_->Now(), retry_interval_), settled);
  }
  MutexLock lock(&mutex_);
  Pending& pending = pending_.at(id);
  std::optional<Message> answer = std::move(pending.answer);
  const std::string refusal = std::move(pending.refusal);
  pending_.erase(id);
  if (answer.has_value()) {
    SLIMPS_RETURN_IF_ERROR(Prefixed(StatusIn(answer->header), what));
    return *std::move(answer);
  }
  SLIMPS_RETURN_IF_ERROR(failed_);
  return absl::DeadlineExceededError(absl::StrCat(
      what, refusal.empty() ? ": no answer within " : ": refused for ",
      absl::FormatDuration(timeout), refusal.empty() ? "" : ", the last time: ", refusal));
}

bool RpcClient::HandleMessage(const Message& message) {
  MutexLock lock(&mutex_);
  auto found = pending_.find(message.header.request_id());
  if (found == pending_.end()) return false;
  Pending& pending = found->second;
  const absl::Status status = StatusIn(message.header);
  if (absl::IsUnavailable(status) && pending.patience == Patience::kMayReturn) {
    pending.refusal = std::string(status.message());
    return true;
  }
  if (!pending.answer) pending.answer = message;
  settled_.NotifyAll();
  return true;
}

void RpcClient::FailAll(const absl::Status& why) {
  MutexLock lock(&mutex_);
  if (failed_.ok()) failed_ = why;
  settled_.NotifyAll();
}

}  // namespace slimps
