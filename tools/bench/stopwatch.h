// Times and medians.
#ifndef SLIMPS_TOOLS_BENCH_STOPWATCH_H_
#define SLIMPS_TOOLS_BENCH_STOPWATCH_H_

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace slimps {

// One thread's own time on the CPU, so that what else the machine runs counts as little as it can; several threads'
// time as it goes by.
inline double SecondsNow(int threads) {
  if (threads > 1) return absl::ToDoubleSeconds(MachineClock()->Now() - SteadyTime());
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Seconds of one of `runs` calls of body().
template <typename Body>
double TimeRuns(int threads, size_t runs, const Body& body) {
  const double begin = SecondsNow(threads);
  for (size_t i = 0; i < runs; ++i) body();
  return (SecondsNow(threads) - begin) / static_cast<double>(runs);
}

// REQUIRES: there are values.
inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_STOPWATCH_H_
