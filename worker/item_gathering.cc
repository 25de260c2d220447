#include "worker/item_gathering.h"

#include <utility>

#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// A header has room for these items and for as many bytes of row numbers.
constexpr size_t kFullMessageItems = 1024;
constexpr size_t kFullMessageBytes = size_t{256} << 10;

size_t BytesOf(const OutgoingItem& out) {
  const auto* const pull = std::get_if<wire::PullItem>(&out.item);
  return out.payload.size() + (pull == nullptr ? 0 : pull->rows().size());
}

}  // namespace

struct ItemGathering::Gathered {
  Mutex mutex;
  CondVar answered;
  size_t pending ABSL_GUARDED_BY(mutex) = 0;
  std::vector<Answer> answers ABSL_GUARDED_BY(mutex);
};

ItemGathering::ItemGathering(Courier* courier, int64_t priority)
    : courier_(courier), priority_(priority), gathered_(std::make_shared<Gathered>()) {}

void ItemGathering::Add(uint32_t server, OutgoingItem item) {
  size_t index = 0;
  {
    MutexLock lock(&gathered_->mutex);
    index = gathered_->answers.size();
    gathered_->answers.emplace_back();
    ++gathered_->pending;
  }
  item.done = [gathered = gathered_, index](Answer answer) {
    MutexLock lock(&gathered->mutex);
    gathered->answers[index] = std::move(answer);
    --gathered->pending;
    gathered->answered.NotifyAll();
  };
  Open& open = open_[server];
  if (open.bytes + BytesOf(item) > kFullMessageBytes) Dispatch(server, std::exchange(open, {}));
  open.bytes += BytesOf(item);
  open.items.push_back(std::move(item));
  if (open.items.size() < kFullMessageItems && open.bytes < kFullMessageBytes) return;
  Dispatch(server, std::exchange(open, {}));
}

void ItemGathering::Dispatch(uint32_t server, Open open) {
  if (!open.items.empty()) courier_->Dispatch(server, std::move(open.items), priority_);
}

absl::StatusOr<std::vector<Answer>> ItemGathering::Await() {
  for (auto& [server, open] : open_) Dispatch(server, std::exchange(open, {}));
  MutexLock lock(&gathered_->mutex);
  while (gathered_->pending > 0) gathered_->answered.Wait(&gathered_->mutex);
  for (const Answer& answer : gathered_->answers) SLIMPS_RETURN_IF_ERROR(answer.status);
  return std::move(gathered_->answers);
}

}  // namespace slimps
