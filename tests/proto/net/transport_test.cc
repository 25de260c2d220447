// SPDX-License-Identifier: Apache-2.0
// What every Transport promises, over TCP, over ipc and inside one process.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/base/clock.h"
#include "tests/proto/net/net_messages.h"
#include "tests/proto/net/recording_sink.h"
#include "tests/proto/net/transport_fixture.h"

namespace slimps {
namespace {

using TransportTest = TransportFixture;

INSTANTIATE_TEST_SUITE_P(Nets, TransportTest,
                         testing::Values(Net::kTcp, Net::kIpc, Net::kInProcess), NetName);

bool SamePayload(const Message& a, const Message& b) {
  const auto x = a.payloads.at(0).bytes(), y = b.payloads.at(0).bytes();
  return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

TEST_P(TransportTest, ARequestIsAnsweredFromTheHandler) {
  RecordingSink server_sink, client_sink;
  std::string address;
  std::unique_ptr<Transport> server;
  server_sink.on_message = [&](PeerId from, const Message& message) {
    EXPECT_TRUE(server->Send(from, Numbered(message.header.request_id() + 1)).ok());
  };
  server = Make();
  address = *server->Bind(FreeAddress());
  ASSERT_TRUE(server->Start(&server_sink).ok());
  std::unique_ptr<Transport> client = Make();
  ASSERT_TRUE(client->Start(&client_sink).ok());
  const PeerId to = *client->Connect(address);
  ASSERT_TRUE(client->Send(to, NumberedPush(41, 64)).ok());
  ASSERT_TRUE(client_sink.WaitForMessages(1));
  EXPECT_EQ(Numbers(client_sink), std::vector<uint64_t>{42});
  EXPECT_EQ(client_sink.received()[0].from, to);
  EXPECT_TRUE(SamePayload(server_sink.received()[0].message, NumberedPush(41, 64)));
  EXPECT_EQ(client->stats().messages_sent, 1u);
  EXPECT_EQ(client->stats().messages_received, 1u);
  EXPECT_EQ(client->stats().bytes_sent, server->stats().bytes_received);
  client->Stop();
  server->Stop();
}

TEST_P(TransportTest, PayloadsOfAllSizesArriveWholeAndAligned) {
  RecordingSink sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address);
  const std::unique_ptr<Transport> client = Make();
  RecordingSink client_sink;
  ASSERT_TRUE(client->Start(&client_sink).ok());
  const PeerId to = *client->Connect(address);
  const std::vector<size_t> sizes = {4,    28,   32,    36,    252,     256,
                                     8184, 8192, 16388, 65536, 1 << 20, 8 << 20};
  for (size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_TRUE(client->Send(to, NumberedPush(i, sizes[i])).ok());
  }
  ASSERT_TRUE(sink.WaitForMessages(sizes.size()));
  const auto received = sink.received();
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_TRUE(SamePayload(received[i].message, NumberedPush(i, sizes[i]))) << sizes[i];
    const auto* data = received[i].message.payloads[0].bytes().data();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % alignof(float), 0u) << sizes[i];
  }
}

TEST_P(TransportTest, AReceivedPayloadOutlivesItsTransport) {
  std::vector<RecordingSink::Received> received;
  {
    RecordingSink sink, client_sink;
    std::string address;
    const std::unique_ptr<Transport> server = Serve(&sink, &address);
    const std::unique_ptr<Transport> client = Make();
    ASSERT_TRUE(client->Start(&client_sink).ok());
    ASSERT_TRUE(client->Send(*client->Connect(address), NumberedPush(3, 1 << 20)).ok());
    ASSERT_TRUE(sink.WaitForMessages(1));
    received = sink.received();
  }
  EXPECT_TRUE(SamePayload(received[0].message, NumberedPush(3, 1 << 20)));
}

TEST_P(TransportTest, ASentPayloadIsReleasedOnceItIsSent) {
  RecordingSink sink, client_sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address);
  std::weak_ptr<const void> owner;
  {
    const std::unique_ptr<Transport> client = Make();
    ASSERT_TRUE(client->Start(&client_sink).ok());
    Message message = NumberedPush(3, 1 << 20);
    owner = message.payloads[0].owner();
    ASSERT_TRUE(client->Send(*client->Connect(address), std::move(message)).ok());
    ASSERT_TRUE(sink.WaitForMessages(1));
    client->Stop();
  }
  if (GetParam() != Net::kInProcess) {
    EXPECT_TRUE(owner.expired());
  }
}

TEST_P(TransportTest, AnItemWithoutPayloadArrives) {
  RecordingSink sink, client_sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address);
  const std::unique_ptr<Transport> client = Make();
  ASSERT_TRUE(client->Start(&client_sink).ok());
  ASSERT_TRUE(client->Send(*client->Connect(address), NumberedPush(9, 0)).ok());
  ASSERT_TRUE(sink.WaitForMessages(1));
  EXPECT_TRUE(sink.received()[0].message.payloads.empty());
}

TEST_P(TransportTest, EqualPrioritiesKeepTheirOrder) {
  RecordingSink sink, client_sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address);
  const std::unique_ptr<Transport> client = Make();
  ASSERT_TRUE(client->Start(&client_sink).ok());
  const PeerId to = *client->Connect(address);
  std::vector<uint64_t> expected;
  for (uint64_t i = 0; i < 500; ++i) {
    ASSERT_TRUE(client->Send(to, i % 10 == 0 ? NumberedPush(i, 40000) : Numbered(i)).ok());
    expected.push_back(i);
  }
  ASSERT_TRUE(sink.WaitForMessages(500));
  EXPECT_EQ(Numbers(sink), expected);
}

TEST_P(TransportTest, HigherPriorityOvertakesWhatIsQueued) {
  RecordingSink sink, client_sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address);
  const std::unique_ptr<Transport> client = Make();
  const PeerId to = *client->Connect(address);
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(client->Send(to, Numbered(i), {.priority = static_cast<int>(i % 2)}).ok());
  }
  ASSERT_TRUE(client->Start(&client_sink).ok());  // messages may leave only from here on
  ASSERT_TRUE(sink.WaitForMessages(4));
  EXPECT_EQ(Numbers(sink), (std::vector<uint64_t>{1, 3, 0, 2}));
}

TEST_P(TransportTest, AnUrgentMessageOvertakesOnASlowLink) {
  RecordingSink sink, client_sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address);
  TransportOptions slow;
  slow.emulate_link_bytes_per_second = 10e6;
  const std::unique_ptr<Transport> client = Make(slow);
  ASSERT_TRUE(client->Start(&client_sink).ok());
  const PeerId to = *client->Connect(address);
  SendOptions first;
  first.on_handed_over = [&](SteadyTime) {  // the link is about to take the next one
    EXPECT_TRUE(client->Send(to, Numbered(99), {.priority = 1}).ok());
  };
  ASSERT_TRUE(client->Send(to, NumberedPush(0, 100000), std::move(first)).ok());
  for (uint64_t i = 1; i < 4; ++i) ASSERT_TRUE(client->Send(to, NumberedPush(i, 100000)).ok());
  ASSERT_TRUE(sink.WaitForMessages(5));
  EXPECT_EQ(Numbers(sink), (std::vector<uint64_t>{0, 99, 1, 2, 3}));
}

TEST_P(TransportTest, AnEmulatedLinkCarriesOneMessageAfterTheOther) {
  RecordingSink sink, client_sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address);
  TransportOptions slow;
  slow.emulate_link_bytes_per_second = 20e6;
  const std::unique_ptr<Transport> client = Make(slow);
  std::vector<SteadyTime> begins;  // the I/O thread's until Stop
  const PeerId to = *client->Connect(address);
  for (uint64_t i = 0; i < 5; ++i) {
    SendOptions options;
    options.on_handed_over = [&begins](SteadyTime when) { begins.push_back(when); };
    ASSERT_TRUE(client->Send(to, NumberedPush(i, 100000), std::move(options)).ok());
  }
  ASSERT_TRUE(client->Start(&client_sink).ok());
  ASSERT_TRUE(sink.WaitForMessages(5));
  client->Stop();
  ASSERT_EQ(begins.size(), 5u);
  for (size_t i = 1; i < begins.size(); ++i) {
    const absl::Duration each = begins[i] - begins[i - 1];
    EXPECT_GE(each, absl::Milliseconds(5));  // 100 kB over 20 MB/s
    EXPECT_LE(each, absl::Microseconds(5020)) << "the next begins as the last ends, timers or not";
  }
}

TEST_P(TransportTest, AnEmulatedLinkDelaysWhatArrives) {
  RecordingSink sink, client_sink;
  TransportOptions slow;
  slow.emulate_link_bytes_per_second = 10e6;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address, slow);
  const std::unique_ptr<Transport> client = Make();
  ASSERT_TRUE(client->Start(&client_sink).ok());
  const PeerId to = *client->Connect(address);
  const SteadyTime before = MachineClock()->Now();
  for (uint64_t i = 0; i < 30; ++i) ASSERT_TRUE(client->Send(to, NumberedPush(i, 100000)).ok());
  ASSERT_TRUE(sink.WaitForMessages(30));
  const auto received = sink.received();
  for (size_t i = 0; i < received.size(); ++i) {
    EXPECT_GE(received[i].at - before, absl::Milliseconds(10) * (i + 1));
  }
}

TEST_P(TransportTest, HandedOverIsToldOnceAndBeforeTheAnswer) {
  RecordingSink server_sink, client_sink;
  std::unique_ptr<Transport> server = Make();
  server_sink.on_message = [&](PeerId from, const Message&) {
    EXPECT_TRUE(server->Send(from, Numbered(2)).ok());
  };
  const std::string address = *server->Bind(FreeAddress());
  ASSERT_TRUE(server->Start(&server_sink).ok());
  const std::unique_ptr<Transport> client = Make();
  std::atomic<int> told{0};
  client_sink.on_message = [&](PeerId, const Message&) { EXPECT_EQ(told, 1); };
  ASSERT_TRUE(client->Start(&client_sink).ok());
  SendOptions options;
  options.on_handed_over = [&](SteadyTime) { ++told; };
  ASSERT_TRUE(client->Send(*client->Connect(address), Numbered(1), std::move(options)).ok());
  ASSERT_TRUE(client_sink.WaitForMessages(1));
  client->Stop();
  server->Stop();
  EXPECT_EQ(told, 1);
}

// Waits until the transport says that it has delivered all that arrived before `time`. Returns
// false on a timeout.
bool ComesToDeliverUntil(Transport& transport, SteadyTime time) {
  const SteadyTime deadline = MachineClock()->Now() + absl::Seconds(30);
  while (transport.DeliveredUntil() < time) {
    if (MachineClock()->Now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST_P(TransportTest, WhatLiesInTheMailboxIsNotDeliveredYet) {
  RecordingSink sink, client_sink;
  std::promise<void> blocked, go;
  sink.on_message = [&, waits = go.get_future().share()](PeerId, const Message& message) {
    if (message.header.request_id() != 1) return;
    blocked.set_value();
    waits.wait();
  };
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address);
  const std::unique_ptr<Transport> client = Make();
  ASSERT_TRUE(client->Start(&client_sink).ok());
  const PeerId to = *client->Connect(address);
  ASSERT_TRUE(client->Send(to, Numbered(1)).ok());
  blocked.get_future().wait();
  const SteadyTime while_blocked = MachineClock()->Now();
  ASSERT_TRUE(client->Send(to, Numbered(2)).ok());
  for (int i = 0; i < 100; ++i) EXPECT_LT(server->DeliveredUntil(), while_blocked);
  go.set_value();
  EXPECT_TRUE(ComesToDeliverUntil(*server, while_blocked));
  EXPECT_TRUE(sink.WaitForMessages(2));
}

TEST_P(TransportTest, WhereNothingArrivesItIsDeliveredUntilNow) {
  RecordingSink sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(ComesToDeliverUntil(*server, MachineClock()->Now()));
    const SteadyTime delivered = server->DeliveredUntil();  // read before the clock
    EXPECT_LE(delivered, MachineClock()->Now());
  }
}

TEST_P(TransportTest, ThreadsSendAtOnceAndEachKeepsItsOrder) {
  RecordingSink sink, client_sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address);
  const std::unique_ptr<Transport> client = Make();
  ASSERT_TRUE(client->Start(&client_sink).ok());
  const PeerId to = *client->Connect(address);
  constexpr uint64_t kEach = 100;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kEach; ++i) {
        EXPECT_TRUE(client->Send(to, NumberedPush(t * kEach + i, 256)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(sink.WaitForMessages(4 * kEach));
  std::vector<uint64_t> next = {0, 0, 0, 0};
  for (const uint64_t number : Numbers(sink)) EXPECT_EQ(number % kEach, next[number / kEach]++);
}

TEST_P(TransportTest, AConnectionThatIsGivenUpTakesNoMessagesAndIsMadeNoMore) {
  RecordingSink sink, client_sink;
  const std::unique_ptr<Transport> client = Make();
  ASSERT_TRUE(client->Start(&client_sink).ok());
  const std::string address = FreeAddress();
  const std::unique_ptr<Transport> server = Make();
  const std::string bound = *server->Bind(address);
  const PeerId former = *client->Connect(bound);
  ASSERT_TRUE(client->Send(former, Numbered(1)).ok());
  client->Disconnect(former);
  while (!absl::IsNotFound(client->Send(former, Numbered(2)))) std::this_thread::yield();
  ASSERT_TRUE(server->Start(&sink).ok());
  const PeerId again = *client->Connect(bound);
  ASSERT_TRUE(client->Send(again, Numbered(3)).ok());
  while (sink.received().empty() || Numbers(sink).back() != 3) std::this_thread::yield();
  EXPECT_TRUE(client_sink.undeliverable().empty());
  client->Stop();
  server->Stop();
}

}  // namespace
}  // namespace slimps
