// SPDX-License-Identifier: Apache-2.0
// The leases of borrowed payloads: each one is returned once, whichever thread drops it and
// whenever.
#include "proto/net/shared/lease_returns.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "proto/net/shared/shared_memory.h"

namespace slimps {
namespace {

class LeaseReturnsTest : public ::testing::Test {
 protected:
  bool IsSignalled() { return wakeup_->signalled(); }
  static ReturnedLease Lease(uint64_t lease) {
    return {.peer = PeerId{3}, .pid = 77, .lease = lease};
  }

  std::shared_ptr<Wakeup> wakeup_ = std::make_shared<Wakeup>();
  std::shared_ptr<LeaseReturns> returns_ = std::make_shared<LeaseReturns>(wakeup_);
};

TEST_F(LeaseReturnsTest, AreTakenOnceInTheOrderInWhichTheyCame) {
  EXPECT_TRUE(returns_->Take().empty());
  EXPECT_FALSE(IsSignalled());
  returns_->Add(Lease(5));
  returns_->Add(Lease(4));
  EXPECT_TRUE(IsSignalled());
  const std::vector<ReturnedLease> taken = returns_->Take();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].lease, 5u);
  EXPECT_EQ(taken[0].peer, PeerId{3});
  EXPECT_EQ(taken[0].pid, 77u);
  EXPECT_EQ(taken[1].lease, 4u);
  EXPECT_TRUE(returns_->Take().empty());
}

TEST_F(LeaseReturnsTest, WakeTheIoThreadAgainAfterItHasTakenThem) {
  for (uint64_t round = 0; round < 3; ++round) {
    returns_->Add(Lease(round));
    EXPECT_TRUE(IsSignalled());
    wakeup_->Clear();
    returns_->Add(Lease(round + 100));
    EXPECT_FALSE(IsSignalled()) << "it has not taken the first yet: it will find both";
    EXPECT_EQ(returns_->Take().size(), 2u);
  }
}

TEST_F(LeaseReturnsTest, AreDroppedOnceNobodyTakesThem) {
  returns_->Add(Lease(1));
  wakeup_->Clear();
  returns_->Close();
  EXPECT_TRUE(returns_->Take().empty());
  returns_->Add(Lease(2));
  EXPECT_TRUE(returns_->Take().empty());
  EXPECT_FALSE(IsSignalled());
}

TEST_F(LeaseReturnsTest, ABorrowedPayloadIsReturnedWithItsLastCopy) {
  const std::vector<std::byte> memory(64);
  Payload payload(std::make_shared<BorrowedBytes>(returns_, Lease(9)), memory);
  Payload copy = payload;
  payload = Payload();
  EXPECT_TRUE(returns_->Take().empty());
  copy = Payload();
  const std::vector<ReturnedLease> taken = returns_->Take();
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].lease, 9u);
}

TEST_F(LeaseReturnsTest, BytesStayReadableUntilTheLeaseIsReturned) {
  SharedMemory memory(size_t{1} << 16);
  ASSERT_TRUE(memory.ok());
  std::byte* const data = memory.Allocate(4096);
  std::memset(data, 7, 4096);
  const auto range = memory.Find({data, 4096});
  ASSERT_TRUE(range.has_value());
  std::weak_ptr<const SegmentMapping> mapped;
  {
    auto borrowed = std::make_shared<BorrowedBytes>(returns_, Lease(1));
    auto mapping = SegmentMapping::Open(range->segment);
    ASSERT_TRUE(mapping.ok()) << mapping.status();
    mapped = *mapping;
    const auto bytes = (*mapping)->Bytes(range->offset, 4096);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    borrowed->Keep(*std::move(mapping));
    EXPECT_FALSE(mapped.expired());
    EXPECT_EQ(bytes->back(), std::byte{7});
  }
  EXPECT_TRUE(mapped.expired()) << "nothing of the owner's is held once it is told";
  EXPECT_EQ(returns_->Take().size(), 1u);
  memory.Free(data, 4096);
}

TEST_F(LeaseReturnsTest, ABorrowedPayloadMayOutliveTheTransport) {
  auto borrowed = std::make_unique<BorrowedBytes>(returns_, Lease(1));
  returns_->Close();
  std::weak_ptr<LeaseReturns> left = returns_;
  returns_.reset();
  EXPECT_FALSE(left.expired());
  borrowed.reset();
  EXPECT_TRUE(left.expired());
}

TEST_F(LeaseReturnsTest, EachLeaseOfManyThreadsComesBackOnce) {
  constexpr uint64_t kThreads = 4, kLeases = 500;
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([this, thread] {
      for (uint64_t i = 0; i < kLeases; ++i) {
        BorrowedBytes borrowed(returns_, Lease(thread * kLeases + i));
      }
    });
  }
  std::multiset<uint64_t> seen;
  const auto take = [&] {
    for (const ReturnedLease& returned : returns_->Take()) seen.insert(returned.lease);
  };
  for (int i = 0; i < 100; ++i) take();
  for (std::thread& thread : threads) thread.join();
  take();
  ASSERT_EQ(seen.size(), kThreads * kLeases);
  uint64_t expected = 0;
  for (const uint64_t lease : seen) EXPECT_EQ(lease, expected++);
}

}  // namespace
}  // namespace slimps
