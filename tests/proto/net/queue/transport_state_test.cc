// SPDX-License-Identifier: Apache-2.0
// The state that Send and the I/O thread share: numbering, bounds, stopping, counters.
#include "proto/net/queue/transport_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/clock.h"
#include "tests/proto/net/net_messages.h"
#include "tests/proto/net/recording_sink.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

class TransportStateTest : public ::testing::Test {
 protected:
  bool IsSignalled() {
    const bool signalled = state_.wakeup()->signalled();
    state_.wakeup()->Clear();
    return signalled;
  }
  PeerId Connected(const std::string& address) {
    const absl::StatusOr<PeerId> peer = state_.Connect(address);
    EXPECT_TRUE(peer.ok()) << peer.status();
    return *peer;
  }

  TransportState state_{TransportOptions{}};
};

TEST_F(TransportStateTest, AConnectionsMessagesWaitForIt) {
  const PeerId peer = Connected("tcp://127.0.0.1:1");
  EXPECT_TRUE(IsSignalled());
  ASSERT_TRUE(state_.Send(peer, Numbered(1), {}).ok());
  EXPECT_TRUE(IsSignalled());
  EXPECT_FALSE(state_.Pop(MachineClock()->Now()).has_value());
  EXPECT_FALSE(state_.NothingToSend());
  const auto connections = state_.TakeNewConnections();
  ASSERT_EQ(connections.size(), 1u);
  EXPECT_EQ(connections[0].peer, peer);
  EXPECT_EQ(connections[0].address, "tcp://127.0.0.1:1");
  EXPECT_TRUE(state_.TakeNewConnections().empty()) << "taken once";
  state_.Release(peer, MachineClock()->Now());
  std::optional<Outgoing> message = state_.Pop(MachineClock()->Now());
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->to, peer);
  size_t bytes = 0;
  for (const Payload& part : message->frame) bytes += part.size();
  EXPECT_EQ(message->bytes, bytes);
  EXPECT_TRUE(state_.NothingToSend());
}

TEST_F(TransportStateTest, AnAcceptedPeerCanBeAnsweredAtOnce) {
  const PeerId peer = state_.AcceptPeer();
  ASSERT_TRUE(state_.Send(peer, Numbered(1), {}).ok());
  EXPECT_TRUE(state_.Pop(MachineClock()->Now()).has_value());
}

TEST_F(TransportStateTest, NumbersAreNeverUsedAgain) {
  std::set<PeerId> seen;
  for (int i = 0; i < 10; ++i) {
    const PeerId accepted = state_.AcceptPeer();
    EXPECT_TRUE(seen.insert(accepted).second);
    EXPECT_TRUE(seen.insert(Connected("x")).second);
    state_.RemovePeer(accepted);
  }
}

TEST_F(TransportStateTest, WhatCouldNotBeHandedOverComesAgainFirst) {
  const PeerId peer = state_.AcceptPeer();
  for (const uint64_t number : {1, 2}) ASSERT_TRUE(state_.Send(peer, Numbered(number), {}).ok());
  std::optional<Outgoing> first = state_.Pop(MachineClock()->Now());
  ASSERT_TRUE(first.has_value());
  const uint64_t sequence = first->sequence;
  state_.Return(*std::move(first));
  EXPECT_FALSE(state_.Pop(MachineClock()->Now()).has_value()) << "its peer is held";
  state_.Release(peer, MachineClock()->Now());
  EXPECT_EQ(state_.Pop(MachineClock()->Now())->sequence, sequence);
}

TEST_F(TransportStateTest, AStrangerIsNotFoundAndARemovedPeersMessagesComeBack) {
  EXPECT_EQ(state_.Send(PeerId{99}, Numbered(1), {}).code(), absl::StatusCode::kNotFound);
  const PeerId peer = state_.AcceptPeer();
  for (const uint64_t number : {1, 2}) ASSERT_TRUE(state_.Send(peer, Numbered(number), {}).ok());
  EXPECT_EQ(state_.RemovePeer(peer).size(), 2u);
  EXPECT_EQ(state_.Send(peer, Numbered(3), {}).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(state_.RemovePeer(peer).empty());
}

TEST_F(TransportStateTest, AMessageOverALimitIsRefusedBeforeItIsQueued) {
  TransportOptions options;
  options.limits.max_message_bytes = 1000;
  TransportState state(options);
  const PeerId peer = state.AcceptPeer();
  EXPECT_EQ(state.Send(peer, NumberedPush(1, 4096), {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(state.NothingToSend());
  EXPECT_TRUE(state.Send(peer, NumberedPush(1, 400), {}).ok());
}

TEST_F(TransportStateTest, OnceStoppedItTakesNothingAndGivesUpWhatItHas) {
  const PeerId peer = state_.AcceptPeer();
  ASSERT_TRUE(state_.Send(peer, Numbered(1), {}).ok());
  IsSignalled();
  EXPECT_FALSE(state_.stopping());
  state_.Stop();
  EXPECT_TRUE(state_.stopping());
  EXPECT_TRUE(IsSignalled());
  const absl::Status late = state_.Send(peer, Numbered(2), {});
  EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(late.message()), HasSubstr("stopped"));
  EXPECT_EQ(state_.Connect("x").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(state_.TakeAll().size(), 1u);
  EXPECT_TRUE(state_.NothingToSend());
}

TEST_F(TransportStateTest, CountersSayWhatWentThrough) {
  state_.CountSent(10);
  state_.CountSent(5);
  state_.CountReceived(7);
  state_.CountLent(4);
  state_.CountBorrowed(3);
  RecordingSink sink;
  state_.ReportBadFrame(&sink, PeerId{1}, absl::InvalidArgumentError("no frame"));
  state_.ReportUndeliverable(&sink, PeerId{1}, absl::UnavailableError("gone"));
  state_.ReportUndeliverable(&sink, PeerId{1}, absl::UnavailableError("gone"));
  const TransportStats stats = state_.stats();
  EXPECT_EQ(stats.messages_sent, 2u);
  EXPECT_EQ(stats.bytes_sent, 15u);
  EXPECT_EQ(stats.messages_received, 1u);
  EXPECT_EQ(stats.bytes_received, 7u);
  EXPECT_EQ(stats.bytes_lent, 4u);
  EXPECT_EQ(stats.bytes_borrowed, 3u);
  EXPECT_EQ(stats.bad_frames, 1u);
  EXPECT_EQ(stats.undeliverable, 2u);
  EXPECT_EQ(sink.bad_frames().size(), 1u);
  EXPECT_EQ(sink.undeliverable().size(), 2u);
}

TEST_F(TransportStateTest, ThreadsSendAtOnceAndNothingIsLost) {
  constexpr int kThreads = 4, kEach = 200;
  const PeerId peer = state_.AcceptPeer();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) EXPECT_TRUE(state_.Send(peer, Numbered(i), {}).ok());
    });
  }
  int popped = 0;
  uint64_t last = 0;
  const auto pop = [&] {
    while (const std::optional<Outgoing> message = state_.Pop(MachineClock()->Now())) {
      EXPECT_TRUE(popped == 0 || message->sequence > last);
      last = message->sequence;
      ++popped;
    }
  };
  for (int i = 0; i < 50; ++i) pop();
  for (std::thread& thread : threads) thread.join();
  pop();
  EXPECT_EQ(popped, kThreads * kEach);
}

}  // namespace
}  // namespace slimps
