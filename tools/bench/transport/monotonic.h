// Steady time as a number (Linux: CLOCK_MONOTONIC), which all processes of a machine share.
#ifndef SLIMPS_TOOLS_BENCH_TRANSPORT_MONOTONIC_H_
#define SLIMPS_TOOLS_BENCH_TRANSPORT_MONOTONIC_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace slimps {

inline double MonotonicSeconds() {
  return absl::ToDoubleSeconds(MachineClock()->Now() - SteadyTime());
}

// Returns at once when that is past.
inline void SleepUntilMonotonic(double seconds) {
  const double left = seconds - MonotonicSeconds();
  if (left > 0) absl::SleepFor(absl::Seconds(left));
}

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_TRANSPORT_MONOTONIC_H_
