// SPDX-License-Identifier: Apache-2.0
// Memory runs out at one worker in an allocation that a tensor's size decides. The call returns an
// error. If the workers make the call together, all of them get an error. The store and the job go
// on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"

namespace {

constexpr size_t kLarge = size_t{64} << 10;
// How many large allocations of this thread succeed before one fails. Negative: all succeed.
thread_local int allocations_left = -1;
// While true, every large allocation of this thread fails.
thread_local bool all_fail = false;

bool Fails(size_t bytes) {
  if (bytes < kLarge) return false;
  return all_fail || (allocations_left >= 0 && allocations_left-- == 0);
}

}  // namespace

void* operator new(size_t bytes) {
  if (Fails(bytes)) throw std::bad_alloc();
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return Fails(bytes) ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
// AlignedBuffer allocates with this function.
int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  *memory = Fails(bytes) ? nullptr : memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr size_t kRows = 400, kRowElements = 100;
constexpr size_t kElements = kRows * kRowElements;

enum class Made { kAlone, kTogether };

// Worker 1 makes `call` again and again, and each time another of its large allocations fails.
// Returns how many there are.
int RunOutOfMemory(KVStore& store, Made made, const std::function<absl::Status()>& call) {
  for (int n = 0;; ++n) {
    const bool fails = store.rank() == 1;
    allocations_left = fails ? n : -1;
    const absl::Status status = call();
    const bool ran_out = fails && allocations_left < 0;
    allocations_left = -1;
    // If memory ran out for a message, the message is sent again later, and no worker fails.
    const auto any = store.AllReduceSum({ran_out ? 1.0 : 0.0, ran_out && status.ok() ? 0.0 : 1.0});
    EXPECT_TRUE(any.ok()) << any.status();
    if (!any.ok() || (*any)[0] == 0) {
      EXPECT_TRUE(status.ok()) << status;
      return n;
    }
    const bool sent_again = (*any)[1] < store.num_workers();
    if (sent_again) {
      EXPECT_TRUE(status.ok()) << status;
    } else if (fails) {
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("out of memory"));
    } else {
      EXPECT_EQ(status.code(),
                made == Made::kAlone ? absl::StatusCode::kOk : absl::StatusCode::kAborted)
          << status;
    }
  }
}

TEST(OutOfMemory, IsAStatusOfTheCallAndTheJobGoesOn) {
  InProcessCluster cluster({.workers = 2, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    ASSERT_STATUS_OK(store.Init(
        {{.key = "w", .shape = {kRows, kRowElements}, .value = std::vector<float>(kElements)}}));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(0.1, 0.9)));
    ASSERT_STATUS_OK(store.Barrier());
    std::vector<int64_t> all(kRows), rows;
    std::iota(all.begin(), all.end(), 0);
    const std::vector<float> gradient = Random(kElements, 1);
    std::vector<float> values;
    std::string saved;
    ASSERT_STATUS_OK(store.Push("w", gradient, 0));
    EXPECT_GE(RunOutOfMemory(store, Made::kAlone,
                             [&] { return store.PullRows("w", all, &rows, &values, 0); }),
              1);
    EXPECT_EQ(values.size(), kElements);
    EXPECT_GE(RunOutOfMemory(store, Made::kTogether,
                             [&]() -> absl::Status {
                               absl::StatusOr<std::string> content = store.SaveOptimizerStates();
                               if (!content.ok()) return content.status();
                               saved = *std::move(content);
                               return absl::OkStatus();
                             }),
              2);
    EXPECT_GE(
        RunOutOfMemory(store, Made::kTogether, [&] { return store.LoadOptimizerStates(saved); }),
        1);
    EXPECT_EQ(*store.SaveOptimizerStates(), saved);
    // A push refused for lack of memory does not count as a round. The next push is that round.
    if (store.rank() == 1) {
      int refused = 0;
      for (absl::Status status;; ++refused) {
        allocations_left = refused;
        status = store.PushRowSparse("w", all, gradient, 0);
        allocations_left = -1;
        if (status.ok()) break;
        EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      }
      EXPECT_GE(refused, 1) << "sorting, which comes next, can do without";
    } else {
      ASSERT_STATUS_OK(store.PushNothing("w"));
    }
    std::vector<float> out(kElements);
    ASSERT_STATUS_OK(store.Pull("w", out, 0));
    // Here memory runs out for the copy of the gradient that waits to be sent.
    ASSERT_STATUS_OK(
        store.Init({{.key = "v", .shape = {2 * kElements}, .value = Random(2 * kElements, 2)}}));
    const std::vector<float> larger = Random(2 * kElements, 3);
    if (store.rank() == 1) {
      // All must fail: after a first failure the pool frees its idle blocks and tries again.
      all_fail = true;
      const absl::Status too_large = store.Push("v", larger, 0);
      all_fail = false;
      EXPECT_EQ(too_large.code(), absl::StatusCode::kResourceExhausted) << too_large;
    }
    out.resize(2 * kElements);
    ASSERT_STATUS_OK(store.PushPull("v", larger, out, 0));
  });
}

TEST(OutOfMemory, ResidualsAreSavedWholeAndLoadedWholeOrNotAtAll) {
  ClusterOptions options{.workers = 2, .servers = 1};
  options.store.compression = "1bit";
  options.store.fixed_threshold_bytes = 0;
  InProcessCluster cluster(options);
  cluster.RunWorkers([](KVStore& store) {
    ASSERT_STATUS_OK(
        store.Init({{.key = "w", .shape = {kElements}, .value = std::vector<float>(kElements)}}));
    ASSERT_STATUS_OK(store.Push("w", Random(kElements, 1 + store.rank()), 0));
    const std::string first = store.SaveResiduals().value();
    ASSERT_STATUS_OK(store.Push("w", Random(kElements, 3 + store.rank()), 0));
    const std::string second = store.SaveResiduals().value();
    EXPECT_GE(RunOutOfMemory(store, Made::kAlone,
                             [&] {
                               const absl::StatusOr<std::string> saved = store.SaveResiduals();
                               EXPECT_TRUE(!saved.ok() || *saved == second);
                               return saved.status();
                             }),
              2);
    EXPECT_GE(RunOutOfMemory(store, Made::kAlone,
                             [&] {
                               const absl::Status loaded = store.LoadResiduals(first);
                               if (!loaded.ok()) {
                                 EXPECT_TRUE(store.SaveResiduals().value() == second);
                               }
                               return loaded;
                             }),
              1);
    EXPECT_TRUE(store.SaveResiduals().value() == first);
  });
}

}  // namespace
}  // namespace slimps
