// SPDX-License-Identifier: Apache-2.0
#include "server/shard/pull_queue.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const SteadyTime kStart = SteadyTime();

struct Asked {
  uint32_t worker = 0;
  uint64_t ticket = 0;
  uint64_t min_version = 0;
  absl::Duration wait = absl::Seconds(1);
};

WaitingPull Pull(const Asked& asked) {
  WaitingPull pull;
  pull.origin = {
      .peer = PeerId{asked.worker + 1}, .worker = asked.worker, .request_id = asked.ticket};
  pull.item.mutable_id()->set_ticket(asked.ticket);
  pull.item.set_min_version(asked.min_version);
  pull.deadline = kStart + asked.wait;
  return pull;
}

std::vector<uint64_t> Tickets(const std::vector<WaitingPull>& pulls) {
  std::vector<uint64_t> tickets;
  for (const WaitingPull& pull : pulls) tickets.push_back(pull.item.id().ticket());
  return tickets;
}

TEST(PullQueue, GivesThoseWhoseVersionIsReachedInOrderOfArrival) {
  PullQueue queue;
  ASSERT_TRUE(queue.Add(Pull({.worker = 0, .ticket = 1, .min_version = 3})).ok());
  ASSERT_TRUE(queue.Add(Pull({.worker = 1, .ticket = 2, .min_version = 2})).ok());
  ASSERT_TRUE(queue.Add(Pull({.worker = 0, .ticket = 3, .min_version = 1})).ok());
  EXPECT_THAT(queue.TakeReady(0), IsEmpty());
  EXPECT_THAT(Tickets(queue.TakeReady(2)), ElementsAre(2, 3));
  EXPECT_EQ(queue.size(), 1);
  EXPECT_THAT(Tickets(queue.TakeReady(9)), ElementsAre(1));
  EXPECT_EQ(queue.size(), 0);
}

TEST(PullQueue, AClockHoldsAPullBackBesideItsVersion) {
  PullQueue queue;
  WaitingPull pull = Pull({.worker = 0, .ticket = 1, .min_version = 2});
  pull.clock = 5;
  ASSERT_TRUE(queue.Add(std::move(pull)).ok());
  ASSERT_TRUE(queue.Add(Pull({.worker = 1, .ticket = 2, .min_version = 2})).ok());
  EXPECT_THAT(Tickets(queue.TakeReady(2, 4)), ElementsAre(2)) << "no clock, nobody to wait for";
  EXPECT_THAT(queue.TakeReady(1, 9), IsEmpty());
  EXPECT_THAT(Tickets(queue.TakeReady(2, 5)), ElementsAre(1));
}

TEST(PullQueue, ARetryTakesThePlaceOfTheFirstTry) {
  PullQueue queue;
  ASSERT_TRUE(queue.Add(Pull({.worker = 0, .ticket = 1, .min_version = 3})).ok());
  WaitingPull retry = Pull({.worker = 0, .ticket = 1, .min_version = 3, .wait = absl::Seconds(9)});
  retry.origin.request_id = 77;
  ASSERT_TRUE(queue.Add(std::move(retry)).ok());
  ASSERT_TRUE(queue.Add(Pull({.worker = 1, .ticket = 1, .min_version = 3}))
                  .ok());  // another worker's ticket of that number
  EXPECT_EQ(queue.size(), 2);
  const std::vector<WaitingPull> ready = queue.TakeReady(3);
  EXPECT_EQ(ready[0].origin.request_id, 77);
  EXPECT_EQ(ready[0].deadline, kStart + absl::Seconds(1));
  EXPECT_EQ(ready[1].origin.worker, 1);
}

TEST(PullQueue, AWorkerHasItsShareAndNoMore) {
  PullQueue queue;
  for (size_t i = 0; i < PullQueue::kMaxPerWorker; ++i)
    ASSERT_TRUE(queue.Add(Pull({.worker = 0, .ticket = i, .min_version = 1})).ok());
  WaitingPull more = Pull({.worker = 0, .ticket = 99, .min_version = 1});
  const absl::Status refused = queue.Add(std::move(more));
  // NOLINTNEXTLINE(bugprone-use-after-move): whoever is refused is still to be answered
  EXPECT_EQ(more.item.id().ticket(), 99);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(), "worker 0 has 16 pulls of this partition waiting");
  EXPECT_TRUE(queue.Add(Pull({.worker = 0, .ticket = 3, .min_version = 1})).ok())
      << "a retry needs no room";
  EXPECT_TRUE(queue.Add(Pull({.worker = 1, .ticket = 99, .min_version = 1})).ok())
      << "another worker has its own";
}

TEST(PullQueue, DeadlinesAreThoseOfWhatStillWaits) {
  PullQueue queue;
  EXPECT_EQ(queue.NextDeadline(), SteadyTime::InfiniteFuture());
  ASSERT_TRUE(
      queue.Add(Pull({.worker = 0, .ticket = 1, .min_version = 1, .wait = absl::Seconds(3)})).ok());
  ASSERT_TRUE(
      queue.Add(Pull({.worker = 0, .ticket = 2, .min_version = 1, .wait = absl::Seconds(1)})).ok());
  ASSERT_TRUE(
      queue.Add(Pull({.worker = 0, .ticket = 3, .min_version = 1, .wait = absl::Seconds(2)})).ok());
  EXPECT_EQ(queue.NextDeadline(), kStart + absl::Seconds(1));
  EXPECT_THAT(queue.TakeExpired(kStart + absl::Seconds(1) - absl::Nanoseconds(1)), IsEmpty());
  EXPECT_THAT(Tickets(queue.TakeExpired(kStart + absl::Seconds(2))), ElementsAre(2, 3));
  EXPECT_EQ(queue.NextDeadline(), kStart + absl::Seconds(3));
  EXPECT_THAT(Tickets(queue.TakeAll()), ElementsAre(1));
  EXPECT_EQ(queue.NextDeadline(), SteadyTime::InfiniteFuture());
}

}  // namespace
}  // namespace slimps
