// SPDX-License-Identifier: Apache-2.0
// Who gets in where keys are asked for, and whose messages are told to be whose.
#include <gtest/gtest.h>
#include <zmq.h>

#include <string>
#include <vector>

#include "proto/net/address.h"
#include "proto/net/zmq/curve/zap_handler.h"
#include "proto/net/zmq/zmq_monitor.h"
#include "tests/proto/base/wait_until.h"
#include "tests/proto/net/zmq/curve/curve_fixture.h"
#include "tests/proto/net/zmq/curve/tcp_proxy.h"
#include "tests/strangers/zmtp_client.h"

namespace slimps {
namespace {

using CurveTest = CurveFixture;

TEST_F(CurveTest, EachMessageComesWithTheNameOfItsKey) {
  Serve();
  Client first(WithSecret(kWorker0)), second(WithSecret(kWorker1));
  first.Say(address_, 1);
  ASSERT_TRUE(sink_.WaitForMessages(1));
  second.Say(address_, 2);
  ASSERT_TRUE(sink_.WaitForMessages(2));
  first.Say(address_, 3);
  ASSERT_TRUE(sink_.WaitForMessages(3));
  const std::vector<RecordingSink::Received> received = sink_.received();
  EXPECT_EQ(received[0].message.user_id, "worker 0");
  EXPECT_EQ(received[1].message.user_id, "worker 1");
  EXPECT_EQ(received[2].message.user_id, "worker 0");
  // The answer finds its way.
  ASSERT_TRUE(server_->Send(received[1].from, Numbered(9)).ok());
  ASSERT_TRUE(second.sink.WaitForMessages(1));
  EXPECT_EQ(second.sink.received()[0].message.user_id, "");
}

TEST_F(CurveTest, PayloadsArriveAsTheyWereSent) {
  Serve();
  Client worker(WithSecret(kWorker0));
  const Message sent = NumberedPush(5, size_t{3} << 20);
  worker.Say(address_, 1);
  ASSERT_TRUE(worker.transport.Send(worker.peer, sent).ok());
  ASSERT_TRUE(sink_.WaitForMessages(2));
  const Message got = sink_.received()[1].message;
  ASSERT_EQ(got.payloads.size(), sent.payloads.size());
  EXPECT_TRUE(std::ranges::equal(got.payloads[0].bytes(), sent.payloads[0].bytes()));
}

TEST_F(CurveTest, AKeyThatIsNotListedIsRefusedInWords) {
  Serve();
  Client stranger(WithSecret(kStranger));
  stranger.Say(address_, 1);
  ASSERT_TRUE(stranger.sink.WaitForUndeliverable(1));
  const absl::Status why = stranger.sink.undeliverable()[0].second;
  EXPECT_EQ(why, absl::PermissionDeniedError("the other side refuses our key"));
  ExpectWorker0IsHeard();
}

TEST_F(CurveTest, WhoHasNoKeyDoesNotGetIn) {
  Serve();
  Client plain(ZmqTransportOptions{});
  plain.Say(plain_address_, 1);
  ASSERT_TRUE(plain.sink.WaitForUndeliverable(1));
  EXPECT_EQ(plain.sink.undeliverable()[0].second.code(), absl::StatusCode::kPermissionDenied);
  ExpectWorker0IsHeard();
}

TEST_F(CurveTest, AServerWithoutKeysGetsNothing) {
  ZmqTransport plain{ZmqTransportOptions{}};
  const std::string address = *plain.Bind("tcp://127.0.0.1:0");
  ASSERT_TRUE(plain.Start(&sink_).ok());
  Client worker(WithSecret(kWorker0));
  worker.Say(KeyedAddress(address, kServer), 1);
  ASSERT_TRUE(worker.sink.WaitForUndeliverable(1));
  plain.Stop();
  EXPECT_TRUE(sink_.received().empty());
}

TEST_F(CurveTest, AServerWithAnotherKeyGetsNothing) {
  Serve();
  Client worker(WithSecret(kWorker0));
  worker.Say(KeyedAddress(plain_address_, kStranger), 1);
  // It tries again: the right server may come back.
  ASSERT_TRUE(worker.sink.WaitForLost(2));
  ExpectWorker0IsHeard();
}

TEST_F(CurveTest, WhoKnowsKeysAndHandsOutNoneIsToldAtOnce) {
  Client worker(WithSecret(kWorker0)), plain(ZmqTransportOptions{});
  for (const auto& [client, address] :
       {std::pair{&worker, std::string("tcp://127.0.0.1:1")},
        std::pair{&plain, KeyedAddress("tcp://127.0.0.1:1", kServer)}}) {
    const absl::Status refused = client->transport.Connect(address).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  }
}

TEST_F(CurveTest, WhoComesBeforeTheKeysAreKnownWaitsAtTheDoor) {
  options_.allowed_keys = std::make_shared<AllowedKeys>();
  Serve();
  Client worker(WithSecret(kWorker1));
  worker.Say(address_, 1);
  EXPECT_FALSE(sink_.WaitForMessages(1, absl::Milliseconds(200)));
  options_.allowed_keys->Set({{TestPublicKey(kWorker1), "worker 1"}});
  EXPECT_TRUE(sink_.WaitForMessages(1));
  EXPECT_TRUE(worker.sink.lost().empty()) << "it did not need a second attempt";
}

TEST_F(CurveTest, AServerThatNeverLearnsKeysStopsAllTheSame) {
  options_.allowed_keys = std::make_shared<AllowedKeys>();
  Serve();
  Client worker(WithSecret(kWorker1));
  worker.Say(address_, 1);
  EXPECT_FALSE(sink_.WaitForMessages(1, absl::Milliseconds(200)));
  server_.reset();
  EXPECT_TRUE(sink_.received().empty());
}

TEST_F(CurveTest, WhoBindsWithAKeyMustKnowWhoMayConnect) {
  ZmqTransport server(WithSecret(kServer));
  EXPECT_EQ(server.Bind("tcp://127.0.0.1:0").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CurveTest, GarbageAfterTheHandshakeEndsTheConnectionAndNothingElse) {
  Serve();
  Client bystander(WithSecret(kWorker1));
  bystander.Say(address_, 1);
  ASSERT_TRUE(sink_.WaitForMessages(1));
  for (const std::string& garbage :
       {std::string(1000, '\xa5'), std::string("\0\5hello", 7),
        // A command that looks like a message of CURVE, with a nonce far ahead.
        std::string("\4\x30\7MESSAGE", 10) + std::string(40, '\x7f')}) {
    const size_t before = sink_.received().size();
    TcpProxy proxy(ParseAddress(plain_address_)->port);
    Client worker(WithSecret(kWorker0));
    worker.Say(KeyedAddress(proxy.address(), kServer), 2);
    ASSERT_TRUE(sink_.WaitForMessages(before + 1));
    proxy.SlipIn(garbage);
    ASSERT_TRUE(worker.sink.WaitForLost(1)) << "the server does not go on with it";
    bystander.Say(address_, 3);
    ASSERT_TRUE(sink_.WaitForMessages(before + 2));
    EXPECT_EQ(sink_.received()[before + 1].message.header.request_id(), 3u);
    EXPECT_TRUE(sink_.bad_frames().empty()) << "nothing of it was taken for a message";
  }
  EXPECT_TRUE(bystander.sink.lost().empty());
}

// A CURVE server of ZeroMQ's own, with or without a ZapHandler in its context.
class BareServer {
 public:
  explicit BareServer(std::shared_ptr<AllowedKeys> allowed) : handler_(std::move(allowed)) {}
  ~BareServer() {
    socket_.reset();
    context_.reset();
  }

  // Returns the address, with the key.
  std::string Bind() {
    socket_.reset(zmq_socket(context_.get(), ZMQ_ROUTER));
    EXPECT_TRUE(ServeCurve(socket_.get(), TestKey('s')).ok());
    EXPECT_EQ(zmq_bind(socket_.get(), "tcp://127.0.0.1:*"), 0);
    return KeyedAddress(LastEndpoint(socket_.get()), 's');
  }
  void StartHandler() { ASSERT_TRUE(handler_.Start(context_.get()).ok()); }
  bool HasMessage() { return (Events(socket_.get()) & ZMQ_POLLIN) != 0; }

 private:
  ZapHandler handler_;
  ZmqContext context_{zmq_ctx_new()};
  ZmqSocket socket_;
};

TEST_F(CurveTest, WithoutAHandlerNobodyGetsIn) {
  BareServer server(allowed_);
  const std::string address = server.Bind();
  ZmqTransportOptions impatient = WithSecret(kWorker0);
  impatient.handshake_timeout = absl::Milliseconds(100);
  Client worker(impatient);
  worker.Say(address, 1);
  ASSERT_TRUE(worker.sink.WaitForLost(3)) << "no handshake is answered";
  EXPECT_FALSE(server.HasMessage());
  // With the handler, the same client gets in at its next attempt.
  server.StartHandler();
  EXPECT_TRUE(WaitUntil([&] { return server.HasMessage(); }));
}

// A ZeroMQ client that chooses its own routing id.
class NamedClient {
 public:
  NamedClient(const std::string& plain_address, char key, const std::string& routing_id) {
    EXPECT_TRUE(UseCurve(socket_.get(), TestKey(key), TestPublicKey('s')).ok());
    zmq_setsockopt(socket_.get(), ZMQ_ROUTING_ID, routing_id.data(), routing_id.size());
    EXPECT_EQ(zmq_connect(socket_.get(), plain_address.c_str()), 0);
  }
  void Say(uint64_t number) {
    const absl::StatusOr<Frame> frame = BuildFrame(Numbered(number), Limits{});
    const std::span<const std::byte> bytes = (*frame)[0].bytes();
    zmq_send(socket_.get(), bytes.data(), bytes.size(), 0);
  }

 private:
  ZmqContext context_{zmq_ctx_new()};
  ZmqSocket socket_{zmq_socket(context_.get(), ZMQ_DEALER)};
};

TEST_F(CurveTest, ARoutingIdThatChangesItsUserIsAnotherPeer) {
  Serve();  // without bounds on strangers, so that connections are not told apart
  {
    NamedClient first(plain_address_, kWorker0, "same");
    first.Say(1);
    ASSERT_TRUE(sink_.WaitForMessages(1));
  }
  NamedClient second(plain_address_, kWorker1, "same");
  // While the server still holds the first connection, it ignores the second.
  ASSERT_TRUE(WaitUntil([&] {
    second.Say(2);
    return sink_.WaitForMessages(2, absl::Milliseconds(100));
  }));
  const std::vector<RecordingSink::Received> received = sink_.received();
  EXPECT_EQ(received[0].message.user_id, "worker 0");
  EXPECT_EQ(received[1].message.user_id, "worker 1");
  EXPECT_NE(received[0].from, received[1].from);
  EXPECT_EQ(server_->Send(received[0].from, Numbered(3)).code(), absl::StatusCode::kNotFound);
}

TEST_F(CurveTest, WhereNoKeyIsAskedForNobodyNamesHimself) {
  ZmqTransport plain{ZmqTransportOptions{}};
  const std::string address = *plain.Bind("tcp://127.0.0.1:0");
  ASSERT_TRUE(plain.Start(&sink_).ok());
  ZmtpClient liar;
  ASSERT_TRUE(liar.Connect(address, "", "worker 0"));
  const absl::StatusOr<Frame> frame = BuildFrame(Numbered(1), Limits{});
  const std::span<const std::byte> bytes = (*frame)[0].bytes();
  ASSERT_TRUE(liar.Send({std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())}));
  ASSERT_TRUE(sink_.WaitForMessages(1));
  EXPECT_EQ(sink_.received()[0].message.user_id, "");
  plain.Stop();
}

}  // namespace
}  // namespace slimps
