// SPDX-License-Identifier: Apache-2.0
#include "proto/base/out_of_memory.h"

#include <pthread.h>

#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/buffer.h"

namespace slimps {
namespace {

constexpr size_t kHuge = size_t{1} << 46;  // more than an address space

TEST(OutOfMemory, OfWhatATensorSizedIsAnAnswerThatNamesItAndItsSize) {
  const auto make = [] { return AlignedBuffer(kHuge); };
  const absl::StatusOr<AlignedBuffer> made = OrOutOfMemory(make, "push", "s:w");
  EXPECT_EQ(made.status(), absl::ResourceExhaustedError(
                               "push of key s:w: out of memory for 70368744177664 bytes"));
  const auto plain = []() -> absl::Status { throw std::bad_alloc(); };
  EXPECT_EQ(OrOutOfMemory(plain, "saving"), absl::ResourceExhaustedError("saving: out of memory"));
  const auto works = [] { return AlignedBuffer(64); };
  EXPECT_EQ(OrOutOfMemory(works, "push")->size(), 64u);
}

TEST(OutOfMemory, IsToldAtTheTopOfAThread) {
  std::string told;
  const auto tell = [&](const std::bad_alloc& error) {
    told = std::string(OutOfMemoryStatus(error).message());
  };
  std::thread([&] {
    pthread_setname_np(pthread_self(), "push");
    OrTell(tell, [] { throw std::bad_alloc(); });
  }).join();
  EXPECT_EQ(told, "thread push: out of memory");
  OrTell(tell, [] { SayingWhatFor("push", "s:w", []() -> int { throw std::bad_alloc(); }); });
  EXPECT_EQ(told, "push of key s:w: out of memory");
  EXPECT_THROW(OrTell(nullptr, [] { throw std::bad_alloc(); }), std::bad_alloc);
}

TEST(OutOfMemoryDeathTest, EndsADaemonWithOneLineThatSaysWhatFor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto on_a_thread = [](void (*work)()) {
    EndWhereMemoryRunsOut();
    std::thread([work] {
      pthread_setname_np(pthread_self(), "shard");
      work();
    }).join();
  };
  EXPECT_EXIT(on_a_thread([] { throw std::bad_alloc(); }), ::testing::ExitedWithCode(1),
              "^out_of_memory_test: thread shard: out of memory\n$");
  // AddressSanitizer's allocator writes a line of its own before.
  EXPECT_EXIT(on_a_thread([] { (void)AlignedBuffer(kHuge); }), ::testing::ExitedWithCode(1),
              "^(==[0-9]+==WARNING: [^\n]*\n)?"
              "out_of_memory_test: out of memory for 70368744177664 bytes\n$");
}

}  // namespace
}  // namespace slimps
