// SPDX-License-Identifier: Apache-2.0
#include "proto/net/testing/fault_injection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "proto/base/clock.h"
#include "proto/net/testing/in_process_transport.h"
#include "tests/proto/net/net_messages.h"
#include "tests/proto/net/recording_sink.h"
#include "worker/courier/retry_tracker.h"

namespace slimps {
namespace {

constexpr PeerId kPeer{1};

std::vector<uint64_t> Numbers(const RecordingSink& sink) {
  std::vector<uint64_t> numbers;
  for (const auto& received : sink.received()) {
    numbers.push_back(received.message.header.request_id());
  }
  return numbers;
}

std::vector<uint64_t> Through(const FaultPlan& plan, uint64_t messages) {
  RecordingSink sink;
  FaultySink faulty(&sink, plan);
  for (uint64_t i = 0; i < messages; ++i) faulty.OnMessage(kPeer, Numbered(i));
  return Numbers(sink);
}

TEST(FaultySink, WithoutFaultsEverythingPasses) {
  EXPECT_EQ(Through({}, 4), (std::vector<uint64_t>{0, 1, 2, 3}));
}

TEST(FaultySink, EachFaultDoesWhatItSays) {
  EXPECT_TRUE(Through({.drop = 1}, 4).empty());
  EXPECT_EQ(Through({.duplicate = 1}, 2), (std::vector<uint64_t>{0, 0, 1, 1}));
  EXPECT_EQ(Through({.reorder = 1}, 3), (std::vector<uint64_t>{0, 1}));
  EXPECT_EQ(Through({.delay = 1, .delay_messages = 2}, 5), (std::vector<uint64_t>{0, 1, 2}));
}

TEST(FaultySink, SomeReorderedMessagesChangePlaces) {
  const std::vector<uint64_t> numbers = Through({.seed = 3, .reorder = 0.3}, 100);
  EXPECT_FALSE(std::is_sorted(numbers.begin(), numbers.end()));
  EXPECT_GE(numbers.size(), 99u);
}

TEST(FaultySink, ASeedRepeats) {
  const FaultPlan plan{.seed = 5, .drop = 0.2, .duplicate = 0.2, .reorder = 0.2, .delay = 0.2};
  FaultPlan other = plan;
  other.seed = 6;
  EXPECT_EQ(Through(plan, 200), Through(plan, 200));
  EXPECT_NE(Through(plan, 200), Through(other, 200));
}

TEST(FaultySink, ATruncatedPayloadIsABadFrame) {
  RecordingSink sink;
  FaultySink faulty(&sink, {.truncate = 1});
  faulty.OnMessage(kPeer, NumberedPush(1, 64));
  faulty.OnMessage(kPeer, Numbered(2));  // has no payload to truncate
  ASSERT_EQ(sink.bad_frames().size(), 1u);
  EXPECT_EQ(sink.bad_frames()[0].code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Numbers(sink), std::vector<uint64_t>{2});
}

// The sender repeats each item under one ticket (at least once), and the receiver counts it exactly
// once. The network drops, duplicates, delays and reorders in both directions.
TEST(FaultyTransport, RetriesUnderOneTicketSurviveEveryFault) {
  auto network = std::make_shared<InProcessNetwork>();
  InProcessTransport server_net(network, TransportOptions{});
  InProcessTransport worker_net(network, TransportOptions{});
  const FaultPlan plan{
      .seed = 11, .drop = 0.2, .duplicate = 0.1, .truncate = 0.1, .reorder = 0.1, .delay = 0.1};
  FaultyTransport server(&server_net, plan);
  FaultyTransport worker(&worker_net, plan);
  // Only the server's I/O thread uses it until Stop.
  std::map<uint64_t, int> counted;
  RecordingSink server_sink, worker_sink;
  server_sink.on_message = [&](PeerId from, const Message& message) {
    const uint64_t ticket = message.header.push().items(0).id().ticket();
    counted.emplace(ticket, 0).first->second = 1;
    Message reply;
    reply.header.mutable_push_reply()->add_items()->mutable_id()->set_ticket(ticket);
    // Fails if a late repeat arrives after the worker, which has all its answers, has stopped.
    (void)server.Send(from, std::move(reply));
  };
  const std::string address = *server.Bind("inproc://*");
  ASSERT_TRUE(server.Start(&server_sink).ok());
  ASSERT_TRUE(worker.Start(&worker_sink).ok());
  const PeerId to = *worker.Connect(address);

  constexpr uint64_t kItems = 100;
  RetryTracker tracker({.first_interval = absl::Milliseconds(5), .backoff = 1});
  const SteadyTime deadline = MachineClock()->Now() + absl::Seconds(60);
  for (uint64_t ticket = 1; ticket <= kItems; ++ticket) {
    tracker.Add(ticket, deadline, MachineClock()->Now());
    ASSERT_TRUE(worker.Send(to, NumberedPush(ticket, 64)).ok());
  }
  size_t answers_seen = 0, answered = 0;
  while (answered < kItems && MachineClock()->Now() < deadline) {
    worker_sink.WaitForMessages(answers_seen + 1, absl::Milliseconds(5));
    const auto answers = worker_sink.received();
    for (; answers_seen < answers.size(); ++answers_seen) {
      const auto& reply = answers[answers_seen].message.header.push_reply();
      answered += tracker.OnAnswer(reply.items(0).id().ticket());
    }
    for (const uint64_t ticket : tracker.TakeDue(MachineClock()->Now()).resend) {
      ASSERT_TRUE(worker.Send(to, NumberedPush(ticket, 64)).ok());
    }
  }
  EXPECT_EQ(answered, kItems);
  worker.Stop();
  server.Stop();
  EXPECT_EQ(counted.size(), kItems);
}

}  // namespace
}  // namespace slimps
