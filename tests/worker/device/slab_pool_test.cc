// SPDX-License-Identifier: Apache-2.0
#include "worker/device/slab_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "proto/base/buffer.h"

namespace slimps {
namespace {

constexpr size_t kSlabElements = SlabPool::kSlabBytes / sizeof(float);
constexpr size_t kGrainElements = 1024;  // 4096 bytes

// A machine of `limit` bytes whose slabs count themselves. Nobody writes to a large part of them.
struct Machine {
  size_t limit = SIZE_MAX;
  size_t held = 0;
  int made = 0;
};

class CountedSlab final : public HostBlock {
 public:
  CountedSlab(Machine* machine, size_t bytes) : machine_(machine), buffer_(bytes) {
    machine_->held += bytes;
    ++machine_->made;
  }
  ~CountedSlab() override { machine_->held -= buffer_.size(); }
  std::span<std::byte> bytes() override { return buffer_.bytes(); }

 private:
  Machine* const machine_;
  AlignedBuffer buffer_;
};

std::shared_ptr<SlabPool> MakePool(Machine* machine,
                                   SlabPool::IdleSlabs idle = SlabPool::IdleSlabs::kWait) {
  const auto make = [machine](size_t bytes) -> absl::StatusOr<std::unique_ptr<HostBlock>> {
    if (bytes > machine->limit - machine->held) return absl::ResourceExhaustedError("full");
    return std::make_unique<CountedSlab>(machine, bytes);
  };
  return SlabPool::Create(make, idle);
}

TEST(SlabPool, BuffersOfAnySizesShareASlab) {
  Machine machine;
  auto pool = MakePool(&machine);
  std::mt19937 random(1);
  std::vector<std::unique_ptr<HostBuffer>> buffers;
  for (int i = 0; i < 5000; ++i) {
    const size_t elements = random() % 5000;
    const size_t place = random() % 200;
    auto buffer = *pool->Acquire(elements);
    ASSERT_EQ(buffer->floats().size(), elements);
    std::ranges::fill(buffer->floats(), static_cast<float>(i));
    if (buffers.size() <= place) {
      buffers.push_back(std::move(buffer));
      continue;
    }
    const std::span<float> before = buffers[place]->floats();
    EXPECT_TRUE(std::ranges::all_of(before, [&](float x) { return x == before[0]; }));
    buffers[place] = std::move(buffer);
  }
  EXPECT_EQ(machine.made, 1);
  buffers.clear();
  auto whole = *pool->Acquire(kSlabElements);
  EXPECT_EQ(machine.made, 1) << "the holes have become one";
}

TEST(SlabPool, ABufferLargerThanASlabHasItsOwn) {
  Machine machine;
  auto pool = MakePool(&machine);
  auto large = *pool->Acquire(2 * kSlabElements + 1);
  EXPECT_EQ(machine.held, 2 * SlabPool::kSlabBytes + 4096);
}

TEST(SlabPool, FewSlabsFillUpSoThatOthersAreFreed) {
  Machine machine;
  auto pool = MakePool(&machine);
  std::vector<std::unique_ptr<HostBuffer>> peak;
  for (int i = 0; i < 8; ++i) peak.push_back(*pool->Acquire(kSlabElements / 2));
  EXPECT_EQ(machine.made, 4);
  peak.clear();
  for (uint64_t round = 1; round <= 3; ++round) {
    pool->NoteRound(round);
    std::vector<std::unique_ptr<HostBuffer>> steady;
    for (int i = 0; i < 50; ++i) steady.push_back(*pool->Acquire(kGrainElements));
  }
  EXPECT_EQ(machine.held, SlabPool::kSlabBytes);
  EXPECT_EQ(machine.made, 4);
}

TEST(SlabPool, NoSlabIsMadeThatIsLargerThanTheLimit) {
  Machine machine;
  auto pool = MakePool(&machine);
  pool->Limit(10 * 4096);
  auto small = *pool->Acquire(100);
  EXPECT_EQ(machine.held, 10u * 4096);
}

TEST(SlabPool, ALowLimitThatIsExceededDoesNotMakeManySlabs) {
  Machine machine;
  auto pool = MakePool(&machine);
  pool->Limit(0);
  std::vector<std::unique_ptr<HostBuffer>> buffers;
  for (int i = 0; i < 1024; ++i) buffers.push_back(*pool->Acquire(kGrainElements));
  EXPECT_EQ(machine.made, 11);
}

TEST(SlabPool, IdleSlabsGoBeforeTheLimitIsExceeded) {
  Machine machine;
  auto pool = MakePool(&machine);
  pool->Limit(2 * SlabPool::kSlabBytes);
  {
    auto first = *pool->Acquire(kSlabElements);
    auto second = *pool->Acquire(kSlabElements);
  }
  auto kept = *pool->Acquire(100);
  auto larger = *pool->Acquire(kSlabElements + kGrainElements);
  EXPECT_EQ(machine.held, 2 * SlabPool::kSlabBytes + 4096) << "the one that is lent stays";
  // The pool lends more than its limit if it is asked to.
  auto more = *pool->Acquire(kSlabElements);
  EXPECT_EQ(machine.held, 3 * SlabPool::kSlabBytes + 4096);
}

TEST(SlabPool, WithoutMemoryForASlabABufferGetsItsBytes) {
  Machine machine{.limit = 3 * 4096};
  auto pool = MakePool(&machine);
  auto small = pool->Acquire(2 * kGrainElements);
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_EQ(machine.held, 2u * 4096);
  EXPECT_EQ(pool->Acquire(2 * kGrainElements).status(), absl::ResourceExhaustedError("full"));
  small->reset();
  EXPECT_TRUE(pool->Acquire(3 * kGrainElements).ok()) << "idle slabs make room";
}

TEST(SlabPool, SlabsThatNeedNotWaitAreFreedWithTheirLastBuffer) {
  Machine machine;
  auto pool = MakePool(&machine, SlabPool::IdleSlabs::kAreFreed);
  auto first = *pool->Acquire(100), second = *pool->Acquire(100);
  first.reset();
  EXPECT_EQ(machine.held, SlabPool::kSlabBytes);
  second.reset();
  EXPECT_EQ(machine.held, 0u);
}

TEST(SlabPool, ABufferKeepsItsPoolAlive) {
  Machine machine;
  auto pool = MakePool(&machine);
  auto buffer = *pool->Acquire(1000);
  pool.reset();
  buffer->floats()[999] = 1;
  buffer.reset();
  EXPECT_EQ(machine.held, 0u);
}

TEST(SlabPool, ThreadsNeverShareABufferAndMakeOneSlab) {
  Machine machine;
  auto pool = MakePool(&machine);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 500; ++i) {
        auto buffer = *pool->Acquire(1 + (i % 3) * 1024);
        const std::span<float> floats = buffer->floats();
        floats.front() = floats.back() = static_cast<float>(t);
        std::this_thread::yield();
        ASSERT_EQ(floats.front(), static_cast<float>(t));
        ASSERT_EQ(floats.back(), static_cast<float>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(machine.made, 1);
}

}  // namespace
}  // namespace slimps
