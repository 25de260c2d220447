// CLOCK_MONOTONIC, which all processes of a machine share.
#ifndef SLIMPS_TOOLS_BENCH_TRANSPORT_MONOTONIC_H_
#define SLIMPS_TOOLS_BENCH_TRANSPORT_MONOTONIC_H_

#include <ctime>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace slimps {

inline double MonotonicSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Returns at once when that is past.
inline void SleepUntilMonotonic(double seconds) {
  const double left = seconds - MonotonicSeconds();
  if (left > 0) absl::SleepFor(absl::Seconds(left));
}

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_TRANSPORT_MONOTONIC_H_
