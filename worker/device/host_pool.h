// Host memory that is used again and again: a training step wants the same sizes as the step
// before, and pinned memory is dear to make. Grows by what is asked for. Shrinks by itself: a block
// that lay idle for two epochs is freed, an epoch being kEpochAcquisitions acquisitions (no clock:
// the same calls, the same blocks), and so are idle blocks where a limit would be exceeded.
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
  // At least 64-byte aligned.
  virtual std::span<std::byte> bytes() = 0;
};

class HostPool final : public std::enable_shared_from_this<HostPool> {
 public:
  // ResourceExhausted: no memory.
  using MakeBlock = std::function<absl::StatusOr<std::unique_ptr<HostBlock>>(size_t bytes)>;

  static constexpr int64_t kEpochAcquisitions = 1024;

  struct Stats {
    size_t bytes_in_use = 0;
    size_t bytes_idle = 0;
    int64_t blocks_made = 0;
  };

  static std::shared_ptr<HostPool> Create(MakeBlock make_block);
  // Of AlignedBuffers for payloads: ordinary memory, or shared with other processes where this one shares any.
  static std::shared_ptr<HostPool> CreateAligned();

  // A buffer of exactly `elements` floats, contents unspecified. InvalidArgument: more than memory
  // can address. ResourceExhausted: no memory, even after the idle blocks were freed.
  [[nodiscard]] absl::StatusOr<std::unique_ptr<HostBuffer>> Acquire(size_t elements);
  // Idle blocks are freed, the largest first, where a new one would make more than this, lent and idle together.
  void Limit(size_t bytes);
  Stats stats() const;

 private:
  class Lent;
  struct Idle {
    std::unique_ptr<HostBlock> block;
    int64_t epoch = 0;  // when it came back
  };
  using IdleBlocks = std::map<size_t, std::vector<Idle>>;  // by bytes; the newest last

  explicit HostPool(MakeBlock make_block) : make_block_(std::move(make_block)) {}

  std::unique_ptr<HostBlock> TakeIdle(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves out what must go for `bytes` more to keep the limit. Like the next, to be freed without the lock.
  IdleBlocks TakeSurplus(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves out what has lain idle too long.
  IdleBlocks TakeStale() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Return(std::unique_ptr<HostBlock> block);

  const MakeBlock make_block_;
  mutable Mutex mutex_;
  IdleBlocks idle_ ABSL_GUARDED_BY(mutex_);
  Stats stats_ ABSL_GUARDED_BY(mutex_);
  size_t limit_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<size_t>::max();
  int64_t acquisitions_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_DEVICE_HOST_POOL_H_
