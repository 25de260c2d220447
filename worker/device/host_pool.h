// SPDX-License-Identifier: Apache-2.0
// HostPool: host memory that is used again and again. A training step wants the same sizes as the
// step before, and pinned memory is expensive to make. The pool grows on demand. It shrinks by
// itself: it frees a block that lay idle for kIdleRounds whole rounds, and idle blocks when a limit
// would be exceeded. The pool uses no clock: rounds are what NoteRound says. So the same calls give
// the same blocks.
//
//   auto pool = HostPool::Create([](size_t bytes) { ... make a block ... });
//   auto buffer = pool->Acquire(elements);   // returns to the pool when destroyed
//
// Thread-safe. Buffers keep their pool alive.
#ifndef SLIMPS_WORKER_DEVICE_HOST_POOL_H_
#define SLIMPS_WORKER_DEVICE_HOST_POOL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "worker/device/device.h"

namespace slimps {

// Memory of one kind, freed by the destructor. Thread-compatible.
class HostBlock {
 public:
  virtual ~HostBlock() = default;
  // Aligned to at least 64 bytes.
  virtual std::span<std::byte> bytes() = 0;
};

// Returns the bytes of the block for so many floats, rounded up so that tensors of nearly one size
// share blocks.
// InvalidArgument: more than memory can address.
absl::StatusOr<size_t> HostBlockBytes(size_t elements);

class HostPool final : public std::enable_shared_from_this<HostPool> {
 public:
  // Makes a block.
  // ResourceExhausted: no memory.
  using MakeBlock = std::function<absl::StatusOr<std::unique_ptr<HostBlock>>(size_t bytes)>;

  static constexpr uint64_t kIdleRounds = 2;

  struct Stats {
    size_t bytes_in_use = 0;
    size_t bytes_idle = 0;
    int64_t blocks_made = 0;
  };

  static std::shared_ptr<HostPool> Create(MakeBlock make_block);

  // Makes a pool of AlignedBuffers for payloads. They are ordinary memory, or memory shared with
  // other processes if this process shares any.
  static std::shared_ptr<HostPool> CreateAligned();

  // Returns a buffer of exactly `elements` floats, contents unspecified.
  // InvalidArgument: more than memory can address.
  // ResourceExhausted: no memory, even after the idle blocks were freed.
  [[nodiscard]] absl::StatusOr<std::unique_ptr<HostBuffer>> Acquire(size_t elements);

  // Same, for a buffer that is held as long as a model: it is freed on destruction, and the limit
  // does not count it. Otherwise no room would be left for blocks that are used again.
  [[nodiscard]] absl::StatusOr<std::unique_ptr<HostBuffer>> Keep(size_t elements);

  // Frees idle blocks from now on, the largest first, rather than make a block that takes lent and
  // idle memory together above `bytes`.
  void Limit(size_t bytes);

  // Says that a round begins, or one above it: frees the blocks that have lain idle for kIdleRounds
  // whole rounds. A round below the highest so far changes nothing.
  void NoteRound(uint64_t round);

  Stats stats() const;

 private:
  class Lent;
  struct Idle {
    std::unique_ptr<HostBlock> block;
    uint64_t since = 0;  // the round in which it came back
  };
  using IdleBlocks = std::map<size_t, std::vector<Idle>>;  // by bytes; the newest last

  explicit HostPool(MakeBlock make_block) : make_block_(std::move(make_block)) {}

  // Makes a block, if need be when all idle ones have been freed.
  absl::StatusOr<std::unique_ptr<HostBlock>> Make(size_t bytes);
  std::unique_ptr<HostBlock> TakeIdle(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves out the idle blocks that must go so that `bytes` more keep the limit. The caller frees
  // them without the lock.
  IdleBlocks TakeSurplus(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Return(std::unique_ptr<HostBlock> block);

  const MakeBlock make_block_;
  mutable Mutex mutex_;
  IdleBlocks idle_ ABSL_GUARDED_BY(mutex_);
  Stats stats_ ABSL_GUARDED_BY(mutex_);
  size_t limit_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<size_t>::max();
  uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_DEVICE_HOST_POOL_H_
