// SPDX-License-Identifier: Apache-2.0
// SlabPool: host memory that is dear to make, as pinned memory is. It is made in slabs, of which
// buffers are parts. So a model of any size takes few slabs, and a step that wants other sizes than
// the one before makes none.
//
//   slab: | buffer | hole | buffer | buffer | hole            |   A buffer takes the smallest hole
//                                                                 that it fits in.
//
// A slab without buffers is freed when no buffer was in it for kIdleRounds whole rounds, and sooner
// if a limit would be exceeded or memory has run out. The pool uses no clock: rounds are what
// NoteRound says.
//
//   auto pool = SlabPool::Create([](size_t bytes) { ... make a block ... });
//   auto buffer = pool->Acquire(elements);   // its part is a hole again when it is destroyed
//
// Thread-safe. Buffers keep their pool alive.
#ifndef SLIMPS_WORKER_DEVICE_SLAB_POOL_H_
#define SLIMPS_WORKER_DEVICE_SLAB_POOL_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "worker/device/device.h"
#include "worker/device/host_pool.h"

namespace slimps {

class SlabPool final : public std::enable_shared_from_this<SlabPool> {
 public:
  // The size of a slab, unless one buffer needs more, or the limit and what is held are less.
  static constexpr size_t kSlabBytes = size_t{64} << 20;

  static constexpr uint64_t kIdleRounds = 2;

  // What becomes of a slab when its last buffer is destroyed.
  enum class IdleSlabs {
    kWait,      // for the next buffers
    kAreFreed,  // at once
  };

  static std::shared_ptr<SlabPool> Create(HostPool::MakeBlock make_slab, IdleSlabs idle);

  // Returns a buffer of exactly `elements` floats, contents unspecified.
  // InvalidArgument: more than memory can address.
  // ResourceExhausted: no memory, even after the idle slabs were freed.
  [[nodiscard]] absl::StatusOr<std::unique_ptr<HostBuffer>> Acquire(size_t elements);

  // Frees idle slabs from now on rather than make one that takes all slabs together above `bytes`.
  void Limit(size_t bytes);

  // Says that a round begins, or one above it: frees the slabs that have been idle for kIdleRounds
  // whole rounds. A round below the highest so far changes nothing.
  void NoteRound(uint64_t round);

  // Frees all slabs without buffers.
  void FreeIdle();

 private:
  class Lent;
  struct Slab {
    std::unique_ptr<HostBlock> memory;
    size_t lent = 0;          // bytes
    uint64_t idle_since = 0;  // the round in which its last buffer was destroyed
  };
  using Slabs = std::map<const std::byte*, Slab>;  // by their first byte
  using Holes = std::map<std::byte*, size_t>;
  using Freed = std::vector<std::unique_ptr<HostBlock>>;

  SlabPool(HostPool::MakeBlock make_slab, IdleSlabs idle)
      : make_slab_(std::move(make_slab)), idle_(idle) {}

  // Makes a slab in which `bytes` fit, and takes them.
  absl::StatusOr<std::byte*> TakeOfNew(size_t bytes);
  // Returns null if no hole is large enough.
  std::byte* TakeHole(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddHole(std::byte* begin, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Holes::iterator DropHole(Holes::iterator hole) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Slabs::iterator SlabOf(const std::byte* data) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves out a slab without buffers. The caller frees it without the lock: freeing pinned memory
  // can take long.
  std::unique_ptr<HostBlock> Remove(Slabs::iterator slab) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Freed RemoveIdle(absl::FunctionRef<bool(const Slab&)> goes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Return(std::byte* data, size_t bytes);

  const HostPool::MakeBlock make_slab_;
  const IdleSlabs idle_;
  Mutex making_;  // held while a slab is made, so that two threads do not make two; taken first
  Mutex mutex_;
  Slabs slabs_ ABSL_GUARDED_BY(mutex_);
  Holes holes_ ABSL_GUARDED_BY(mutex_);                                      // joined in a slab
  std::set<std::pair<size_t, std::byte*>> by_size_ ABSL_GUARDED_BY(mutex_);  // the same holes
  size_t held_ ABSL_GUARDED_BY(mutex_) = 0;                                  // bytes of all slabs
  size_t limit_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<size_t>::max();
  uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_DEVICE_SLAB_POOL_H_
