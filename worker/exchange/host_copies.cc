// SPDX-License-Identifier: Apache-2.0
#include "worker/exchange/host_copies.h"

#include <new>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"

namespace slimps {

struct HostCopies::Shared {
  struct Made {
    size_t index;
    absl::StatusOr<Copy> copy;
  };

  explicit Shared(size_t parameters) : is_read(parameters) {}

  void Note(size_t index, absl::StatusOr<Copy> copy) {
    MutexLock lock(&mutex);
    is_read[index] = copy.ok();
    made.push_back({index, std::move(copy)});
    --under_way;
    changed.NotifyAll();
  }

  Mutex mutex;
  CondVar changed;
  std::vector<bool> is_read ABSL_GUARDED_BY(mutex);
  std::list<Made> made ABSL_GUARDED_BY(mutex);  // and not taken
  size_t under_way ABSL_GUARDED_BY(mutex) = 0;  // copies
  bool taking ABSL_GUARDED_BY(mutex) = false;   // one is being taken
  bool lost ABSL_GUARDED_BY(mutex) = false;     // memory ran out while one was taken
  bool stopping ABSL_GUARDED_BY(mutex) = false;
};

HostCopies::HostCopies(size_t parameters,
                       std::function<void(size_t index, absl::StatusOr<Copy> copy)> take,
                       const Clock* clock)
    : take_(std::move(take)), clock_(clock), shared_(std::make_shared<Shared>(parameters)) {}

HostCopies::~HostCopies() {
  {
    MutexLock lock(&shared_->mutex);
    shared_->stopping = true;
    shared_->changed.NotifyAll();
    while (shared_->under_way > 0) shared_->changed.Wait(&shared_->mutex);
  }
  if (thread_.joinable()) thread_.Join();
}

void HostCopies::BeginStep() {
  MutexLock lock(&shared_->mutex);
  shared_->is_read.assign(shared_->is_read.size(), false);
}

absl::Status HostCopies::Start(size_t index, Device* device, std::span<const float> gradient,
                               const Place& place) {
  SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<HostBuffer> made, device->AllocateHost(gradient.size()));
  const Copy copy = std::move(made);
  if (!thread_.joinable()) thread_ = Thread("gradients", [this] { Run(); });
  {
    MutexLock lock(&shared_->mutex);
    ++shared_->under_way;
  }
  const auto note = [shared = shared_, index, copy](KeyId, const absl::Status& copied) {
    shared->Note(index, copied.ok() ? absl::StatusOr<Copy>(copy) : copied);
  };
  // Whoever pushes the copy looks for NaN, so fp32 needs no pass of its own here.
  if (place.type == ElementType::kFloat32) {
    device->CopyToHost(/*key=*/index, gradient, place.stream, copy->floats(), note);
  } else {
    device->CopyGradient(
        /*key=*/index, gradient, place, copy->floats(),
        [note](KeyId key, const absl::StatusOr<float>& largest) { note(key, largest.status()); });
  }
  return absl::OkStatus();
}

bool HostCopies::IsRead(size_t index) const {
  MutexLock lock(&shared_->mutex);
  return shared_->is_read[index];
}

void HostCopies::NoteRead(size_t index) {
  MutexLock lock(&shared_->mutex);
  shared_->is_read[index] = true;
}

absl::Status HostCopies::AwaitTaken(SteadyTime deadline) {
  MutexLock lock(&shared_->mutex);
  while (shared_->under_way > 0 || !shared_->made.empty() || shared_->taking) {
    const absl::Duration left = deadline - clock_->Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat(shared_->under_way + shared_->made.size(),
                       " gradients have not come from their GPUs in time"));
    }
    shared_->changed.WaitFor(&shared_->mutex, left);
  }
  if (shared_->lost) return absl::ResourceExhaustedError("pushing a gradient: out of memory");
  return absl::OkStatus();
}

void HostCopies::Run() {
  MutexLock lock(&shared_->mutex);
  for (;;) {
    while (!shared_->stopping && shared_->made.empty()) shared_->changed.Wait(&shared_->mutex);
    if (shared_->stopping) return;
    Shared::Made one = std::move(shared_->made.front());
    shared_->made.pop_front();
    shared_->taking = true;
    shared_->mutex.Unlock();
    bool lost = false;
    try {
      take_(one.index, std::move(one.copy));
    } catch (const std::bad_alloc&) {
      lost = true;
    }
    shared_->mutex.Lock();
    shared_->lost |= lost;
    shared_->taking = false;
    shared_->changed.NotifyAll();
  }
}

}  // namespace slimps
