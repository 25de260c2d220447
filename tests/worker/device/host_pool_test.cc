// SPDX-License-Identifier: Apache-2.0
#include "worker/device/host_pool.h"

#include <gtest/gtest.h>

#include <thread>

#include "proto/base/buffer.h"

namespace slimps {
namespace {

// A machine of `limit` bytes whose blocks count themselves.
struct Machine {
  size_t limit = SIZE_MAX;
  size_t held = 0;
};

class CountedBlock final : public HostBlock {
 public:
  CountedBlock(Machine* machine, size_t bytes) : machine_(machine), buffer_(bytes) {
    machine_->held += bytes;
  }
  ~CountedBlock() override { machine_->held -= buffer_.size(); }
  std::span<std::byte> bytes() override { return buffer_.bytes(); }

 private:
  Machine* const machine_;
  AlignedBuffer buffer_;
};

std::shared_ptr<HostPool> MakePool(Machine* machine) {
  return HostPool::Create([machine](size_t bytes) -> absl::StatusOr<std::unique_ptr<HostBlock>> {
    if (bytes > machine->limit - machine->held) return absl::ResourceExhaustedError("full");
    return std::make_unique<CountedBlock>(machine, bytes);
  });
}

TEST(HostPool, StepsOfTheSameSizesMakeNoNewBlocks) {
  Machine machine;
  auto pool = MakePool(&machine);
  for (int step = 0; step < 100; ++step) {
    std::vector<std::unique_ptr<HostBuffer>> buffers;
    for (const size_t elements : {10, 10, 5000, 70000}) buffers.push_back(*pool->Acquire(elements));
  }
  EXPECT_EQ(pool->stats().blocks_made, 4);
  EXPECT_EQ(pool->stats().bytes_in_use, 0u);
  EXPECT_EQ(pool->stats().bytes_idle, machine.held);
}

TEST(HostPool, BlocksIdleForTwoRoundsAreFreed) {
  Machine machine;
  auto pool = MakePool(&machine);
  pool->NoteRound(7);
  { auto once = *pool->Acquire(1 << 20); }
  const size_t with_idle = machine.held;
  for (uint64_t round = 8; round <= 10; ++round) {
    auto steady = *pool->Acquire(100);
    EXPECT_GT(machine.held, with_idle) << "before round " << round;
    pool->NoteRound(round);
    pool->NoteRound(3);  // of another key
  }
  EXPECT_EQ(machine.held, 4096u);
  EXPECT_EQ(pool->stats().bytes_idle, 4096u);
  EXPECT_EQ(pool->stats().blocks_made, 2);
}

TEST(HostPool, ABlockUsedInEveryRoundStays) {
  Machine machine;
  auto pool = MakePool(&machine);
  for (uint64_t round = 1; round <= 20; ++round) {
    pool->NoteRound(round);
    { auto first_of_the_round = *pool->Acquire(10000); }
    for (int i = 0; i < 3000; ++i) {
      auto steady = *pool->Acquire(100);
    }
  }
  EXPECT_EQ(pool->stats().blocks_made, 2);
}

TEST(HostPool, IdleBlocksMakeRoomWhenMemoryIsOut) {
  Machine machine{.limit = 100 * 4096};
  auto pool = MakePool(&machine);
  { auto big = *pool->Acquire(80 * 1024); }
  auto other = pool->Acquire(90 * 1024);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(machine.held, 90u * 4096);
  auto none = pool->Acquire(20 * 1024);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool->stats().bytes_in_use, 90u * 4096);
  other->reset();
  EXPECT_TRUE(pool->Acquire(20 * 1024).ok());
}

TEST(HostPool, IdleBlocksGoBeforeTheLimitIsExceeded) {
  Machine machine;
  auto pool = MakePool(&machine);
  pool->Limit(100 * 4096);
  {
    auto large = *pool->Acquire(60 * 1024);
    auto small = *pool->Acquire(30 * 1024);
  }
  auto fits = *pool->Acquire(10 * 1024);
  EXPECT_EQ(machine.held, 100u * 4096) << "nothing had to go";
  auto more = *pool->Acquire(11 * 1024);
  EXPECT_EQ(machine.held, (30u + 10 + 11) * 4096) << "the largest goes first";
  EXPECT_EQ(pool->stats().bytes_idle, 30u * 4096);
  // Lent blocks stay. The pool lends more than its limit if it is asked to.
  auto huge = *pool->Acquire(200 * 1024);
  EXPECT_EQ(machine.held, (10u + 11 + 200) * 4096);
  EXPECT_EQ(pool->stats().bytes_idle, 0u);
}

TEST(HostPool, BuffersThatAreKeptLeaveTheLimitToTheOthers) {
  Machine machine;
  auto pool = MakePool(&machine);
  pool->Limit(100 * 4096);
  auto kept = *pool->Keep(90 * 1024);
  { auto passing = *pool->Acquire(60 * 1024); }
  auto smaller = *pool->Acquire(30 * 1024);
  EXPECT_EQ(machine.held, (90u + 60 + 30) * 4096) << "nothing had to go";
  kept->floats()[90 * 1024 - 1] = 1;
  kept.reset();
  EXPECT_EQ(machine.held, (60u + 30) * 4096) << "freed, not idle";
  EXPECT_EQ(pool->stats().bytes_idle, 60u * 4096);
}

TEST(HostPool, ABufferThatIsKeptGetsTheMemoryOfIdleBlocks) {
  Machine machine{.limit = 100 * 4096};
  auto pool = MakePool(&machine);
  { auto big = *pool->Acquire(80 * 1024); }
  EXPECT_TRUE(pool->Keep(90 * 1024).ok());
  EXPECT_EQ(pool->Keep(101 * 1024).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(HostPool, ABufferKeepsItsPoolAlive) {
  Machine machine;
  auto pool = MakePool(&machine);
  auto buffer = *pool->Acquire(1000);
  pool.reset();
  EXPECT_EQ(machine.held, 4096u);
  buffer->floats()[999] = 1;
  buffer.reset();
  EXPECT_EQ(machine.held, 0u);
}

TEST(HostPool, ThreadsNeverShareABuffer) {
  auto pool = HostPool::Create([](size_t bytes) -> absl::StatusOr<std::unique_ptr<HostBlock>> {
    class Plain final : public HostBlock {
     public:
      explicit Plain(size_t bytes) : buffer_(bytes) {}
      std::span<std::byte> bytes() override { return buffer_.bytes(); }

     private:
      AlignedBuffer buffer_;
    };
    return std::make_unique<Plain>(bytes);
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 2000; ++i) {
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
  EXPECT_EQ(pool->stats().bytes_in_use, 0u);
}

}  // namespace
}  // namespace slimps
