// SPDX-License-Identifier: Apache-2.0
#include "worker/push/staging.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/simulation/mutant.h"
#include "proto/base/simulation/simulation.h"
#include "proto/base/status_macros.h"

namespace slimps {

// Tracks the bound, the bytes in use and the waiting pushes. Thread-safe.
class GradientStaging::Room final {
 public:
  absl::Status Take(const TensorPlan& tensor, absl::Duration timeout) {
    const size_t bytes = tensor.bytes();
    MutexLock lock(&mutex_);
    const uint64_t turn = next_turn_++;
    waiting_.insert(turn);
    const auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      // A push takes room only when it is the first that waits: else small tensors would pass a
      // large one for ever.
      return !failed_.ok() || (*waiting_.begin() == turn && Fits(bytes));
    };
    const bool in_time = changed_.Await(&mutex_, timeout, ready);
    waiting_.erase(turn);
    changed_.NotifyAll();  // the next push's turn
    SLIMPS_RETURN_IF_ERROR(failed_);
    if (!in_time) {
      return absl::DeadlineExceededError(absl::StrCat(
          "push of key ", tensor.key.typed_name(), ": ", in_use_,
          " bytes of gradients still wait for the servers after ", absl::FormatDuration(timeout),
          "; its ", bytes, " bytes would make more than the ", most_, " that may"));
    }
    in_use_ += bytes;
    if (simulation::Active()) simulation::Note(absl::StrCat("stages ", in_use_));
    return absl::OkStatus();
  }

  bool Has(size_t bytes) const {
    MutexLock lock(&mutex_);
    return waiting_.empty() && bytes <= most_ - std::min(in_use_, most_);
  }

  void Return(size_t bytes) {
    MutexLock lock(&mutex_);
    in_use_ -= bytes;
    changed_.NotifyAll();
  }

  void SetMost(size_t bytes) {
    MutexLock lock(&mutex_);
    most_ = bytes;
    changed_.NotifyAll();
  }

  void Fail(const absl::Status& why) {
    MutexLock lock(&mutex_);
    failed_.Update(why);  // the first error stays
    changed_.NotifyAll();
  }

  size_t most() const {
    MutexLock lock(&mutex_);
    return most_;
  }
  size_t in_use() const {
    MutexLock lock(&mutex_);
    return in_use_;
  }

 private:
  bool Fits(size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    // A tensor above the bound fits alone, so that it does not wait for ever.
    return in_use_ == 0 || (in_use_ <= most_ && bytes <= most_ - in_use_) ||
           simulation::Is(Mutant::kNoStagingBound);
  }

  mutable Mutex mutex_;
  CondVar changed_;
  size_t most_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t in_use_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_turn_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<uint64_t> waiting_ ABSL_GUARDED_BY(mutex_);  // turns
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
};

// A device's buffer. It gives its room back after its memory, so that memory never exceeds the
// bound.
class GradientStaging::Buffer final : public HostBuffer {
 public:
  Buffer(std::shared_ptr<Room> room, size_t bytes) : room_(std::move(room)), bytes_(bytes) {}
  ~Buffer() override {
    buffer_.reset();
    room_->Return(bytes_);
  }
  void Hold(std::unique_ptr<HostBuffer> buffer) { buffer_ = std::move(buffer); }
  std::span<float> floats() override { return buffer_->floats(); }

 private:
  const std::shared_ptr<Room> room_;
  const size_t bytes_;
  std::unique_ptr<HostBuffer> buffer_;
};

GradientStaging::GradientStaging(Devices* devices, size_t max_bytes)
    : devices_(devices), fixed_max_bytes_(max_bytes), room_(std::make_shared<Room>()) {
  AddKeys(0);
}

void GradientStaging::AddKeys(size_t bytes) {
  MutexLock lock(&keys_mutex_);
  key_bytes_ += bytes;
  const size_t most = fixed_max_bytes_ > 0 ? fixed_max_bytes_ : std::max(key_bytes_, kLeastBytes);
  // The devices' pools have the same bound: they free idle memory rather than hold more.
  devices_->LimitHost(most);
  room_->SetMost(most);
}

absl::StatusOr<GradientBuffers> GradientStaging::Acquire(const TensorPlan& tensor, Device* device,
                                                         absl::Duration timeout) {
  SLIMPS_RETURN_IF_ERROR(room_->Take(tensor, timeout));
  // They own the room from here on, and give it back if an allocation below fails.
  std::vector<std::shared_ptr<Buffer>> held;
  for (const PartitionPlan& partition : tensor.partitions) {
    held.push_back(std::make_shared<Buffer>(room_, partition.elements * sizeof(float)));
  }
  for (size_t i = 0; i < held.size(); ++i) {
    SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<HostBuffer> buffer,
                            device->AllocateHost(tensor.partitions[i].elements));
    held[i]->Hold(std::move(buffer));
  }
  return GradientBuffers(held.begin(), held.end());
}

void GradientStaging::Fail(const absl::Status& why) { room_->Fail(why); }
bool GradientStaging::HasRoom(size_t bytes) const { return room_->Has(bytes); }
size_t GradientStaging::max_bytes() const { return room_->most(); }
size_t GradientStaging::bytes_in_use() const { return room_->in_use(); }

}  // namespace slimps
