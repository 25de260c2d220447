// SPDX-License-Identifier: Apache-2.0
// Threads that take partitions, one each at a time, as a worker's and a server's do.
//
//   const Team team(/*threads=*/2);
//   team.ForEach(partitions, [&](size_t partition, size_t thread) { ... });
#ifndef SLIMPS_TOOLS_BENCH_CODEC_TEAM_H_
#define SLIMPS_TOOLS_BENCH_CODEC_TEAM_H_

#include <atomic>
#include <cstddef>

#include "absl/functional/function_ref.h"
#include "compress/codec/work_arena.h"

namespace slimps {

// Thread-compatible.
class Team final {
 public:
  // REQUIRES: threads >= 1.
  explicit Team(int threads) : arena_(threads) {}

  int threads() const { return arena_.threads(); }

  // Calls body(i, thread) for i in 0 .. count - 1; thread < threads(). One thread is the caller's.
  void ForEach(size_t count, absl::FunctionRef<void(size_t i, size_t thread)> body) const {
    std::atomic<size_t> next = 0;  // publishes only itself
    const auto take = [&](size_t thread) {
      for (size_t i = next++; i < count; i = next++) body(i, thread);
    };
    if (threads() == 1) return take(0);
    arena_.Run([&] {
      WorkArena::ForChunks(static_cast<size_t>(threads()), 1, [&](size_t first, size_t last) {
        for (size_t thread = first; thread < last; ++thread) take(thread);
      });
    });
  }

 private:
  const WorkArena arena_;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CODEC_TEAM_H_
