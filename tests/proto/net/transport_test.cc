// What every Transport promises, over TCP, over ipc and inside one process.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/net/in_process_transport.h"
#include "proto/net/zmq_transport.h"
#include "tests/proto/net/net_messages.h"
#include "tests/proto/net/recording_sink.h"

namespace slimps {
namespace {

enum class Net { kTcp, kIpc, kInProcess };

class TransportTest : public testing::TestWithParam<Net> {
 protected:
  TransportTest() {
    char pattern[] = "/tmp/slimps-test-XXXXXX";  // short: a unix socket's path has 107 bytes
    directory_ = mkdtemp(pattern);
  }
  ~TransportTest() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Transport> Make(const TransportOptions& options = {}) {
    if (GetParam() == Net::kInProcess) {
      return std::make_unique<InProcessTransport>(network_, options);
    }
    ZmqTransportOptions zmq_options;
    static_cast<TransportOptions&>(zmq_options) = options;
    return std::make_unique<ZmqTransport>(zmq_options);
  }

  // An address that the system or we know to be free.
  std::string FreeAddress() {
    switch (GetParam()) {
      case Net::kTcp:
        return "tcp://127.0.0.1:0";
      case Net::kIpc:
        return absl::StrCat("ipc://", directory_, "/", ++names_);
      case Net::kInProcess:
        return "inproc://*";
    }
    return "";
  }

  // A bound, started transport and its address.
  std::unique_ptr<Transport> Serve(RecordingSink* sink, std::string* address,
                                   const TransportOptions& options = {}) {
    std::unique_ptr<Transport> server = Make(options);
    absl::StatusOr<std::string> bound = server->Bind(FreeAddress());
    EXPECT_TRUE(bound.ok()) << bound.status();
    *address = *bound;
    EXPECT_TRUE(server->Start(sink).ok());
    return server;
  }

  std::shared_ptr<InProcessNetwork> network_ = std::make_shared<InProcessNetwork>();
  std::string directory_;
  int names_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Nets, TransportTest,
                         testing::Values(Net::kTcp, Net::kIpc, Net::kInProcess),
                         [](const auto& info) {
                           return info.param == Net::kTcp   ? "Tcp"
                                  : info.param == Net::kIpc ? "Ipc"
                                                            : "InProcess";
                         });

std::vector<uint64_t> Numbers(const RecordingSink& sink) {
  std::vector<uint64_t> numbers;
  for (const auto& received : sink.received()) {
    numbers.push_back(received.message.header.request_id());
  }
  return numbers;
}

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
  ASSERT_TRUE(client->Start(&client_sink).ok());  // only now may anything leave
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
  first.on_handed_over = [&](absl::Time) {  // the link is about to take the next one
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
  slow.emulate_link_startup = absl::Milliseconds(1);
  const std::unique_ptr<Transport> client = Make(slow);
  std::vector<absl::Time> begins;  // the I/O thread's until Stop
  const PeerId to = *client->Connect(address);
  for (uint64_t i = 0; i < 5; ++i) {
    SendOptions options;
    options.on_handed_over = [&begins](absl::Time when) { begins.push_back(when); };
    ASSERT_TRUE(client->Send(to, NumberedPush(i, 100000), std::move(options)).ok());
  }
  ASSERT_TRUE(client->Start(&client_sink).ok());
  ASSERT_TRUE(sink.WaitForMessages(5));
  client->Stop();
  ASSERT_EQ(begins.size(), 5u);
  for (size_t i = 1; i < begins.size(); ++i) {
    const absl::Duration each = begins[i] - begins[i - 1];
    EXPECT_GE(each, absl::Milliseconds(6));  // 1 ms and 100 kB over 20 MB/s
    EXPECT_LE(each, absl::Microseconds(6020)) << "the next begins as the last ends, timers or not";
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
  const absl::Time before = absl::Now();
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
  options.on_handed_over = [&](absl::Time) { ++told; };
  ASSERT_TRUE(client->Send(*client->Connect(address), Numbered(1), std::move(options)).ok());
  ASSERT_TRUE(client_sink.WaitForMessages(1));
  client->Stop();
  server->Stop();
  EXPECT_EQ(told, 1);
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

TEST_P(TransportTest, APeerThatIsGoneIsReported) {
  RecordingSink server_sink, client_sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&server_sink, &address);
  std::unique_ptr<Transport> client = Make();
  ASSERT_TRUE(client->Start(&client_sink).ok());
  ASSERT_TRUE(client->Send(*client->Connect(address), Numbered(1)).ok());
  ASSERT_TRUE(server_sink.WaitForMessages(1));
  const PeerId peer = server_sink.received()[0].from;
  client.reset();
  // The network takes a while to learn of it; a message sent meanwhile may vanish.
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  absl::Status sent;
  while (sent.ok() && absl::Now() < deadline) {
    sent = server->Send(peer, Numbered(2));
    server_sink.WaitForUndeliverable(1, absl::Milliseconds(5));
  }
  EXPECT_EQ(sent.code(), absl::StatusCode::kNotFound) << sent;
  ASSERT_GE(server_sink.undeliverable().size(), 1u);
  EXPECT_EQ(server_sink.undeliverable()[0].first, peer);
  EXPECT_EQ(server_sink.undeliverable()[0].second.code(), absl::StatusCode::kUnavailable);
}

TEST_P(TransportTest, AConnectionIsRemadeToARestartedServer) {
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
  // One sent before the loss was noticed may be gone: the sender repeats.
  bool arrived = false;
  for (int i = 0; i < 600 && !arrived; ++i) {
    ASSERT_TRUE(client->Send(to, Numbered(2)).ok());
    arrived = second_sink.WaitForMessages(1, absl::Milliseconds(50));
  }
  EXPECT_TRUE(arrived);
}

TEST_P(TransportTest, ListeningOnAUsedAddressNamesIt) {
  RecordingSink sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address);
  const std::unique_ptr<Transport> second = Make();
  const absl::Status status = second->Bind(address).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(absl::StrContains(std::string(status.message()), address)) << status;
  EXPECT_TRUE(absl::StrContains(std::string(status.message()), "in use")) << status;
}

TEST_P(TransportTest, AMessageOverTheLimitIsRefusedByTheSender) {
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

TEST_P(TransportTest, AMessageOverTheLimitNeverReachesTheReceiver) {
  TransportOptions small;
  small.limits.max_message_bytes = 1 << 20;
  RecordingSink sink, client_sink;
  std::string address;
  const std::unique_ptr<Transport> server = Serve(&sink, &address, small);
  const std::unique_ptr<Transport> client = Make();
  ASSERT_TRUE(client->Start(&client_sink).ok());
  const PeerId to = *client->Connect(address);
  ASSERT_TRUE(client->Send(to, NumberedPush(1, 2 << 20)).ok());
  // ZeroMQ cuts the connection for it and makes a new one, so that what follows may be lost once.
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

TEST_P(TransportTest, StopSendsWhatWasAccepted) {
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

TEST_P(TransportTest, StopReportsWhatNobodyTook) {
  std::string address;
  {
    RecordingSink sink;
    Serve(&sink, &address);  // and gone again
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

TEST_P(TransportTest, AFullQueueAnswersResourceExhausted) {
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

TEST_P(TransportTest, MisuseIsAnErrorNotACrash) {
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
