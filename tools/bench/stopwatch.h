// SPDX-License-Identifier: Apache-2.0
// Times and medians. Thread-safe: pure functions and clocks.
#ifndef SLIMPS_TOOLS_BENCH_STOPWATCH_H_
#define SLIMPS_TOOLS_BENCH_STOPWATCH_H_

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace slimps {

// Returns the seconds of a clock. With one thread it is this thread's CPU time, so that other
// programs on the machine count as little as possible; with several, it is wall-clock time.
inline double SecondsNow(int threads) {
  if (threads > 1) return absl::ToDoubleSeconds(MachineClock()->Now() - SteadyTime());
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Calls body() `runs` times and returns the mean seconds of one call.
template <typename Body>
double TimeRuns(int threads, size_t runs, const Body& body) {
  const double begin = SecondsNow(threads);
  for (size_t i = 0; i < runs; ++i) body();
  return (SecondsNow(threads) - begin) / static_cast<double>(runs);
}

// Returns the median. REQUIRES: `values` is not empty.
inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_STOPWATCH_H_
