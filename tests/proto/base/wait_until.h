// SPDX-License-Identifier: Apache-2.0
// Waits for a fact that nothing announces, for example the end of a process or a counter. Where a
// thread can notify, a test waits for its notification instead.
//
//   ASSERT_TRUE(WaitUntil([&] { return memory.stats().bytes_in_use == 0; }));
#ifndef SLIMPS_TESTS_PROTO_BASE_WAIT_UNTIL_H_
#define SLIMPS_TESTS_PROTO_BASE_WAIT_UNTIL_H_

#include <functional>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace slimps {

// Looks every millisecond. Returns false if `fact` is not true within a minute.
inline bool WaitUntil(const std::function<bool()>& fact) {
  const SteadyTime deadline = MachineClock()->Now() + absl::Minutes(1);
  while (!fact()) {
    if (MachineClock()->Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_BASE_WAIT_UNTIL_H_
