// SPDX-License-Identifier: Apache-2.0
#include "worker/device/slab_pool.h"

#include <algorithm>
#include <iterator>
#include <new>

#include "absl/status/status.h"
#include "proto/base/status_macros.h"

namespace slimps {

// A part of a slab, as a HostBuffer of the length that the borrower asked for.
class SlabPool::Lent final : public HostBuffer {
 public:
  Lent(std::shared_ptr<SlabPool> pool, size_t elements, size_t bytes)
      : pool_(std::move(pool)), elements_(elements), bytes_(bytes) {}
  ~Lent() override {
    if (data_ != nullptr) pool_->Return(data_, bytes_);
  }
  void Hold(std::byte* data) { data_ = data; }
  std::span<float> floats() override { return {reinterpret_cast<float*>(data_), elements_}; }

 private:
  const std::shared_ptr<SlabPool> pool_;
  const size_t elements_;
  const size_t bytes_;
  std::byte* data_ = nullptr;  // null: nothing was lent
};

std::shared_ptr<SlabPool> SlabPool::Create(HostPool::MakeBlock make_slab, IdleSlabs idle) {
  return std::shared_ptr<SlabPool>(new SlabPool(std::move(make_slab), idle));
}

absl::StatusOr<std::unique_ptr<HostBuffer>> SlabPool::Acquire(size_t elements) {
  // An empty buffer has an address of its own, too.
  SLIMPS_ASSIGN_OR_RETURN(const size_t bytes, HostBlockBytes(std::max<size_t>(elements, 1)));
  auto lent = std::make_unique<Lent>(shared_from_this(), elements, bytes);
  std::byte* data = nullptr;
  {
    MutexLock lock(&mutex_);
    data = TakeHole(bytes);
  }
  if (data == nullptr) {
    SLIMPS_ASSIGN_OR_RETURN(data, TakeOfNew(bytes));
  }
  lent->Hold(data);
  return lent;
}

absl::StatusOr<std::byte*> SlabPool::TakeOfNew(size_t bytes) {
  MutexLock one_at_a_time(&making_);
  Freed surplus;
  size_t slab_bytes = 0;
  {
    MutexLock lock(&mutex_);
    // Another thread may have made one meanwhile.
    if (std::byte* const data = TakeHole(bytes)) return data;
    // Beyond a low limit each slab is as large as all before it: so their number stays low.
    slab_bytes = std::max(bytes, std::min(kSlabBytes, std::max(limit_, held_)));
    surplus = RemoveIdle([&](const Slab&) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return slab_bytes > limit_ || held_ > limit_ - slab_bytes;
    });
  }
  surplus.clear();
  absl::StatusOr<std::unique_ptr<HostBlock>> made = make_slab_(slab_bytes);
  if (absl::IsResourceExhausted(made.status())) {
    // Idle slabs may hold the memory that is missing.
    FreeIdle();
    made = make_slab_(bytes);
  }
  SLIMPS_RETURN_IF_ERROR(made.status());
  const std::span<std::byte> memory = (*made)->bytes();
  MutexLock lock(&mutex_);
  slabs_[memory.data()].memory = *std::move(made);
  held_ += memory.size();
  AddHole(memory.data(), memory.size());
  return TakeHole(bytes);
}

std::byte* SlabPool::TakeHole(size_t bytes) {
  // Takes the smallest hole that is large enough, and of those the one with the lowest address. So
  // few slabs fill up, and others become idle.
  const auto found = by_size_.lower_bound({bytes, nullptr});
  if (found == by_size_.end()) return nullptr;
  const auto [room, data] = *found;
  DropHole(holes_.find(data));
  if (room > bytes) AddHole(data + bytes, room - bytes);
  SlabOf(data)->second.lent += bytes;
  return data;
}

void SlabPool::AddHole(std::byte* begin, size_t bytes) {
  holes_.emplace(begin, bytes);
  by_size_.emplace(bytes, begin);
}

SlabPool::Holes::iterator SlabPool::DropHole(Holes::iterator hole) {
  by_size_.erase({hole->second, hole->first});
  return holes_.erase(hole);
}

SlabPool::Slabs::iterator SlabPool::SlabOf(const std::byte* data) {
  return std::prev(slabs_.upper_bound(data));
}

void SlabPool::Return(std::byte* data, size_t bytes) {
  std::unique_ptr<HostBlock> freed;  // without the lock
  MutexLock lock(&mutex_);
  const auto found = SlabOf(data);
  Slab& slab = found->second;
  slab.lent -= bytes;
  const std::span<std::byte> memory = slab.memory->bytes();
  // Holes of two slabs stay apart, even if one slab begins where the other ends.
  const auto after = holes_.find(data + bytes);
  if (after != holes_.end() && after->first < memory.data() + memory.size()) {
    bytes += after->second;
    DropHole(after);
  }
  const auto next = holes_.lower_bound(data);
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first >= memory.data() && before->first + before->second == data) {
      data = before->first;
      bytes += before->second;
      DropHole(before);
    }
  }
  try {
    AddHole(data, bytes);
  } catch (const std::bad_alloc&) {
    // The part is used again with its slab only: the caller is a destructor and must not throw.
  }
  if (slab.lent > 0) return;
  slab.idle_since = round_;
  if (idle_ == IdleSlabs::kAreFreed) freed = Remove(found);
}

std::unique_ptr<HostBlock> SlabPool::Remove(Slabs::iterator slab) {
  std::unique_ptr<HostBlock> memory = std::move(slab->second.memory);
  slabs_.erase(slab);
  const std::span<std::byte> bytes = memory->bytes();
  held_ -= bytes.size();
  for (auto hole = holes_.lower_bound(bytes.data());
       hole != holes_.end() && hole->first < bytes.data() + bytes.size();) {
    hole = DropHole(hole);
  }
  return memory;
}

SlabPool::Freed SlabPool::RemoveIdle(absl::FunctionRef<bool(const Slab&)> goes) {
  Freed freed;
  for (auto slab = slabs_.begin(); slab != slabs_.end();) {
    const auto next = std::next(slab);
    if (slab->second.lent == 0 && goes(slab->second)) freed.push_back(Remove(slab));
    slab = next;
  }
  return freed;
}

void SlabPool::Limit(size_t bytes) {
  MutexLock lock(&mutex_);
  limit_ = bytes;
}

void SlabPool::NoteRound(uint64_t round) {
  Freed stale;
  MutexLock lock(&mutex_);
  if (round <= round_) return;
  round_ = round;
  stale = RemoveIdle([round](const Slab& slab) { return slab.idle_since + kIdleRounds < round; });
}

void SlabPool::FreeIdle() {
  Freed idle;
  MutexLock lock(&mutex_);
  idle = RemoveIdle([](const Slab&) { return true; });
}

}  // namespace slimps
