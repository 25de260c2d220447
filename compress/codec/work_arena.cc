// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/work_arena.h"

#include <tbb/blocked_range.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>

#include "proto/base/simulation/simulation.h"

namespace slimps {

struct WorkArena::Arena {
  // TBB prints a warning if asked for more threads than the machine has.
  explicit Arena(int threads) : arena(std::min(threads, tbb::info::default_concurrency())) {}

  tbb::task_arena arena;
};

WorkArena::WorkArena(int threads)
    : threads_(threads > 0 ? threads : tbb::info::default_concurrency()),
      arena_(std::make_unique<Arena>(threads_)) {}

WorkArena::~WorkArena() = default;

void WorkArena::Run(absl::FunctionRef<void()> work) const {
  if (simulation::Active()) return work();  // TBB's threads are none of the simulation's
  arena_->arena.execute([&] { work(); });
}

void WorkArena::ForChunks(size_t count, size_t chunk,
                          absl::FunctionRef<void(size_t, size_t)> body) {
  const size_t chunks = (count + chunk - 1) / chunk;
  if (simulation::Active()) {
    for (size_t i = 0; i < chunks; ++i) body(i * chunk, std::min((i + 1) * chunk, count));
    return;
  }
  // TBB orders the parts before what follows. `ended` tells so to ThreadSanitizer, which does not
  // see into TBB.
  std::atomic<size_t> ended = 0;
  // Isolated: else a thread that waits here could take another caller's part, and this call would
  // wait for that part too.
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(tbb::blocked_range<size_t>(0, chunks),
                      [&](const tbb::blocked_range<size_t>& range) {
                        body(range.begin() * chunk, std::min(range.end() * chunk, count));
                        ended.fetch_add(1, std::memory_order_release);
                      });
  });
  ended.load(std::memory_order_acquire);
}

}  // namespace slimps
