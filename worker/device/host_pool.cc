// SPDX-License-Identifier: Apache-2.0
#include "worker/device/host_pool.h"

#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/buffer.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

class AlignedBlock final : public HostBlock {
 public:
  explicit AlignedBlock(size_t bytes) : buffer_(bytes, BufferUse::kPayload) {}
  std::span<std::byte> bytes() override { return buffer_.bytes(); }

 private:
  AlignedBuffer buffer_;
};

absl::StatusOr<std::unique_ptr<HostBlock>> MakeAlignedBlock(size_t bytes) {
  const auto make = [&]() -> absl::StatusOr<std::unique_ptr<HostBlock>> {
    return std::make_unique<AlignedBlock>(bytes);
  };
  return OrOutOfMemory(make, "host memory");
}

}  // namespace

absl::StatusOr<size_t> HostBlockBytes(size_t elements) {
  constexpr size_t kGrainBytes = 4096;
  constexpr size_t kMaxElements =
      (std::numeric_limits<ptrdiff_t>::max() - kGrainBytes) / sizeof(float);
  if (elements > kMaxElements) {
    return absl::InvalidArgumentError(
        absl::StrCat("host buffer of ", elements, " elements, expected at most ", kMaxElements));
  }
  return (elements * sizeof(float) + kGrainBytes - 1) / kGrainBytes * kGrainBytes;
}

// A lent block, as a HostBuffer of the length that the borrower asked for.
class HostPool::Lent final : public HostBuffer {
 public:
  Lent(std::shared_ptr<HostPool> pool, std::unique_ptr<HostBlock> block, size_t elements)
      : pool_(std::move(pool)), block_(std::move(block)), elements_(elements) {}
  ~Lent() override {
    if (pool_ != nullptr) pool_->Return(std::move(block_));
  }

  std::span<float> floats() override {
    return {reinterpret_cast<float*>(block_->bytes().data()), elements_};
  }

 private:
  const std::shared_ptr<HostPool> pool_;  // null: the block ends with the buffer
  std::unique_ptr<HostBlock> block_;
  const size_t elements_;
};

std::shared_ptr<HostPool> HostPool::Create(MakeBlock make_block) {
  return std::shared_ptr<HostPool>(new HostPool(std::move(make_block)));
}

std::shared_ptr<HostPool> HostPool::CreateAligned() { return Create(MakeAlignedBlock); }

absl::StatusOr<std::unique_ptr<HostBuffer>> HostPool::Keep(size_t elements) {
  SLIMPS_ASSIGN_OR_RETURN(const size_t bytes, HostBlockBytes(elements));
  SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<HostBlock> block, Make(bytes));
  return std::make_unique<Lent>(/*pool=*/nullptr, std::move(block), elements);
}

absl::StatusOr<std::unique_ptr<HostBuffer>> HostPool::Acquire(size_t elements) {
  SLIMPS_ASSIGN_OR_RETURN(const size_t bytes, HostBlockBytes(elements));
  IdleBlocks surplus;
  std::unique_ptr<HostBlock> block;
  {
    MutexLock lock(&mutex_);
    block = TakeIdle(bytes);
    if (block == nullptr) surplus = TakeSurplus(bytes);
  }
  // Freed without the lock: freeing pinned memory can take long.
  surplus.clear();
  if (block == nullptr) {
    SLIMPS_ASSIGN_OR_RETURN(block, Make(bytes));
    MutexLock lock(&mutex_);
    ++stats_.blocks_made;
    stats_.bytes_in_use += bytes;
  }
  return std::make_unique<Lent>(shared_from_this(), std::move(block), elements);
}

absl::StatusOr<std::unique_ptr<HostBlock>> HostPool::Make(size_t bytes) {
  absl::StatusOr<std::unique_ptr<HostBlock>> made = make_block_(bytes);
  if (!absl::IsResourceExhausted(made.status())) return made;
  // Idle blocks of other sizes may hold the memory that is missing: frees them and tries again.
  IdleBlocks all;
  {
    MutexLock lock(&mutex_);
    all.swap(idle_);
    stats_.bytes_idle = 0;
  }
  all.clear();
  return make_block_(bytes);
}

std::unique_ptr<HostBlock> HostPool::TakeIdle(size_t bytes) {
  auto found = idle_.find(bytes);
  if (found == idle_.end()) return nullptr;
  std::unique_ptr<HostBlock> block = std::move(found->second.back().block);
  found->second.pop_back();
  if (found->second.empty()) idle_.erase(found);
  stats_.bytes_idle -= bytes;
  stats_.bytes_in_use += bytes;
  return block;
}

HostPool::IdleBlocks HostPool::TakeSurplus(size_t bytes) {
  IdleBlocks surplus;
  const auto exceeds = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return bytes > limit_ || stats_.bytes_in_use + stats_.bytes_idle > limit_ - bytes;
  };
  while (!idle_.empty() && exceeds()) {
    const auto largest = std::prev(idle_.end());
    surplus[largest->first].push_back(std::move(largest->second.back()));
    largest->second.pop_back();
    stats_.bytes_idle -= largest->first;
    if (largest->second.empty()) idle_.erase(largest);
  }
  return surplus;
}

void HostPool::NoteRound(uint64_t round) {
  IdleBlocks stale;  // freed without the lock
  MutexLock lock(&mutex_);
  if (round <= round_) return;
  round_ = round;
  for (auto size = idle_.begin(); size != idle_.end();) {
    std::vector<Idle>& blocks = size->second;
    // The oldest come first, since blocks are taken from and returned to the back.
    size_t count = 0;
    while (count < blocks.size() && blocks[count].since + kIdleRounds < round) ++count;
    for (size_t i = 0; i < count; ++i) stale[size->first].push_back(std::move(blocks[i]));
    blocks.erase(blocks.begin(), blocks.begin() + static_cast<ptrdiff_t>(count));
    stats_.bytes_idle -= count * size->first;
    size = blocks.empty() ? idle_.erase(size) : std::next(size);
  }
}

void HostPool::Return(std::unique_ptr<HostBlock> block) {
  const size_t bytes = block->bytes().size();
  MutexLock lock(&mutex_);
  stats_.bytes_in_use -= bytes;
  try {
    idle_[bytes].push_back({std::move(block), round_});
    stats_.bytes_idle += bytes;
  } catch (const std::bad_alloc&) {
    // The block is freed instead of kept: the caller is a destructor and must not throw.
    const auto found = idle_.find(bytes);
    if (found != idle_.end() && found->second.empty()) idle_.erase(found);
  }
}

void HostPool::Limit(size_t bytes) {
  MutexLock lock(&mutex_);
  limit_ = bytes;
}

HostPool::Stats HostPool::stats() const {
  MutexLock lock(&mutex_);
  return stats_;
}

}  // namespace slimps
