// SPDX-License-Identifier: Apache-2.0
// ZmqTransport over ipc with payloads in shared memory, both ends in one process.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/net/local_sockets.h"
#include "proto/net/shared/shared_memory.h"
#include "proto/net/shared/sharing_wire.h"
#include "proto/net/zmq/same_host.h"
#include "proto/net/zmq/zmq_transport.h"
#include "tests/proto/base/wait_until.h"
#include "tests/proto/net/net_messages.h"
#include "tests/proto/net/recording_sink.h"
#include "tests/proto/net/shared/sharing_test_util.h"

namespace slimps {
namespace {

constexpr size_t kLarge = size_t{1} << 20;

// Keeps only messages that the test takes out: a payload kept by a sink would never be returned.
// Thread-safe.
class TakingSink final : public MessageSink {
 public:
  void OnMessage(PeerId from, Message message) override {
    MutexLock lock(&mutex_);
    from_ = from;
    messages_.push_back(std::move(message));
    changed_.NotifyAll();
  }
  void OnBadFrame(PeerId, const absl::Status& why) override {
    MutexLock lock(&mutex_);
    bad_frames_.push_back(why);
  }
  void OnUndeliverable(PeerId, const absl::Status&) override {}

  // Waits for the next message and returns it.
  Message Take() {
    MutexLock lock(&mutex_);
    const SteadyTime deadline = MachineClock()->Now() + absl::Seconds(30);
    while (messages_.empty() && MachineClock()->Now() < deadline) {
      changed_.WaitFor(&mutex_, deadline - MachineClock()->Now());
    }
    if (messages_.empty()) {
      ADD_FAILURE() << "no message";
      return Message();
    }
    Message message = std::move(messages_.front());
    messages_.erase(messages_.begin());
    return message;
  }
  PeerId from() const {
    MutexLock lock(&mutex_);
    return from_;
  }
  std::vector<absl::Status> bad_frames() const {
    MutexLock lock(&mutex_);
    return bad_frames_;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  PeerId from_ ABSL_GUARDED_BY(mutex_){};
  std::vector<Message> messages_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> bad_frames_ ABSL_GUARDED_BY(mutex_);
};

class SharedTransportTest : public testing::Test {
 protected:
  static ZmqTransportOptions Sharing(SharedMemory* memory) {
    ZmqTransportOptions options;
    options.shared_memory = memory;
    return options;
  }

  void Start(const ZmqTransportOptions& server, const ZmqTransportOptions& client,
             const std::string& address = *UnusedLocalAddress()) {
    server_ = std::make_unique<ZmqTransport>(server);
    const absl::StatusOr<std::string> bound = server_->Bind(address);
    ASSERT_TRUE(bound.ok()) << bound.status();
    address_ = *bound;
    ASSERT_TRUE(server_->Start(&server_sink_).ok());
    client_ = std::make_unique<ZmqTransport>(client);
    ASSERT_TRUE(client_->Start(&client_sink_).ok());
    to_server_ = *client_->Connect(address_);
    ASSERT_TRUE(client_->Send(to_server_, Numbered(0)).ok());
    server_sink_.Take();
  }

  // Sends pushes from `memory` until one is lent. The two ends agree in the background.
  void SendUntilLent(ZmqTransport& from, PeerId to, SharedMemory* memory, TakingSink& sink) {
    ASSERT_TRUE(WaitUntil([&] {
      EXPECT_TRUE(from.Send(to, SharedPush(memory, 9, kLarge)).ok());
      EXPECT_TRUE(IsPayloadOf(sink.Take().payloads.at(0), 9));
      return from.stats().bytes_lent > 0;
    }));
  }

  SharedMemory server_memory_, client_memory_;
  TakingSink server_sink_, client_sink_;
  std::unique_ptr<ZmqTransport> server_, client_;
  std::string address_;
  PeerId to_server_{};
};

TEST_F(SharedTransportTest, PayloadsPassByReferenceBothWays) {
  Start(Sharing(&server_memory_), Sharing(&client_memory_));
  SendUntilLent(*client_, to_server_, &client_memory_, server_sink_);
  SendUntilLent(*server_, server_sink_.from(), &server_memory_, client_sink_);
  const uint64_t before = server_->stats().bytes_received;
  const uint64_t borrowed = server_->stats().bytes_borrowed;
  for (uint64_t number = 1; number <= 20; ++number) {
    ASSERT_TRUE(client_->Send(to_server_, SharedPush(&client_memory_, number, kLarge)).ok());
    const Message message = server_sink_.Take();
    EXPECT_EQ(message.header.request_id(), number);
    EXPECT_TRUE(IsPayloadOf(message.payloads.at(0), number));
  }
  EXPECT_EQ(server_->stats().bytes_borrowed - borrowed, 20 * kLarge);
  EXPECT_GE(server_->stats().bytes_received - before, 20 * kLarge);
  EXPECT_EQ(server_->stats().bad_frames + client_->stats().bad_frames, 0u);
}

TEST_F(SharedTransportTest, TheOwnerHasItsMemoryBackWhenTheReceiverIsDone) {
  Start(Sharing(&server_memory_), Sharing(&client_memory_));
  SendUntilLent(*client_, to_server_, &client_memory_, server_sink_);
  ASSERT_TRUE(WaitUntil([&] { return client_memory_.stats().bytes_in_use == 0; }));
  ASSERT_TRUE(client_->Send(to_server_, SharedPush(&client_memory_, 4, kLarge)).ok());
  Message held = server_sink_.Take();
  // Other payloads come and go meanwhile.
  for (uint64_t number = 5; number <= 8; ++number) {
    ASSERT_TRUE(client_->Send(to_server_, SharedPush(&client_memory_, number, kLarge)).ok());
    EXPECT_TRUE(IsPayloadOf(server_sink_.Take().payloads.at(0), number));
  }
  ASSERT_TRUE(WaitUntil([&] { return client_memory_.stats().bytes_in_use == kLarge; }));
  EXPECT_TRUE(IsPayloadOf(held.payloads.at(0), 4));
  held = Message();
  EXPECT_TRUE(WaitUntil([&] { return client_memory_.stats().bytes_in_use == 0; }));
}

TEST_F(SharedTransportTest, ManyHeldPayloadsHoldNothingUp) {
  Start(Sharing(&server_memory_), Sharing(&client_memory_));
  SendUntilLent(*client_, to_server_, &client_memory_, server_sink_);
  // These are far more messages than ZeroMQ lets run ahead. A server keeps a round's pushes until
  // the last worker's push has come.
  std::vector<Message> held;
  for (uint64_t number = 1; number <= 32; ++number) {
    ASSERT_TRUE(client_->Send(to_server_, SharedPush(&client_memory_, number, kLarge)).ok());
    held.push_back(server_sink_.Take());
  }
  for (uint64_t number = 1; number <= 32; ++number) {
    EXPECT_TRUE(IsPayloadOf(held[number - 1].payloads.at(0), number));
  }
}

TEST_F(SharedTransportTest, BeyondTheBoundPayloadsStillArrive) {
  ZmqTransportOptions client = Sharing(&client_memory_);
  client.max_leased_bytes_per_process = 2 * kLarge;
  Start(Sharing(&server_memory_), client);
  SendUntilLent(*client_, to_server_, &client_memory_, server_sink_);
  ASSERT_TRUE(WaitUntil([&] { return client_memory_.stats().bytes_in_use == 0; }));
  const uint64_t before = client_->stats().bytes_lent;
  std::vector<Message> held;
  for (uint64_t number = 1; number <= 5; ++number) {
    ASSERT_TRUE(client_->Send(to_server_, SharedPush(&client_memory_, number, kLarge)).ok());
    held.push_back(server_sink_.Take());
    EXPECT_TRUE(IsPayloadOf(held.back().payloads.at(0), number));
  }
  EXPECT_EQ(client_->stats().bytes_lent - before, 2 * kLarge);
}

class OneSideOnly : public SharedTransportTest {
 protected:
  void ExpectAllInline() {
    for (uint64_t number = 1; number <= 10; ++number) {
      ASSERT_TRUE(client_->Send(to_server_, SharedPush(&client_memory_, number, kLarge)).ok());
      EXPECT_TRUE(IsPayloadOf(server_sink_.Take().payloads.at(0), number));
      ASSERT_TRUE(
          server_->Send(server_sink_.from(), SharedPush(&server_memory_, number, kLarge)).ok());
      EXPECT_TRUE(IsPayloadOf(client_sink_.Take().payloads.at(0), number));
    }
    EXPECT_EQ(client_->stats().bytes_lent + server_->stats().bytes_lent, 0u);
    EXPECT_EQ(server_->stats().bad_frames + client_->stats().bad_frames, 0u);
  }
};

TEST_F(OneSideOnly, AServerThatDoesNotShareIsSentPayloadsInline) {
  Start(ZmqTransportOptions{}, Sharing(&client_memory_));
  ExpectAllInline();
  EXPECT_TRUE(WaitUntil([&] { return client_->stats().sharing_refusals == 1; }));
  EXPECT_EQ(client_->stats().last_sharing_refusal,
            absl::StrCat("process ", getpid(), " says: shared memory is switched off"));
  EXPECT_EQ(server_->stats().sharing_refusals, 0u);
}

TEST_F(OneSideOnly, AClientThatDoesNotShareIsSentPayloadsInline) {
  Start(Sharing(&server_memory_), ZmqTransportOptions{});
  ExpectAllInline();
}

TEST_F(OneSideOnly, OverTcpNothingIsShared) {
  Start(Sharing(&server_memory_), Sharing(&client_memory_), "tcp://127.0.0.1:0");
  ExpectAllInline();
}

TEST_F(OneSideOnly, MemoryThatTheOtherSideCannotOpenIsNotLent) {
  close(static_cast<int>(client_memory_.greeting().fd));
  close(static_cast<int>(server_memory_.greeting().fd));
  // Takes the freed numbers, so that no other file gets them and is closed in its turn.
  const int first = open("/dev/null", O_RDONLY), second = open("/dev/null", O_RDONLY);
  Start(Sharing(&server_memory_), Sharing(&client_memory_));
  ExpectAllInline();
  EXPECT_GE(std::min(first, second), 0);
  EXPECT_TRUE(WaitUntil([&] { return client_->stats().sharing_refusals == 1; }));
  EXPECT_NE(client_->stats().last_sharing_refusal.find("/proc/"), std::string::npos)
      << client_->stats().last_sharing_refusal;
}

TEST_F(SharedTransportTest, AWrongHashIsFoundInBorrowedBytesToo) {
  Start(Sharing(&server_memory_), Sharing(&client_memory_));
  SendUntilLent(*client_, to_server_, &client_memory_, server_sink_);
  Message message = SharedPush(&client_memory_, 3, kLarge);
  wire::PushItem* const item = message.header.mutable_push()->mutable_items(0);
  item->set_payload_hash(item->payload_hash() ^ 1);
  ASSERT_TRUE(client_->Send(to_server_, std::move(message)).ok());
  ASSERT_TRUE(WaitUntil([&] { return server_sink_.bad_frames().size() == 1; }));
  EXPECT_EQ(server_sink_.bad_frames()[0].code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(WaitUntil([&] { return client_memory_.stats().bytes_in_use == 0; }));
}

TEST_F(SharedTransportTest, OnlyRawPayloadsAreReadWhereTheLenderCanStillWrite) {
  Start(Sharing(&server_memory_), Sharing(&client_memory_));
  SendUntilLent(*client_, to_server_, &client_memory_, server_sink_);
  for (const wire::Format format : {wire::RAW_F32, wire::LEVELS, wire::SPARSE}) {
    Message message = SharedPush(&client_memory_, 3, kLarge);
    message.header.mutable_push()->mutable_items(0)->set_format(format);
    const Payload lent = message.payloads[0];
    const uint64_t before = client_->stats().bytes_lent;
    ASSERT_TRUE(client_->Send(to_server_, std::move(message)).ok());
    const Message received = server_sink_.Take();
    EXPECT_TRUE(WaitUntil([&] { return client_->stats().bytes_lent - before == kLarge; }));
    EXPECT_TRUE(IsPayloadOf(received.payloads.at(0), 3));
    const_cast<std::byte*>(lent.bytes().data())[5] ^= std::byte{1};
    EXPECT_EQ(IsPayloadOf(received.payloads[0], 3), format != wire::RAW_F32);
  }
}

// Breaks this process's connections to the abstract `address`, as a network would. Returns how
// many.
size_t BreakConnectionsTo(const std::string& address) {
  const std::string name = address.substr(std::string("ipc://").size());
  size_t broken = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_un peer{};
    socklen_t bytes = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) continue;
    if (peer.sun_family != AF_UNIX || name != peer.sun_path) continue;
    broken += shutdown(fd, SHUT_RDWR) == 0;
  }
  return broken;
}

TEST_F(SharedTransportTest, WhatIsLetGoOfAfterAReconnectIsReturned) {
  Start(Sharing(&server_memory_), Sharing(&client_memory_));
  SendUntilLent(*client_, to_server_, &client_memory_, server_sink_);
  ASSERT_TRUE(WaitUntil([&] { return client_memory_.stats().bytes_in_use == 0; }));
  ASSERT_TRUE(client_->Send(to_server_, SharedPush(&client_memory_, 4, kLarge)).ok());
  Message held = server_sink_.Take();
  const PeerId before = server_sink_.from();
  ASSERT_EQ(BreakConnectionsTo(address_), 1u);
  // The client comes back as another peer, while the server does not know yet that the first is
  // gone.
  ASSERT_TRUE(WaitUntil([&] {
    EXPECT_TRUE(client_->Send(to_server_, Numbered(5)).ok());
    return server_sink_.from() != before;
  }));
  EXPECT_TRUE(IsPayloadOf(held.payloads.at(0), 4));
  EXPECT_EQ(client_memory_.stats().bytes_in_use, kLarge);
  held = Message();
  EXPECT_TRUE(WaitUntil([&] { return client_memory_.stats().bytes_in_use == 0; }));
}

// Sends parts that ZeroMQ carries and that no transport of ours would send.
class RawPeer {
 public:
  explicit RawPeer(const std::string& address)
      : context_(zmq_ctx_new()), socket_(zmq_socket(context_, ZMQ_DEALER)) {
    zmq_connect(socket_, address.c_str());
  }
  ~RawPeer() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  void Send(const std::vector<Payload>& parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      zmq_send(socket_, parts[i].bytes().data(), parts[i].size(),
               i + 1 < parts.size() ? ZMQ_SNDMORE : 0);
    }
  }

 private:
  void* const context_;
  void* const socket_;
};

TEST_F(SharedTransportTest, HostileReferencesAreBadFramesAndNothingWorse) {
  Start(Sharing(&server_memory_), Sharing(&client_memory_));
  const Frame frame = *BuildFrame(SharedPush(&client_memory_, 1, kLarge), kDefaultLimits);
  const SharedRange range = *client_memory_.Find(frame[1].bytes());
  const PayloadReference good{
      .payload = 0, .segment = range.segment, .offset = range.offset, .bytes = kLarge, .lease = 1};
  const auto references = [](std::vector<PayloadReference> list) {
    return BuildSharingPart({.kind = SharingKind::kReferences,
                             .pid = static_cast<uint64_t>(getpid()),
                             .references = std::move(list)});
  };
  std::vector<std::vector<Payload>> hostile;
  const auto add = [&](auto change) {
    PayloadReference reference = good;
    change(reference);
    hostile.push_back({references({reference}), frame[0]});
  };
  add([](PayloadReference& reference) { reference.offset = ~uint64_t{0} - 3; });
  add([](PayloadReference& reference) { reference.bytes = uint64_t{1} << 40; });
  add([](PayloadReference& reference) { reference.bytes -= 4; });  // not what the item declares
  add([](PayloadReference& reference) { reference.payload = 1; });
  add([](PayloadReference& reference) { reference.segment.id ^= 1; });
  add([](PayloadReference& reference) { reference.segment = {.pid = 0, .fd = 1u << 30, .id = 5}; });
  hostile.push_back({references({good})});                      // without a frame
  hostile.push_back({references({good}), frame[0], frame[1]});  // and in-line too
  hostile.push_back({frame[0], references({good})});
  hostile.push_back(
      {BuildSharingPart({.kind = SharingKind::kAccept, .pid = 1}), frame[0], frame[1]});
  hostile.push_back({Payload::Copy(std::as_bytes(std::span<const char>("SLSMgarbage", 11)))});
  RawPeer raw(address_);
  for (const std::vector<Payload>& parts : hostile) raw.Send(parts);
  ASSERT_TRUE(WaitUntil([&] { return server_sink_.bad_frames().size() >= hostile.size(); }));
  EXPECT_EQ(server_->stats().bad_frames, hostile.size());
  raw.Send({references({good}), frame[0]});
  EXPECT_TRUE(IsPayloadOf(server_sink_.Take().payloads.at(0), 1));
}

TEST_F(SharedTransportTest, StoppingWithPayloadsHeldKeepsTheirBytes) {
  static SharedMemory memory;  // what is lent at the end may stay lent
  Start(Sharing(&server_memory_), Sharing(&memory));
  SendUntilLent(*client_, to_server_, &memory, server_sink_);
  ASSERT_TRUE(client_->Send(to_server_, SharedPush(&memory, 4, kLarge)).ok());
  const Message held = server_sink_.Take();
  client_->Stop();
  client_.reset();
  // The next allocation must not get the memory of the held payload.
  const Message next = SharedPush(&memory, 5, kLarge);
  EXPECT_TRUE(IsPayloadOf(held.payloads.at(0), 4));
  server_->Stop();
  EXPECT_TRUE(IsPayloadOf(held.payloads.at(0), 4));
}

}  // namespace
}  // namespace slimps
