// SPDX-License-Identifier: Apache-2.0
// Runs a loop over a tensor on one or several threads. It cuts the tensor as ParallelEncoder does,
// so that the measured operation and its reference divide their work in the same way.
#ifndef SLIMPS_TOOLS_BENCH_CODEC_TEAM_H_
#define SLIMPS_TOOLS_BENCH_CODEC_TEAM_H_

#include <cstddef>
#include <functional>
#include <memory>

namespace slimps {

// Thread-compatible.
class Team final {
 public:
  // REQUIRES: threads >= 1.
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int threads() const { return threads_; }

  // Calls body(first, last) until all elements are covered; each `first` is a multiple of
  // kBlockElements. With one thread it makes one call.
  void ForElements(size_t elements, const std::function<void(size_t, size_t)>& body) const;

  // Calls body(i) for i in 0 .. count - 1.
  void ForEach(size_t count, const std::function<void(size_t)>& body) const;

 private:
  struct Arena;  // keeps TBB out of this header

  const int threads_;
  const std::unique_ptr<Arena> arena_;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CODEC_TEAM_H_
