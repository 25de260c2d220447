// SPDX-License-Identifier: Apache-2.0
// Steady time as a number. On Linux it is CLOCK_MONOTONIC, equal in all processes of a machine.
#ifndef SLIMPS_TOOLS_BENCH_TRANSPORT_MONOTONIC_H_
#define SLIMPS_TOOLS_BENCH_TRANSPORT_MONOTONIC_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace slimps {

inline double MonotonicSeconds() {
  return absl::ToDoubleSeconds(MachineClock()->Now() - SteadyTime());
}

// Sleeps until that time; returns at once if it has passed.
inline void SleepUntilMonotonic(double seconds) {
  const double left = seconds - MonotonicSeconds();
  if (left > 0) absl::SleepFor(absl::Seconds(left));
}

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_TRANSPORT_MONOTONIC_H_
