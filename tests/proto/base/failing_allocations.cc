// SPDX-License-Identifier: Apache-2.0
#include "tests/proto/base/failing_allocations.h"

#include <cstdlib>

namespace {

// The number of allocations that succeed before one fails. Negative: all succeed.
thread_local int allocations_left = -1;
thread_local bool one_failed = false;

void* Allocate(size_t bytes) {
  if (allocations_left >= 0 && allocations_left-- == 0) {
    one_failed = true;
    return nullptr;
  }
  return std::malloc(bytes == 0 ? 1 : bytes);
}

}  // namespace

void* operator new(size_t bytes) {
  void* const memory = Allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

// Tells LeakSanitizer what not to report in these tests. If memory runs out while a protobuf
// message is built or copied, the message does not free what it has built so far (protobuf 3.21
// does not use exceptions).
extern "C" const char* __lsan_default_suppressions() {
  return "leak:google::protobuf\nleak:slimps::wire::\n";
}

namespace slimps {

void FailAllocation(int n) {
  one_failed = false;
  allocations_left = n;
}

bool EndFailing() {
  allocations_left = -1;
  return one_failed;
}

}  // namespace slimps
