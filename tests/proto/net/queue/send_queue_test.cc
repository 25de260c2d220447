// SPDX-License-Identifier: Apache-2.0
#include "proto/net/queue/send_queue.h"

#include <gtest/gtest.h>

#include <vector>

#include "proto/base/clock.h"
#include "proto/net/queue/arrival_queue.h"
#include "tests/proto/net/net_messages.h"

namespace slimps {
namespace {

const SteadyTime kStart = SteadyTime();
constexpr PeerId kA{1};
constexpr PeerId kB{2};

Outgoing Make(PeerId to, int priority, size_t bytes, SteadyTime queued_at = kStart) {
  Outgoing message;
  message.to = to;
  message.priority = priority;
  message.bytes = bytes;
  message.queued_at = queued_at;
  return message;
}

// Pops all messages. Returns their sizes, which tell the messages apart.
std::vector<size_t> PopAll(SendQueue* queue, SteadyTime now = kStart) {
  std::vector<size_t> order;
  while (std::optional<Outgoing> next = queue->Pop(now)) order.push_back(next->bytes);
  return order;
}

TEST(LinkEmulator, MessagesFollowOneAnotherAndIdleTimeEarnsNothing) {
  LinkEmulator link(1000);
  LinkEmulator::Passage first = link.Carry(kStart, 500);
  EXPECT_EQ(first.begin, kStart);
  EXPECT_EQ(first.end, kStart + absl::Milliseconds(500));
  LinkEmulator::Passage second = link.Carry(kStart + absl::Milliseconds(1), 1000);
  EXPECT_EQ(second.begin, first.end);
  EXPECT_EQ(second.end, first.end + absl::Milliseconds(1000));
  const SteadyTime later = kStart + absl::Hours(1);
  EXPECT_EQ(link.Carry(later, 1000).end, later + absl::Milliseconds(1000));
}

TEST(LinkEmulator, OffTakesNoTime) {
  LinkEmulator link(0);
  EXPECT_FALSE(link.on());
  EXPECT_EQ(link.Carry(kStart, 1 << 30).end, kStart);
}

TEST(SendQueue, AStrangerHasLittleRoomUntilItIsAdmitted) {
  SendQueue queue{TransportOptions{.strangers = StrangerLimits{.max_queued_bytes = 10'000}}};
  queue.AddPeer(kA, SendQueue::PeerKind::kStranger);
  queue.AddPeer(kB, SendQueue::PeerKind::kStranger);
  for (size_t bytes = 1; bytes <= 9; ++bytes) {  // each takes some memory besides its bytes
    ASSERT_TRUE(queue.Push(Make(kA, 0, bytes)).ok());
  }
  EXPECT_EQ(queue.Push(Make(kA, 0, 10)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(queue.Push(Make(kB, 0, 9'500)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(queue.IsStranger(kA));
  queue.Admit(kA);
  EXPECT_FALSE(queue.IsStranger(kA));
  EXPECT_TRUE(queue.Push(Make(kA, 0, 100'000)).ok());
}

TEST(SendQueue, HigherPriorityLeavesFirstAndEqualOnesInOrder) {
  SendQueue queue{TransportOptions{}};
  queue.AddPeer(kA);
  queue.AddPeer(kB);
  ASSERT_TRUE(queue.Push(Make(kA, 0, 1)).ok());
  ASSERT_TRUE(queue.Push(Make(kB, 0, 2)).ok());
  ASSERT_TRUE(queue.Push(Make(kB, 5, 3)).ok());
  ASSERT_TRUE(queue.Push(Make(kA, -1, 4)).ok());
  ASSERT_TRUE(queue.Push(Make(kA, 5, 5)).ok());
  ASSERT_TRUE(queue.Push(Make(kA, 0, 6)).ok());
  EXPECT_EQ(PopAll(&queue), (std::vector<size_t>{3, 5, 1, 2, 6, 4}));
  EXPECT_TRUE(queue.empty());
}

TEST(SendQueue, AHeldPeerLetsTheOthersPass) {
  SendQueue queue{TransportOptions{}};
  queue.AddPeer(kA);
  queue.AddPeer(kB);
  queue.Hold(kA);
  ASSERT_TRUE(queue.Push(Make(kA, 9, 1)).ok());
  ASSERT_TRUE(queue.Push(Make(kB, 0, 2)).ok());
  EXPECT_EQ(PopAll(&queue), std::vector<size_t>{2});
  EXPECT_FALSE(queue.empty());
  queue.Release(kA, kStart);
  EXPECT_EQ(PopAll(&queue), std::vector<size_t>{1});
}

TEST(SendQueue, AReturnedMessageKeepsItsPlace) {
  SendQueue queue{TransportOptions{}};
  queue.AddPeer(kA);
  ASSERT_TRUE(queue.Push(Make(kA, 0, 1)).ok());
  ASSERT_TRUE(queue.Push(Make(kA, 0, 2)).ok());
  std::optional<Outgoing> first = queue.Pop(kStart);
  ASSERT_TRUE(queue.Push(Make(kA, 0, 3)).ok());
  queue.Return(*std::move(first));
  EXPECT_EQ(PopAll(&queue), (std::vector<size_t>{1, 2, 3}));
}

TEST(SendQueue, LanesAreBoundedAndUnknownPeersRefused) {
  TransportOptions options;
  options.max_queued_bytes_per_peer = 100;
  options.max_queued_messages_per_peer = 3;
  SendQueue queue{options};
  EXPECT_EQ(queue.Push(Make(kA, 0, 1)).code(), absl::StatusCode::kNotFound);
  queue.AddPeer(kA);
  queue.AddPeer(kB);
  EXPECT_EQ(queue.Push(Make(kA, 0, 101)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(queue.Push(Make(kA, 0, 100)).ok());
  EXPECT_EQ(queue.Push(Make(kA, 0, 1)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(queue.Push(Make(kA, 0, 0)).ok());
  EXPECT_TRUE(queue.Push(Make(kA, 0, 0)).ok());
  EXPECT_EQ(queue.Push(Make(kA, 0, 0)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(queue.Push(Make(kB, 0, 100)).ok()) << "each peer has its own room";
}

TEST(SendQueue, RemovingAPeerGivesBackItsMessages) {
  SendQueue queue{TransportOptions{}};
  queue.AddPeer(kA);
  queue.AddPeer(kB);
  ASSERT_TRUE(queue.Push(Make(kA, 0, 1)).ok());
  ASSERT_TRUE(queue.Push(Make(kB, 0, 2)).ok());
  EXPECT_EQ(queue.RemovePeer(kA).size(), 1u);
  EXPECT_EQ(queue.Push(Make(kA, 0, 1)).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(queue.RemovePeer(kA).size(), 0u);
  EXPECT_EQ(PopAll(&queue), std::vector<size_t>{2});
}

TEST(SendQueue, OnAnEmulatedLinkAMessageLeavesWhenCarriedAndPriorityOvertakesTheWaiting) {
  TransportOptions options;
  options.emulate_link_bytes_per_second = 1000;
  SendQueue queue{options};
  queue.AddPeer(kA);
  ASSERT_TRUE(queue.Push(Make(kA, 0, 100)).ok());
  ASSERT_TRUE(queue.Push(Make(kA, 0, 200)).ok());
  EXPECT_FALSE(queue.Pop(kStart).has_value());
  EXPECT_EQ(queue.NextWake(), kStart + absl::Milliseconds(100));
  ASSERT_TRUE(queue.Push(Make(kA, 9, 300, kStart + absl::Milliseconds(50))).ok());
  std::optional<Outgoing> first = queue.Pop(kStart + absl::Milliseconds(100));
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->bytes, 100u);
  EXPECT_EQ(first->began, kStart);
  // The queue is asked 20 ms late. The link loses nothing by that.
  EXPECT_FALSE(queue.Pop(kStart + absl::Milliseconds(120)).has_value());
  EXPECT_EQ(queue.NextWake(), kStart + absl::Milliseconds(400));
  std::optional<Outgoing> second = queue.Pop(kStart + absl::Milliseconds(400));
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->bytes, 300u);
  EXPECT_EQ(second->began, kStart + absl::Milliseconds(100));
  EXPECT_EQ(PopAll(&queue, kStart + absl::Seconds(1)), std::vector<size_t>{200});
}

TEST(SendQueue, ACarriedMessageThatComesBackIsNotCarriedTwice) {
  TransportOptions options;
  options.emulate_link_bytes_per_second = 1000;
  SendQueue queue{options};
  queue.AddPeer(kA);
  ASSERT_TRUE(queue.Push(Make(kA, 0, 100)).ok());
  EXPECT_FALSE(queue.Pop(kStart).has_value());
  std::optional<Outgoing> carried = queue.Pop(kStart + absl::Milliseconds(100));
  ASSERT_TRUE(carried.has_value());
  queue.Hold(kA);
  queue.Return(*std::move(carried));
  queue.Release(kA, kStart + absl::Milliseconds(150));
  EXPECT_TRUE(queue.Pop(kStart + absl::Milliseconds(150)).has_value());
}

TEST(SendQueue, TheLinkDoesNotCarryBeforeThePeerWasThere) {
  TransportOptions options;
  options.emulate_link_bytes_per_second = 1000;
  SendQueue queue{options};
  queue.AddPeer(kA);
  queue.Hold(kA);
  ASSERT_TRUE(queue.Push(Make(kA, 0, 100)).ok());
  const SteadyTime connected = kStart + absl::Seconds(5);
  queue.Release(kA, connected);
  EXPECT_FALSE(queue.Pop(connected).has_value());
  EXPECT_EQ(queue.NextWake(), connected + absl::Milliseconds(100));
}

TEST(SendQueue, TakeAllEmptiesLanesAndLink) {
  TransportOptions options;
  options.emulate_link_bytes_per_second = 1000;
  SendQueue queue{options};
  queue.AddPeer(kA);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.Push(Make(kA, 0, 100)).ok());
  EXPECT_FALSE(queue.Pop(kStart).has_value());
  EXPECT_FALSE(queue.empty());
  EXPECT_EQ(queue.TakeAll().size(), 3u);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.NextWake(), SteadyTime::InfiniteFuture());
}

TEST(ArrivalQueue, MessagesAreDueWhenTheLinkHasCarriedThem) {
  TransportOptions options;
  options.emulate_link_bytes_per_second = 1000;
  ArrivalQueue queue{options};
  queue.Push(kA, Numbered(1), 100, kStart);
  queue.Push(kA, Numbered(2), 100, kStart);
  EXPECT_FALSE(queue.Pop(kStart).has_value());
  EXPECT_EQ(queue.NextWake(), kStart + absl::Milliseconds(100));
  EXPECT_TRUE(queue.Pop(kStart + absl::Milliseconds(100)).has_value());
  EXPECT_FALSE(queue.Pop(kStart + absl::Milliseconds(199)).has_value());
  EXPECT_EQ(queue.Pop(kStart + absl::Milliseconds(200))->message.header.request_id(), 2u);
  EXPECT_FALSE(queue.IsFull());
  queue.Push(kA, Numbered(3), 2 << 20, kStart);
  EXPECT_TRUE(queue.IsFull());
}

TEST(ArrivalQueue, LatencyDelaysEachMessageButKeepsNoneWaitingForAnother) {
  TransportOptions options;
  options.emulate_link_latency = absl::Milliseconds(50);
  ArrivalQueue queue{options};
  EXPECT_TRUE(queue.emulated());
  queue.Push(kA, Numbered(1), 8 << 20, kStart);
  EXPECT_FALSE(queue.IsFull()) << "latency is no rate";
  queue.Push(kA, Numbered(2), 8 << 20, kStart + absl::Milliseconds(1));
  EXPECT_FALSE(queue.Pop(kStart + absl::Milliseconds(49)).has_value());
  EXPECT_TRUE(queue.Pop(kStart + absl::Milliseconds(50)).has_value());
  EXPECT_EQ(queue.NextWake(), kStart + absl::Milliseconds(51));
}

}  // namespace
}  // namespace slimps
