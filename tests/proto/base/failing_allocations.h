// SPDX-License-Identifier: Apache-2.0
// Makes memory run out at one chosen allocation. Replaces operator new of the whole program that
// links it.
//
//   for (int n = 0;; ++n) {
//     const bool ran_out = RunsOut(n, [&] { state.HandleItems(items); });
//     ...                     // nothing may be broken
//     if (!ran_out) break;    // `body` makes only n allocations
//   }
#ifndef SLIMPS_TESTS_PROTO_BASE_FAILING_ALLOCATIONS_H_
#define SLIMPS_TESTS_PROTO_BASE_FAILING_ALLOCATIONS_H_

#include <new>

namespace slimps {

// Makes the n-th allocation of this thread fail, counting from now. The first is number 0.
void FailAllocation(int n);

// Stops failing. Returns true if an allocation has failed.
bool EndFailing();

// Runs `body` with its n-th allocation on this thread failing. Catches the std::bad_alloc that it
// throws then. Returns true if `body` got as far as that allocation.
template <typename Body>
bool RunsOut(int n, Body body) {
  FailAllocation(n);
  try {
    body();
  } catch (const std::bad_alloc&) {
  }
  return EndFailing();
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_BASE_FAILING_ALLOCATIONS_H_
