// WorkArena: threads that share passes over memory. A fixed grid is cut up among them, so that results are those of one
// thread.
//
//   WorkArena arena(/*threads=*/0);                    // one for each core
//   arena.Run([&] {
//     WorkArena::ForChunks(n, kChunk, [&](size_t first, size_t last) { ... elements first to last ... });
//   });
//
// The calling thread works along, and so needs no thread of its own to wait. Arenas share one pool of at most as many
// threads as there are cores: two of them do not contend for more. Thread-safe; callers share the arena.
#ifndef SLIMPS_COMPRESS_CODEC_WORK_ARENA_H_
#define SLIMPS_COMPRESS_CODEC_WORK_ARENA_H_

#include <cstddef>
#include <memory>

#include "absl/functional/function_ref.h"

namespace slimps {

class WorkArena final {
 public:
  // `threads`, the caller's included; 0: as many as there are cores. No more work than there are cores.
  explicit WorkArena(int threads);
  ~WorkArena();
  WorkArena(const WorkArena&) = delete;
  WorkArena& operator=(const WorkArena&) = delete;

  // 1 or more.
  int threads() const { return threads_; }

  // Calls work() inside the arena and waits for it. What work throws, and what TBB throws, comes out.
  void Run(absl::FunctionRef<void()> work) const;

  // Inside an arena: calls body(first, last) for parts of [0, count), side by side; parts begin at multiples of `chunk`.
  // While it waits, a thread takes no other caller's part.
  static void ForChunks(size_t count, size_t chunk, absl::FunctionRef<void(size_t, size_t)> body);

 private:
  struct Arena;  // keeps TBB out of this header

  const int threads_;
  const std::unique_ptr<Arena> arena_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_WORK_ARENA_H_
