// SPDX-License-Identifier: Apache-2.0
// What every Transport does when peers go, when limits are reached, and when it is misused.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "proto/base/clock.h"
#include "tests/proto/net/net_messages.h"
#include "tests/proto/net/recording_sink.h"
#include "tests/proto/net/transport_fixture.h"

namespace slimps {
namespace {

using TransportFaultsTest = TransportFixture;

INSTANTIATE_TEST_SUITE_P(Nets, TransportFaultsTest,
                         testing::Values(Net::kTcp, Net::kIpc, Net::kInProcess), NetName);

TEST_P(TransportFaultsTest, APeerThatIsGoneIsReported) {
  RecordingSink server_sink, client_sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&server_sink, &address);
  std::unique_ptr<Transport> client = Make();
  ASSERT_TRUE(client->Start(&client_sink).ok());
  ASSERT_TRUE(client->Send(*client->Connect(address), Numbered(1)).ok());
  ASSERT_TRUE(server_sink.WaitForMessages(1));
  const PeerId peer = server_sink.received()[0].from;
  client.reset();
  // The network takes a while to learn that the peer is gone. A message sent meanwhile may vanish.
  const SteadyTime deadline = MachineClock()->Now() + absl::Seconds(30);
  absl::Status sent;
  while (sent.ok() && MachineClock()->Now() < deadline) {
    sent = server->Send(peer, Numbered(2));
    server_sink.WaitForUndeliverable(1, absl::Milliseconds(5));
  }
  EXPECT_EQ(sent.code(), absl::StatusCode::kNotFound) << sent;
  ASSERT_GE(server_sink.undeliverable().size(), 1u);
  EXPECT_EQ(server_sink.undeliverable()[0].first, peer);
  EXPECT_EQ(server_sink.undeliverable()[0].second.code(), absl::StatusCode::kUnavailable);
}

TEST_P(TransportFaultsTest, AConnectionIsRemadeToARestartedServer) {
  RecordingSink first_sink, second_sink, client_sink;
  std::string address;
  std::unique_ptr<Transport> server = Serve(&first_sink, &address);
  const std::unique_ptr<Transport> client = Make();
  ASSERT_TRUE(client->Start(&client_sink).ok());
  const PeerId to = *client->Connect(address);
  ASSERT_TRUE(client->Send(to, Numbered(1)).ok());
  ASSERT_TRUE(first_sink.WaitForMessages(1));
  server.reset();
  server = Make();
  ASSERT_TRUE(server->Bind(address).ok());
  ASSERT_TRUE(server->Start(&second_sink).ok());
  // A message sent before the loss was noticed may be gone, so the sender repeats it.
  bool arrived = false;
  for (int i = 0; i < 600 && !arrived; ++i) {
    ASSERT_TRUE(client->Send(to, Numbered(2)).ok());
    arrived = second_sink.WaitForMessages(1, absl::Milliseconds(50));
  }
  EXPECT_TRUE(arrived);
}

TEST_P(TransportFaultsTest, ListeningOnAUsedAddressNamesIt) {
  RecordingSink sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address);
  const std::unique_ptr<Transport> second = Make();
  const absl::Status status = second->Bind(address).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(absl::StrContains(std::string(status.message()), address)) << status;
  EXPECT_TRUE(absl::StrContains(std::string(status.message()), "in use")) << status;
}

TEST_P(TransportFaultsTest, AMessageOverTheLimitIsRefusedByTheSender) {
  TransportOptions small;
  small.limits.max_message_bytes = 1 << 20;
  const std::unique_ptr<Transport> client = Make(small);
  RecordingSink sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address);
  const PeerId to = *client->Connect(address);
  EXPECT_EQ(client->Send(to, NumberedPush(1, 2 << 20)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(client->Send(to, NumberedPush(1, 1 << 19)).ok());
}

TEST_P(TransportFaultsTest, AMessageOverTheLimitNeverReachesTheReceiver) {
  TransportOptions small;
  small.limits.max_message_bytes = 1 << 20;
  RecordingSink sink, client_sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address, small);
  const std::unique_ptr<Transport> client = Make();
  ASSERT_TRUE(client->Start(&client_sink).ok());
  const PeerId to = *client->Connect(address);
  ASSERT_TRUE(client->Send(to, NumberedPush(1, 2 << 20)).ok());
  // ZeroMQ cuts the connection because of it and connects again, so the next messages may be lost.
  bool arrived = false;
  for (int i = 0; i < 600 && !arrived; ++i) {
    ASSERT_TRUE(client->Send(to, Numbered(2)).ok());
    arrived = sink.WaitForMessages(1, absl::Milliseconds(50));
  }
  EXPECT_TRUE(arrived);
  for (const uint64_t number : Numbers(sink)) EXPECT_EQ(number, 2u);
  if (GetParam() == Net::kInProcess) {
    EXPECT_EQ(sink.bad_frames().size(), 1u);
  }
}

TEST_P(TransportFaultsTest, StopSendsWhatWasAccepted) {
  RecordingSink sink, client_sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address);
  TransportOptions patient;
  patient.linger = absl::Seconds(30);
  const std::unique_ptr<Transport> client = Make(patient);
  ASSERT_TRUE(client->Start(&client_sink).ok());
  const PeerId to = *client->Connect(address);
  for (uint64_t i = 0; i < 40; ++i) ASSERT_TRUE(client->Send(to, NumberedPush(i, 200000)).ok());
  client->Stop();
  EXPECT_TRUE(sink.WaitForMessages(40));
  EXPECT_EQ(client->Send(to, Numbered(1)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(client->Connect(address).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(TransportFaultsTest, StopReportsWhatNobodyTook) {
  std::string address;
  {
    RecordingSink sink;
    Serve(&sink, &address);  // gone again at once
  }
  TransportOptions hasty;
  hasty.linger = absl::Milliseconds(20);
  RecordingSink client_sink;
  const std::unique_ptr<Transport> client = Make(hasty);
  ASSERT_TRUE(client->Start(&client_sink).ok());
  const PeerId to = *client->Connect(address);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(client->Send(to, Numbered(i)).ok());
  client->Stop();
  EXPECT_EQ(client_sink.undeliverable().size(), 3u);
  EXPECT_EQ(client->stats().undeliverable, 3u);
}

TEST_P(TransportFaultsTest, AFullQueueAnswersResourceExhausted) {
  TransportOptions options;
  options.max_queued_bytes_per_peer = 10000;
  const std::unique_ptr<Transport> client = Make(options);
  RecordingSink sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address);
  const PeerId to = *client->Connect(address);  // not started: nothing leaves
  EXPECT_TRUE(client->Send(to, NumberedPush(1, 8000)).ok());
  EXPECT_EQ(client->Send(to, NumberedPush(2, 8000)).code(), absl::StatusCode::kResourceExhausted);
}

TEST_P(TransportFaultsTest, MisuseIsAnErrorNotACrash) {
  const std::unique_ptr<Transport> transport = Make();
  RecordingSink sink;
  EXPECT_EQ(transport->Bind("nonsense").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(transport->Connect("nonsense").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(transport->Connect(GetParam() == Net::kInProcess ? "inproc://*" : "tcp://*:0")
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(transport->Send(PeerId{77}, Numbered(1)).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(transport->Start(&sink).ok());
  EXPECT_FALSE(transport->Start(&sink).ok());
  EXPECT_EQ(transport->Bind(FreeAddress()).status().code(), absl::StatusCode::kFailedPrecondition);
  transport->Stop();
  transport->Stop();
}

}  // namespace
}  // namespace slimps
