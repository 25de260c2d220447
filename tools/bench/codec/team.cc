// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/team.h"

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>

#include "compress/format/format.h"

namespace slimps {
namespace {

constexpr size_t kChunkElements = 16 * kBlockElements;  // as in ParallelEncoder

}  // namespace

struct Team::Arena {
  explicit Arena(int threads) : arena(threads) {}
  tbb::task_arena arena;
};

Team::Team(int threads)
    : threads_(threads), arena_(threads > 1 ? std::make_unique<Arena>(threads) : nullptr) {}

Team::~Team() = default;

void Team::ForElements(size_t elements, const std::function<void(size_t, size_t)>& body) const {
  if (arena_ == nullptr) return body(0, elements);
  const size_t chunks = (elements + kChunkElements - 1) / kChunkElements;
  arena_->arena.execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<size_t>(0, chunks), [&](const tbb::blocked_range<size_t>& range) {
          body(range.begin() * kChunkElements, std::min(range.end() * kChunkElements, elements));
        });
  });
}

void Team::ForEach(size_t count, const std::function<void(size_t)>& body) const {
  if (arena_ == nullptr) {
    for (size_t i = 0; i < count; ++i) body(i);
    return;
  }
  arena_->arena.execute([&] { tbb::parallel_for(size_t{0}, count, body); });
}

}  // namespace slimps
