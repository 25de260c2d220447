// SPDX-License-Identifier: Apache-2.0
// Sockets get the bounds and heartbeats of the options. An error names the value that ZeroMQ
// refused.
#include "proto/net/zmq/zmq_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zmq.h>

#include <string>
#include <utility>

namespace slimps {
namespace {

using ::testing::HasSubstr;

class ZmqOptionsTest : public ::testing::Test {
 protected:
  ZmqSocket Open(int type, const ZmqTransportOptions& options = {}) {
    absl::StatusOr<ZmqSocket> socket = OpenSocket(context_.get(), type, options);
    EXPECT_TRUE(socket.ok()) << socket.status();
    return socket.ok() ? *std::move(socket) : ZmqSocket();
  }
  template <typename Value = int>
  static Value Get(const ZmqSocket& socket, int option) {
    Value value = {};
    size_t size = sizeof(value);
    EXPECT_EQ(zmq_getsockopt(socket.get(), option, &value, &size), 0) << option;
    return value;
  }
  std::string Refusal(const ZmqTransportOptions& options) {
    const absl::Status status = OpenSocket(context_.get(), ZMQ_DEALER, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  ZmqContext context_{zmq_ctx_new()};
};

TEST_F(ZmqOptionsTest, EverySocketIsBounded) {
  ZmqTransportOptions options;
  options.limits.max_message_bytes = 12345;
  options.send_high_water_mark = 7;
  options.receive_high_water_mark = 5;
  options.listen_backlog = 9;
  for (const int type : {ZMQ_ROUTER, ZMQ_DEALER}) {
    const ZmqSocket socket = Open(type, options);
    EXPECT_EQ(Get<int64_t>(socket, ZMQ_MAXMSGSIZE), 12345);
    EXPECT_EQ(Get(socket, ZMQ_SNDHWM), 7);
    EXPECT_EQ(Get(socket, ZMQ_RCVHWM), 5);
    EXPECT_EQ(Get(socket, ZMQ_BACKLOG), 9);
    EXPECT_EQ(Get(socket, ZMQ_LINGER), 0) << "closing never blocks unless the transport says so";
    EXPECT_EQ(Get(socket, ZMQ_IPV6), 0);
  }
}

TEST_F(ZmqOptionsTest, ALostPeerIsNoticedUnlessALinkIsEmulated) {
  ZmqTransportOptions options;
  options.heartbeat_interval = absl::Seconds(3);
  options.heartbeat_timeout = absl::Seconds(20);
  options.reconnect_interval = absl::Milliseconds(40);
  options.reconnect_interval_max = absl::Milliseconds(800);
  ZmqSocket socket = Open(ZMQ_DEALER, options);
  EXPECT_EQ(Get(socket, ZMQ_HEARTBEAT_IVL), 3000);
  EXPECT_EQ(Get(socket, ZMQ_HEARTBEAT_TIMEOUT), 20000);
  EXPECT_EQ(Get(socket, ZMQ_TCP_KEEPALIVE), 1);
  EXPECT_EQ(Get(socket, ZMQ_RECONNECT_IVL), 40);
  EXPECT_EQ(Get(socket, ZMQ_RECONNECT_IVL_MAX), 800);
  // The delays of an emulated link would look like a dead peer.
  ZmqTransportOptions slow = options, late = options, off = options;
  slow.emulate_link_bytes_per_second = 1e6;
  late.emulate_link_latency = absl::Milliseconds(1);
  off.heartbeat_interval = absl::ZeroDuration();
  for (const ZmqTransportOptions& none : {slow, late, off}) {
    EXPECT_EQ(Get(Open(ZMQ_DEALER, none), ZMQ_HEARTBEAT_IVL), 0);
  }
}

TEST_F(ZmqOptionsTest, AConnectingSocketKeepsMessagesWithUsUntilThereIsAConnection) {
  EXPECT_EQ(Get(Open(ZMQ_DEALER), ZMQ_IMMEDIATE), 1);
  EXPECT_EQ(Get(Open(ZMQ_ROUTER), ZMQ_IMMEDIATE), 0);
}

TEST_F(ZmqOptionsTest, ARouterSaysWhomItCannotReach) {
  const ZmqSocket router = Open(ZMQ_ROUTER);
  EXPECT_EQ(zmq_send(router.get(), "nobody", 6, ZMQ_SNDMORE | ZMQ_DONTWAIT), -1);
  EXPECT_EQ(zmq_errno(), EHOSTUNREACH);
}

TEST_F(ZmqOptionsTest, AValueThatZeroMqRefusesIsNamedWithTheOption) {
  ZmqTransportOptions options;
  options.send_high_water_mark = -5;
  EXPECT_THAT(Refusal(options), HasSubstr("ZeroMQ refuses send mark -5"));
  options = {};
  options.receive_high_water_mark = -6;
  EXPECT_THAT(Refusal(options), HasSubstr("ZeroMQ refuses receive mark -6"));
}

TEST_F(ZmqOptionsTest, WithoutSocketsLeftThatIsSaid) {
  ZmqContext small(zmq_ctx_new());
  ASSERT_EQ(zmq_ctx_set(small.get(), ZMQ_MAX_SOCKETS, 1), 0);
  absl::StatusOr<ZmqSocket> first = OpenSocket(small.get(), ZMQ_DEALER, {});
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = OpenSocket(small.get(), ZMQ_DEALER, {}).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(second.message()), HasSubstr("ZeroMQ gives no socket"));
}

TEST_F(ZmqOptionsTest, ASocketNamesItsLastAddress) {
  const ZmqSocket socket = Open(ZMQ_ROUTER);
  EXPECT_EQ(LastEndpoint(socket.get()), "");
  ASSERT_EQ(zmq_bind(socket.get(), "tcp://127.0.0.1:*"), 0);
  EXPECT_THAT(LastEndpoint(socket.get()), ::testing::StartsWith("tcp://127.0.0.1:"));
}

}  // namespace
}  // namespace slimps
