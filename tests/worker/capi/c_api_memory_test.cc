// SPDX-License-Identifier: Apache-2.0
// Memory runs out at each allocation of a call of the C API. The call returns an error that says
// so, and the process lives.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <new>
#include <string>

#include "worker/capi/c_api_calls.h"

namespace {

// The number of allocations of this thread before one fails. Negative: none fails.
thread_local int left = -1;

void* Allocate(size_t bytes, size_t alignment) {
  if (left == 0) {
    left = -1;  // only one fails, so the message can be kept
    throw std::bad_alloc();
  }
  if (left > 0) --left;
  const size_t whole = (bytes + alignment - 1) / alignment * alignment;
  void* memory = alignment > alignof(std::max_align_t) ? std::aligned_alloc(alignment, whole)
                                                       : std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, 1); }
void* operator new[](size_t bytes) { return Allocate(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
// As in tests/proto/base/failing_allocations.cc: protobuf leaks half-built messages when memory
// runs out.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:google::protobuf\nleak:slimps::wire::\n";
}

namespace {

// Makes the 1st, 2nd, ... allocation of `call` fail, until the call makes fewer than that and ends
// with `end`. Returns how often an allocation failed.
int FailEachAllocation(const std::function<slimps_status()>& call, slimps_status end) {
  for (int failures = 0; failures < 10000; ++failures) {
    left = failures;
    const slimps_status status = call();
    const bool failed = left == -1;
    left = -1;
    if (!failed) {
      EXPECT_EQ(status, end) << slimps_last_error();
      return failures;
    }
    if (status == end && end == SLIMPS_OK) continue;  // it did without that memory
    // If only the memory for the message was missing, the call returns its own error.
    EXPECT_TRUE(status == end || status == SLIMPS_RESOURCE_EXHAUSTED) << slimps_last_error();
    EXPECT_NE(std::string(slimps_last_error()).find("out of memory"), std::string::npos)
        << slimps_last_error();
  }
  ADD_FAILURE() << "it never ends";
  return 0;
}

const slimps_key kW = slimps_text_key("a key that is too long for a small string");

TEST(CApiMemory, EveryCallThatFindsNoneSaysSo) {
  slimps_options* options = nullptr;
  EXPECT_GT(FailEachAllocation([&] { return slimps_options_create(&options); }, SLIMPS_OK), 0);
  EXPECT_GT(FailEachAllocation(
                [&] { return slimps_options_set(options, "compression", "2bit:threshold=0.5"); },
                SLIMPS_OK),
            0);
  EXPECT_GT(FailEachAllocation([&] { return slimps_options_set(options, "threshold", "none"); },
                               SLIMPS_INVALID_ARGUMENT),
            0)
      << "an error's message takes memory too";
  slimps_store* store = nullptr;
  // oneTBB starts here, with enough memory. If memory is short while it starts, it waits for ever.
  ASSERT_EQ(slimps_create("device", options, &store), SLIMPS_OK);
  slimps_destroy(store);
  EXPECT_GT(FailEachAllocation([&] { return slimps_create("device", options, &store); }, SLIMPS_OK),
            0);
  slimps_destroy(store);
  slimps_options_destroy(options);
  slimps_call* call = nullptr;
  EXPECT_GT(FailEachAllocation([&] { return slimps_call_create(&call); }, SLIMPS_OK), 0);
  ASSERT_EQ(slimps_create("local", nullptr, &store), SLIMPS_OK);
  slimps_store* background = nullptr;
  EXPECT_GT(
      FailEachAllocation([&] { return slimps_in_background(store, call, &background); }, SLIMPS_OK),
      0);
  slimps_destroy(store);
  slimps_destroy(background);
  EXPECT_GT(
      FailEachAllocation(
          [&] { return slimps_create_in_background("local", nullptr, call, &store); }, SLIMPS_OK),
      0);
  slimps_destroy(store);
  slimps_call_destroy(call);
  slimps_optimizer* adam = nullptr;
  EXPECT_GT(FailEachAllocation([&] { return slimps_optimizer_create("adam", &adam); }, SLIMPS_OK),
            0);
  slimps_optimizer_destroy(adam);
}

using Call = std::function<slimps_status(slimps_store*)>;

// Makes the 1st, 2nd, ... allocation of `call` fail, each time in a store of its own. Returns how
// often an allocation failed.
int FailEachAllocationOfAStore(const Call& prepare, const Call& call) {
  for (int n = 0;; ++n) {
    slimps_store* store = nullptr;
    EXPECT_EQ(slimps_create("device", nullptr, &store), SLIMPS_OK);
    EXPECT_EQ(prepare(store), SLIMPS_OK);
    left = n;
    const slimps_status status = call(store);
    const bool failed = left == -1;
    left = -1;
    if (!failed) {
      EXPECT_EQ(status, SLIMPS_OK) << slimps_last_error();
      slimps_destroy(store);
      return n;
    }
    if (status != SLIMPS_OK) {
      EXPECT_EQ(status, SLIMPS_RESOURCE_EXHAUSTED) << slimps_last_error();
      EXPECT_NE(std::string(slimps_last_error()).find("out of memory"), std::string::npos)
          << slimps_last_error();
      const bool store_failed =
          std::string(slimps_last_error()).find("the store has failed") != std::string::npos;
      if (store_failed) {
        EXPECT_EQ(slimps_barrier(store), SLIMPS_RESOURCE_EXHAUSTED) << "and says so ever after";
        EXPECT_NE(std::string(slimps_last_error()).find("the store has failed"), std::string::npos);
      } else {
        EXPECT_EQ(slimps_barrier(store), SLIMPS_OK) << "it was an answer";
      }
    }
    slimps_destroy(store);
  }
}

TEST(CApiMemory, AStoreFailsOrTheCallIsAnsweredAndTheProcessLives) {
  const float values[3] = {1, -1, 0};
  float out[3];
  const int64_t shape[] = {3};
  const slimps_tensor tensor = SLIMPS_TENSOR(kW, shape, 1, values);
  const Call nothing = [](slimps_store*) { return SLIMPS_OK; };
  const Call init = [&](slimps_store* store) { return slimps_init(store, &tensor, 1); };
  const Call push = [&](slimps_store* store) { return slimps_push(store, kW, values, 3, 0); };
  const Call pull = [&](slimps_store* store) { return slimps_pull(store, kW, out, 3, 0); };
  EXPECT_GT(FailEachAllocationOfAStore(nothing, init), 0);
  EXPECT_GT(FailEachAllocationOfAStore(init, pull), 0);
  const int of_push = FailEachAllocationOfAStore(init, push);
  EXPECT_GT(of_push, 0);
  const float* const gradients[] = {values};
  const slimps_item item = {sizeof(slimps_item), kW, gradients, 1, out, 3};
  const Call list = [&](slimps_store* store) { return slimps_pushpull_list(store, &item, 1, 0); };
  EXPECT_GT(FailEachAllocationOfAStore(init, list), 0);
  const Call one = [&](slimps_store* store) { return slimps_push_list(store, &item, 1, 0); };
  EXPECT_EQ(FailEachAllocationOfAStore(init, one), of_push + 1)
      << "the structs are copied, and no text is made";
}

}  // namespace
