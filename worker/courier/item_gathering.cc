// SPDX-License-Identifier: Apache-2.0
#include "worker/courier/item_gathering.h"

#include <utility>

#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"

namespace slimps {

struct ItemGathering::Gathered {
  // True after an error too: what comes then is dropped.
  bool HasRoom(size_t more, size_t most) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return failed || pending == 0 || (more <= most && bytes <= most - more);
  }

  Mutex mutex;
  CondVar answered;
  size_t pending ABSL_GUARDED_BY(mutex) = 0;
  size_t bytes ABSL_GUARDED_BY(mutex) = 0;  // of pending items
  bool failed ABSL_GUARDED_BY(mutex) = false;
  std::vector<Answer> answers ABSL_GUARDED_BY(mutex);
};

ItemGathering::ItemGathering(Courier* courier, const GatheringOptions& options)
    : courier_(courier), options_(options), gathered_(std::make_shared<Gathered>()) {}

std::optional<size_t> ItemGathering::AwaitRoom(size_t bytes) {
  const auto has_room = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(gathered_->mutex) {
    return gathered_->HasRoom(bytes, options_.max_bytes);
  };
  bool waits = false;
  {
    MutexLock lock(&gathered_->mutex);
    waits = !has_room();
  }
  if (waits) DispatchAll();  // an unsent item would never be answered
  MutexLock lock(&gathered_->mutex);
  while (!has_room()) gathered_->answered.Wait(&gathered_->mutex);
  if (gathered_->failed) return std::nullopt;
  ++gathered_->pending;
  gathered_->bytes += bytes;
  gathered_->answers.emplace_back();
  return gathered_->answers.size() - 1;
}

void ItemGathering::Add(uint32_t server, OutgoingItem item, size_t answer_bytes) {
  const size_t bytes = item.payload.size() + answer_bytes;
  const std::optional<size_t> index = AwaitRoom(bytes);
  if (!index.has_value()) return;
  item.done = [gathered = gathered_, index = *index, bytes](Answer answer) {
    MutexLock lock(&gathered->mutex);
    --gathered->pending;
    gathered->bytes -= bytes;
    gathered->failed |= !answer.status.ok();
    gathered->answers[index] = std::move(answer);
    gathered->answered.NotifyAll();
  };
  Dispatch(coalescer_.Add(server, std::move(item), options_.priority));
}

void ItemGathering::Dispatch(std::vector<Batch> batches) {
  for (Batch& batch : batches) {
    courier_->Dispatch(batch.server, std::move(batch.items), batch.priority);
  }
}

void ItemGathering::DispatchAll() { Dispatch(coalescer_.TakeAll()); }

absl::StatusOr<std::vector<Answer>> ItemGathering::Await() {
  DispatchAll();
  MutexLock lock(&gathered_->mutex);
  while (gathered_->pending > 0) gathered_->answered.Wait(&gathered_->mutex);
  for (const Answer& answer : gathered_->answers) SLIMPS_RETURN_IF_ERROR(answer.status);
  return std::move(gathered_->answers);
}

}  // namespace slimps
