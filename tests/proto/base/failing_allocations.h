// Memory that runs out at one allocation. Replaces operator new of the whole program that links it.
//
//   for (int n = 0;; ++n) {
//     const bool ran_out = RunsOut(n, [&] { state.HandleItems(items); });
//     ...                     // nothing may be broken
//     if (!ran_out) break;    // it does not allocate so often
//   }
#ifndef SLIMPS_TESTS_PROTO_BASE_FAILING_ALLOCATIONS_H_
#define SLIMPS_TESTS_PROTO_BASE_FAILING_ALLOCATIONS_H_

#include <new>

namespace slimps {

// Of this thread: the n-th allocation from now on fails, the first being number 0.
void FailAllocation(int n);
// No more. Whether one has failed.
bool EndFailing();

// Runs `body`, whose n-th allocation on this thread fails; what it throws then ends here. Whether it came so far.
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
