// SPDX-License-Identifier: Apache-2.0
#include "worker/store/arriving_gradients.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/kernels/kernels.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "worker/tensor/value_check.h"

namespace slimps {

// The copies of one gradient, from one device or several. Ends when the last reference to it is
// dropped, so that it ends even if a copy could not be started. Thread-safe.
class ArrivingGradients::Copies final {
 public:
  // `more`: of the devices after the first, whose copies have memory of their own.
  Copies(ArrivingGradients* owner, KeyId key, const GradientBuffers& grad_bufs,
         std::vector<GradientBuffers> more, Events events)
      : owner_(owner), key_(key), more_(std::move(more)), events_(std::move(events)) {
    for (const auto& grad_buf : grad_bufs) {
      parts_.push_back({.sum = grad_buf->floats(), .missing = more_.size() + 1});
    }
  }
  ~Copies() {
    if (!turn_.has_value()) return;  // it never began
    events_.ended();
    owner_->End(key_, *turn_);
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  // Takes its turn among the gradients of the key.
  void Begin() {
    MutexLock lock(&owner_->mutex_);
    turn_ = owner_->on_their_way_.Add(key_, 1);
  }

  std::span<float> Destination(size_t source, size_t partition) {
    return source == 0 ? parts_[partition].sum : more_[source - 1][partition]->floats();
  }

  void Add(size_t partition, const absl::StatusOr<float>& largest) {
    Part& part = parts_[partition];
    {
      MutexLock lock(&mutex_);
      part.status.Update(largest.status());
      if (largest.ok()) part.largest = std::max(part.largest, *largest);
      if (--part.missing > 0) return;
    }
    if (!part.status.ok()) return events_.arrived(partition, part.status);
    if (!more_.empty()) Sum(partition);
    events_.arrived(partition, part.largest);
  }

 private:
  // Owned by the thread of its last copy once none is missing.
  struct Part {
    std::span<float> sum;
    size_t missing = 0;
    absl::Status status = {};
    float largest = 0;
  };

  // Adds the other devices' values to the first one's, and finds the largest magnitude anew.
  void Sum(size_t partition) {
    Part& part = parts_[partition];
    std::vector<std::span<const float>> gradients = {part.sum};
    for (GradientBuffers& one : more_) gradients.push_back(one[partition]->floats());
    SumDevices(gradients, part.sum);
    part.largest = BestKernels().raw.largest(part.sum.data(), part.sum.size());
    for (GradientBuffers& one : more_) one[partition].reset();
  }

  ArrivingGradients* const owner_;
  const KeyId key_;
  std::optional<uint64_t> turn_;
  std::vector<GradientBuffers> more_;
  const Events events_;
  Mutex mutex_;
  std::vector<Part> parts_;
};

ArrivingGradients::~ArrivingGradients() { AwaitEnd(); }

absl::Status ArrivingGradients::Start(const TensorPlan& tensor, std::span<const Source> sources,
                                      const GradientBuffers& grad_bufs, Events events) {
  std::vector<GradientBuffers> more;
  for (const Source& source : sources.subspan(1)) {
    GradientBuffers& buffers = more.emplace_back();
    for (const PartitionPlan& partition : tensor.partitions) {
      SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<HostBuffer> buffer,
                              source.device->AllocateHost(partition.elements));
      buffers.push_back(std::move(buffer));
    }
  }
  const KeyId key = tensor.key.id();
  const auto copies =
      std::make_shared<Copies>(this, key, grad_bufs, std::move(more), std::move(events));
  copies->Begin();
  for (size_t s = 0; s < sources.size(); ++s) {
    const Source& source = sources[s];
    for (size_t i = 0; i < tensor.partitions.size(); ++i) {
      const PartitionPlan& partition = tensor.partitions[i];
      const auto start = [&]() -> absl::Status {
        source.device->CopyGradient(
            key, source.place.PartOf(source.gradient, partition.offset, partition.elements),
            source.place, copies->Destination(s, i),
            [copies, i](KeyId, const absl::StatusOr<float>& largest) { copies->Add(i, largest); });
        return absl::OkStatus();
      };
      // From Begin on, errors are those of copies.
      const absl::Status started = OrOutOfMemory(start, "copy", tensor.key.typed_name());
      if (!started.ok()) copies->Add(i, started);
    }
  }
  return absl::OkStatus();
}

void ArrivingGradients::End(KeyId key, uint64_t turn) {
  UnacknowledgedPushes::Waiters waiters;
  {
    MutexLock lock(&mutex_);
    waiters = on_their_way_.Take(key, turn, 1);
    ++ending_;
  }
  UnacknowledgedPushes::Tell(waiters, absl::OkStatus());
  MutexLock lock(&mutex_);
  --ending_;
  changed_.NotifyAll();  // under the lock, since the destructor may wait for it
}

void ArrivingGradients::Fail(const absl::Status& why) {
  UnacknowledgedPushes::Waiters waiters;
  {
    MutexLock lock(&mutex_);
    failed_.Update(why);
    waiters = on_their_way_.TakeWaiters();
    ++ending_;
    changed_.NotifyAll();
  }
  UnacknowledgedPushes::Tell(waiters, why);
  MutexLock lock(&mutex_);
  --ending_;
  changed_.NotifyAll();
}

void ArrivingGradients::AwaitEnd() {
  MutexLock lock(&mutex_);
  while (on_their_way_.size() > 0 || ending_ > 0) changed_.Wait(&mutex_);
}

absl::Status ArrivingGradients::AwaitAll(absl::Duration timeout) {
  MutexLock lock(&mutex_);
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !failed_.ok() || (on_their_way_.size() == 0 && ending_ == 0);
  };
  if (changed_.Await(&mutex_, timeout, none)) return failed_;
  return absl::DeadlineExceededError(absl::StrCat(on_their_way_.size(),
                                                  " gradients still on their way from a GPU after ",
                                                  absl::FormatDuration(timeout)));
}

absl::Status ArrivingGradients::Await(const TensorPlan& tensor, absl::Duration timeout) {
  MutexLock lock(&mutex_);
  if (on_their_way_.size() == 0 || !failed_.ok()) return failed_;
  const auto waits = std::make_shared<bool>(true);
  const auto over = [this, waits](const absl::Status&) {
    MutexLock told(&mutex_);
    *waits = false;
    changed_.NotifyAll();
  };
  if (!on_their_way_.Await(tensor.key.id(), over)) return absl::OkStatus();
  const auto ended = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !*waits; };
  if (changed_.Await(&mutex_, timeout, ended)) return failed_;
  return absl::DeadlineExceededError(absl::StrCat(
      "key ", tensor.key.typed_name(), ": its last gradient is still on its way from a GPU after ",
      absl::FormatDuration(timeout)));
}

void ArrivingGradients::When(const TensorPlan& tensor, std::function<void()> then) {
  {
    MutexLock lock(&mutex_);
    if (failed_.ok() &&
        on_their_way_.Await(tensor.key.id(), [then](const absl::Status&) { then(); }))
      return;
  }
  then();
}

}  // namespace slimps
