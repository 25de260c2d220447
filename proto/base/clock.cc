// SPDX-License-Identifier: Apache-2.0
#include "proto/base/clock.h"

#include <time.h>

#include "proto/base/simulation/simulation.h"

namespace slimps {
namespace {

timespec Read(clockid_t id) {
  timespec now{};
  clock_gettime(id, &now);
  return now;
}

}  // namespace

SteadyTime RealClock::Now() const {
  if (simulation::Active()) return SteadyTime::AtEpochPlus(simulation::Now());
  return SteadyTime::AtEpochPlus(absl::DurationFromTimespec(Read(CLOCK_MONOTONIC)));
}

absl::Time RealClock::WallNow() const {
  if (simulation::Active()) return absl::UnixEpoch() + simulation::Now();
  return absl::TimeFromTimespec(Read(CLOCK_REALTIME));
}

const Clock* MachineClock() {
  static const RealClock* const clock = new RealClock();
  return clock;
}

WallAnchor ReadAnchor(const Clock& clock) {
  // This thread may sleep between the readings, so the reading that took the least time is used.
  WallAnchor best;
  absl::Duration least = absl::InfiniteDuration();
  for (int i = 0; i < 5; ++i) {
    const SteadyTime before = clock.Now();
    const absl::Time wall = clock.WallNow();
    const absl::Duration took = clock.Now() - before;
    if (took >= least) continue;
    least = took;
    best = {.steady = before + took / 2, .wall = wall};
  }
  return best;
}

}  // namespace slimps
