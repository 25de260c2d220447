// SPDX-License-Identifier: Apache-2.0
// What only a real network can do to a transport, such as bytes from strangers, and sending on the
// caller's thread.
#include "proto/net/zmq/zmq_transport.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/net/address.h"
#include "proto/net/descriptors.h"
#include "tests/proto/base/wait_until.h"
#include "tests/proto/net/net_messages.h"
#include "tests/proto/net/recording_sink.h"

namespace slimps {
namespace {

class ZmqTransportTest : public testing::Test {
 protected:
  void SetUp() override { Serve({}); }

  void Serve(const ZmqTransportOptions& options) {
    server_ = std::make_unique<ZmqTransport>(options);
    address_ = *server_->Bind("tcp://127.0.0.1:0");
    ASSERT_TRUE(server_->Start(&sink_).ok());
  }

  // Connects without ZeroMQ, writes, and closes.
  void WriteRaw(const std::string& bytes) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(ParseAddress(address_)->port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    // MSG_NOSIGNAL: the other side may rightly have hung up in the middle.
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t sent = send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) break;
      at += static_cast<size_t>(sent);
    }
    shutdown(fd, SHUT_WR);
    char scratch[4096];
    while (recv(fd, scratch, sizeof(scratch), 0) > 0) {  // until ZeroMQ has closed
    }
    close(fd);
  }

  void ExpectServerLives() {
    RecordingSink client_sink;
    ZmqTransport client{ZmqTransportOptions{}};
    ASSERT_TRUE(client.Start(&client_sink).ok());
    const size_t before = sink_.received().size();
    ASSERT_TRUE(client.Send(*client.Connect(address_), Numbered(7)).ok());
    EXPECT_TRUE(sink_.WaitForMessages(before + 1));
  }

  RecordingSink sink_;
  std::string address_;
  std::unique_ptr<ZmqTransport> server_;
};

// A plain ZeroMQ DEALER that sends any parts.
class RawDealer {
 public:
  explicit RawDealer(const std::string& address)
      : context_(zmq_ctx_new()), socket_(zmq_socket(context_, ZMQ_DEALER)) {
    zmq_connect(socket_, address.c_str());
  }
  ~RawDealer() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  void Send(const std::vector<std::string>& parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      zmq_send(socket_, parts[i].data(), parts[i].size(), i + 1 < parts.size() ? ZMQ_SNDMORE : 0);
    }
  }

 private:
  void* const context_;
  void* const socket_;
};

TEST_F(ZmqTransportTest, GarbageOnThePortHurtsNobody) {
  WriteRaw("");
  WriteRaw("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  WriteRaw(std::string(100000, '\0'));
  WriteRaw(std::string(100000, '\xff'));
  // A greeting of ZeroMQ's version 3 with garbage after it.
  WriteRaw(std::string("\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL", 16) + std::string(100000, '\xa5'));
  // A ZMTP 1.0 frame that declares 2^63 bytes.
  WriteRaw(std::string("\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00garbage", 17));
  ExpectServerLives();
}

TEST_F(ZmqTransportTest, PartsThatAreNoFrameAreReportedAndCounted) {
  RawDealer dealer(address_);
  dealer.Send({"hello"});
  dealer.Send({""});
  dealer.Send({"SLPS", "x", "y"});
  dealer.Send({std::string("SLPS\x01\0\x17\0garbage", 15)});
  ASSERT_TRUE(sink_.WaitForBadFrames(4));
  for (const absl::Status& why : sink_.bad_frames()) {
    EXPECT_EQ(why.code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(server_->stats().bad_frames, 4u);
  ExpectServerLives();
}

TEST_F(ZmqTransportTest, TooManyPartsAreDroppedAsOne) {
  RawDealer dealer(address_);
  std::vector<std::string> parts(kDefaultLimits.max_payload_frames + 10, "x");
  dealer.Send(parts);
  ASSERT_TRUE(sink_.WaitForBadFrames(1));
  ExpectServerLives();
  EXPECT_EQ(sink_.bad_frames().size(), 1u);
}

TEST_F(ZmqTransportTest, ALyingLengthNamesKeyAndSizes) {
  absl::StatusOr<Frame> frame = BuildFrame(NumberedPush(5, 64), kDefaultLimits);
  const auto text = [](const Payload& part) {
    return std::string(reinterpret_cast<const char*>(part.bytes().data()), part.size());
  };
  RawDealer dealer(address_);
  dealer.Send({text((*frame)[0]), text((*frame)[1]).substr(1)});
  ASSERT_TRUE(sink_.WaitForBadFrames(1));
  const absl::Status why = sink_.bad_frames()[0];
  EXPECT_EQ(why.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(why.message().find("expected 64 bytes, got 63"), absl::string_view::npos) << why;
}

TEST_F(ZmqTransportTest, OnlySoManyPeersAreRemembered) {
  ZmqTransportOptions options;
  options.max_remembered_peers = 2;
  Serve(options);
  RecordingSink client_sink;
  ZmqTransport client{ZmqTransportOptions{}};
  ASSERT_TRUE(client.Start(&client_sink).ok());
  for (size_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(client.Send(*client.Connect(address_), Numbered(i)).ok());
    ASSERT_TRUE(sink_.WaitForMessages(i));
  }
  const auto received = sink_.received();
  EXPECT_EQ(server_->Send(received[0].from, Numbered(1)).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(server_->Send(received[1].from, Numbered(2)).ok());
  EXPECT_TRUE(server_->Send(received[2].from, Numbered(3)).ok());
  EXPECT_TRUE(client_sink.WaitForMessages(2));
}

TEST_F(ZmqTransportTest, SeveralAddressesServeOneTransport) {
  RecordingSink sink, client_sink;
  ZmqTransport server{ZmqTransportOptions{}};
  const std::string first = *server.Bind("tcp://127.0.0.1:0");
  const std::string second = *server.Bind("tcp://localhost:0");
  ASSERT_TRUE(server.Start(&sink).ok());
  ZmqTransport client{ZmqTransportOptions{}};
  ASSERT_TRUE(client.Start(&client_sink).ok());
  ASSERT_TRUE(client.Send(*client.Connect(first), Numbered(1)).ok());
  ASSERT_TRUE(client.Send(*client.Connect(second), Numbered(2)).ok());
  ASSERT_TRUE(sink.WaitForMessages(2));
  EXPECT_NE(sink.received()[0].from, sink.received()[1].from);
}

TEST_F(ZmqTransportTest, AForeignInterfaceIsUnavailable) {
  ZmqTransport server{ZmqTransportOptions{}};
  const absl::Status status = server.Bind("tcp://192.0.2.1:0").status();  // nobody's address
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_NE(status.message().find("192.0.2.1"), absl::string_view::npos) << status;
}

// Counts this process's open file descriptors.
size_t OpenDescriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(open), end(open)));
}

TEST_F(ZmqTransportTest, AConnectionThatWasGivenUpLeavesNothingBehind) {
  // With three sockets for each, ZeroMQ's default of 1023 would end at the 342nd.
  constexpr size_t kConnections = 400;
  RecordingSink client_sink;
  ZmqTransport client{ZmqTransportOptions{}};
  ASSERT_TRUE(client.Start(&client_sink).ok());
  size_t after_the_first = 0;
  for (size_t i = 1; i <= kConnections; ++i) {
    const PeerId peer = *client.Connect(address_);
    ASSERT_TRUE(client.Send(peer, Numbered(i)).ok());
    ASSERT_TRUE(sink_.WaitForMessages(i));
    client.Disconnect(peer);
    if (i == 1) after_the_first = OpenDescriptors();
  }
  EXPECT_TRUE(WaitUntil([&] { return OpenDescriptors() <= after_the_first; }))
      << OpenDescriptors() << " descriptors are open, " << after_the_first << " were";
}

TEST_F(ZmqTransportTest, MoreThanAThousandSocketsMayBeOpen) {
  constexpr size_t kConnections = 350;
  ASSERT_TRUE(ReserveDescriptors({.accepted = kConnections, .made = kConnections}).ok());
  RecordingSink client_sink;
  ZmqTransport client{ZmqTransportOptions{}};
  ASSERT_TRUE(client.Start(&client_sink).ok());
  for (size_t i = 1; i <= kConnections; ++i) {
    ASSERT_TRUE(client.Send(*client.Connect(address_), Numbered(i)).ok());
  }
  EXPECT_TRUE(sink_.WaitForMessages(kConnections));
  EXPECT_TRUE(client_sink.undeliverable().empty());
}

// ---- senders that hand over themselves ----------------------------------

class HandOverHereTest : public ZmqTransportTest {
 protected:
  void SetUp() override {
    Serve({});
    EXPECT_TRUE(client_.Start(&client_sink_).ok());
    server_peer_ = *client_.Connect(address_);
  }

  // Starts the server again. From now on it sends each message back.
  void Echo() {
    server_->Stop();
    sink_.on_message = [this](PeerId from, const Message& message) {
      EXPECT_TRUE(server_->Send(from, message, {.may_hand_over_here = true}).ok());
    };
    Serve({});
    server_peer_ = *client_.Connect(address_);
  }

  absl::Status SendHere(Message message, std::function<void(SteadyTime)> handed_over = nullptr) {
    return client_.Send(server_peer_, std::move(message),
                        {.on_handed_over = std::move(handed_over), .may_hand_over_here = true});
  }

  RecordingSink client_sink_;
  ZmqTransport client_{ZmqTransportOptions{}};
  PeerId server_peer_{};
};

TEST_F(HandOverHereTest, AnIdleTransportSendsOnTheCallersThread) {
  ASSERT_TRUE(client_.Send(server_peer_, Numbered(1)).ok());
  ASSERT_TRUE(sink_.WaitForMessages(1));
  // The I/O thread may still be awake and send a message itself. Then the next one is tried.
  std::atomic<bool> here = false;
  uint64_t sent = 1;
  EXPECT_TRUE(WaitUntil([&] {
    EXPECT_TRUE(
        SendHere(Numbered(++sent), [&here, caller = std::this_thread::get_id()](SteadyTime) {
          if (std::this_thread::get_id() == caller) here = true;
        }).ok());
    EXPECT_TRUE(sink_.WaitForMessages(sent));
    return here.load();
  }));
}

TEST_F(HandOverHereTest, ManyThreadsLoseNothingAndEachKeepsItsOrder) {
  Echo();  // so that sockets turn readable while callers use them
  constexpr uint64_t kThreads = 4, kMessages = 2000;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (uint64_t i = 0; i < kMessages; ++i) {
        EXPECT_TRUE(SendHere(Numbered(t * kMessages + i + 1)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(client_sink_.WaitForMessages(kThreads * kMessages));
  std::vector<uint64_t> newest(kThreads, 0);
  for (const auto& received : client_sink_.received()) {
    const uint64_t number = received.message.header.request_id();
    uint64_t& last = newest[(number - 1) / kMessages];
    EXPECT_LT(last, number);
    last = number;
  }
}

// A sink runs inside a turn of the I/O loop, so what it sends must wait for the end of the turn.
TEST_F(HandOverHereTest, ASinkMaySendSo) {
  client_sink_.on_message = [this](PeerId, const Message& message) {
    const uint64_t number = message.header.request_id();
    if (number == 50) return;
    EXPECT_TRUE(SendHere(Numbered(number + 1)).ok());
  };
  Echo();
  ASSERT_TRUE(SendHere(Numbered(1)).ok());
  ASSERT_TRUE(client_sink_.WaitForMessages(50));
}

// A sender that comes after the last turn finds no socket, and has nothing to send.
TEST_F(HandOverHereTest, WhoSendsWhileItStopsIsRefusedInTheEnd) {
  std::atomic<bool> refused{false};
  std::thread sender([&] {
    for (uint64_t i = 1; !refused; ++i) {
      const absl::Status sent = SendHere(Numbered(i));
      refused = absl::IsFailedPrecondition(sent);
      EXPECT_TRUE(sent.ok() || refused || absl::IsResourceExhausted(sent)) << sent;
    }
  });
  ASSERT_TRUE(sink_.WaitForMessages(100));
  client_.Stop();
  sender.join();
  EXPECT_EQ(SendHere(Numbered(1)).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace slimps
