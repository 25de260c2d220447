// SPDX-License-Identifier: Apache-2.0
// WorkArena: threads that share passes over memory. It cuts a fixed grid up among them, so the
// results are those of one thread.
//
//   WorkArena arena(/*threads=*/0);                    // one for each core
//   arena.Run([&] {
//     WorkArena::ForChunks(n, kChunk, [&](size_t first, size_t last) { ... });
//   });
//
// The calling thread works too, so no thread only waits. All arenas share one pool of at most as
// many threads as there are cores, so two arenas do not compete for more. Thread-safe; callers
// share the arena.
#ifndef SLIMPS_COMPRESS_CODEC_WORK_ARENA_H_
#define SLIMPS_COMPRESS_CODEC_WORK_ARENA_H_

#include <cstddef>
#include <memory>

#include "absl/functional/function_ref.h"

namespace slimps {

class WorkArena final {
 public:
  // `threads` counts the caller; 0: as many as there are cores. At most as many as there are cores
  // work at the same time.
  explicit WorkArena(int threads);
  ~WorkArena();
  WorkArena(const WorkArena&) = delete;
  WorkArena& operator=(const WorkArena&) = delete;

  // Returns the number asked for, or the number of cores if that was 0.
  int threads() const { return threads_; }

  // Calls work() inside the arena and waits for it. Throws what work throws and what TBB throws.
  void Run(absl::FunctionRef<void()> work) const;

  // Calls body(first, last) for parts of [0, count) in parallel. Parts begin at multiples of
  // `chunk`. A thread that waits here takes no other caller's part.
  // REQUIRES: called inside an arena.
  static void ForChunks(size_t count, size_t chunk, absl::FunctionRef<void(size_t, size_t)> body);

 private:
  struct Arena;  // keeps TBB out of this header

  const int threads_;
  const std::unique_ptr<Arena> arena_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_WORK_ARENA_H_
