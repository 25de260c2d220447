// SPDX-License-Identifier: Apache-2.0
// A transport that serves CURVE to the holders of two keys, "worker 0" and "worker 1".
#ifndef SLIMPS_TESTS_PROTO_NET_ZMQ_CURVE_CURVE_FIXTURE_H_
#define SLIMPS_TESTS_PROTO_NET_ZMQ_CURVE_CURVE_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/net/identity/allowed_keys.h"
#include "proto/net/zmq/curve/zmq_curve.h"
#include "proto/net/zmq/zmq_transport.h"
#include "tests/proto/net/net_messages.h"
#include "tests/proto/net/recording_sink.h"

namespace slimps {

// A secret key for tests; another `number` is another key.
inline std::string TestKey(char number) { return std::string(31, 'k') + number; }

// The public key of TestKey(number).
inline std::string TestPublicKey(char number) { return PublicKeyOf(TestKey(number)).value(); }

// `address` with the public key of TestKey(number).
inline std::string KeyedAddress(const std::string& address, char number) {
  return absl::StrCat("tcp://", absl::BytesToHexString(TestPublicKey(number)), "@",
                      address.substr(address.find("//") + 2));
}

inline ZmqTransportOptions WithSecret(char number) {
  ZmqTransportOptions options;
  options.secret_key = TestKey(number);
  return options;
}

class CurveFixture : public testing::Test {
 protected:
  static constexpr char kServer = 's', kWorker0 = '0', kWorker1 = '1', kStranger = 'x';

  // A transport with a sink of its own, and one connection.
  struct Client {
    explicit Client(const ZmqTransportOptions& options) : transport(options) {
      EXPECT_TRUE(transport.Start(&sink).ok());
    }
    // Connects and sends a message with this number.
    void Say(const std::string& address, uint64_t number) {
      if (peer == PeerId{}) peer = *transport.Connect(address);
      EXPECT_TRUE(transport.Send(peer, Numbered(number)).ok());
    }

    RecordingSink sink;
    PeerId peer{};
    ZmqTransport transport;
  };

  CurveFixture() {
    options_ = WithSecret(kServer);
    options_.allowed_keys = allowed_;
    AllowBoth();
  }
  ~CurveFixture() override {
    if (server_ != nullptr) server_->Stop();
  }

  void AllowBoth() {
    allowed_->Set({{TestPublicKey(kWorker0), "worker 0"}, {TestPublicKey(kWorker1), "worker 1"}});
  }

  void Serve() {
    server_ = std::make_unique<ZmqTransport>(options_);
    plain_address_ = *server_->Bind("tcp://127.0.0.1:0");
    address_ = KeyedAddress(plain_address_, kServer);
    ASSERT_TRUE(server_->Start(&sink_).ok());
  }

  // Fails the test unless worker 0 gets a message through, as the only one after `before` others.
  void ExpectWorker0IsHeard(size_t before = 0) {
    Client worker(WithSecret(kWorker0));
    worker.Say(address_, 4711);
    ASSERT_TRUE(sink_.WaitForMessages(before + 1));
    EXPECT_EQ(sink_.received().size(), before + 1);
    EXPECT_EQ(sink_.received()[before].message.header.request_id(), 4711u);
    EXPECT_EQ(sink_.received()[before].message.user_id, "worker 0");
  }

  const std::shared_ptr<AllowedKeys> allowed_ = std::make_shared<AllowedKeys>();
  ZmqTransportOptions options_;
  RecordingSink sink_;
  std::unique_ptr<ZmqTransport> server_;
  std::string plain_address_, address_;  // without and with the key
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_NET_ZMQ_CURVE_CURVE_FIXTURE_H_
