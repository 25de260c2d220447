// SPDX-License-Identifier: Apache-2.0
// A peer that connects is a stranger until the sink admits it. The sink is told when a connection
// breaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "proto/net/zmq/zmq_transport.h"
#include "tests/proto/net/net_messages.h"
#include "tests/proto/net/recording_sink.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;

constexpr size_t kMuch = size_t{1} << 20;

class ZmqStrangersTest : public testing::Test {
 protected:
  void SetUp() override {
    ZmqTransportOptions options;
    options.strangers.emplace();
    server_ = std::make_unique<ZmqTransport>(options);
    address_ = *server_->Bind("tcp://127.0.0.1:0");
    // A heartbeat with this number serves as the greeting.
    server_sink_.on_message = [this](PeerId from, const Message& message) {
      if (message.header.heartbeat().sequence() == 4711) server_->Admit(from);
    };
    ASSERT_TRUE(server_->Start(&server_sink_).ok());
    ASSERT_TRUE(client_.Start(&client_sink_).ok());
    peer_ = *client_.Connect(address_);
  }
  void TearDown() override {
    client_.Stop();
    server_->Stop();
  }

  RecordingSink server_sink_, client_sink_;
  std::unique_ptr<ZmqTransport> server_;
  std::string address_;
  ZmqTransport client_{ZmqTransportOptions{}};
  PeerId peer_{};
};

TEST_F(ZmqStrangersTest, WhoSaysMuchBeforeItIsKnownIsClosedAndComesBack) {
  ASSERT_TRUE(client_.Send(peer_, NumberedPush(1, kMuch)).ok());
  EXPECT_TRUE(server_sink_.WaitForBadFrames(1));
  EXPECT_TRUE(client_sink_.WaitForLost(1));
  EXPECT_EQ(client_sink_.lost()[0], peer_);
  // A message may be lost with the old connection until the new one stands: senders repeat it.
  bool arrived = false;
  for (int i = 0; i < 30 && !arrived; ++i) {
    ASSERT_TRUE(client_.Send(peer_, Numbered(2)).ok());
    arrived = server_sink_.WaitForMessages(1, absl::Seconds(1));
  }
  ASSERT_TRUE(arrived);
  EXPECT_EQ(server_sink_.received()[0].message.header.request_id(), 2u);
}

TEST_F(ZmqStrangersTest, WhoIsAdmittedSaysWhatItLikes) {
  ASSERT_TRUE(client_.Send(peer_, Numbered(4711)).ok());
  // What comes before the greeting was read counts as a stranger's.
  ASSERT_TRUE(server_sink_.WaitForMessages(1));
  for (uint64_t number = 1; number <= 8; ++number) {
    ASSERT_TRUE(client_.Send(peer_, NumberedPush(number, kMuch)).ok());
  }
  EXPECT_TRUE(server_sink_.WaitForMessages(9));
  EXPECT_TRUE(server_sink_.bad_frames().empty());
  EXPECT_TRUE(client_sink_.lost().empty());
}

TEST_F(ZmqStrangersTest, TheEndOfAConnectionIsToldOfWhoWasAdmitted) {
  ZmqTransport stranger{ZmqTransportOptions{}};
  RecordingSink stranger_sink;
  ASSERT_TRUE(stranger.Start(&stranger_sink).ok());
  ASSERT_TRUE(stranger.Send(*stranger.Connect(address_), Numbered(1)).ok());
  ASSERT_TRUE(server_sink_.WaitForMessages(1));
  stranger.Stop();
  ASSERT_TRUE(client_.Send(peer_, Numbered(4711)).ok());
  ASSERT_TRUE(server_sink_.WaitForMessages(2));
  client_.Stop();
  ASSERT_TRUE(server_sink_.WaitForLost(1));
  EXPECT_THAT(server_sink_.lost(), ElementsAre(server_sink_.received()[1].from));
}

TEST_F(ZmqStrangersTest, AConnectionThatBreaksIsTold) {
  ASSERT_TRUE(client_.Send(peer_, Numbered(1)).ok());
  ASSERT_TRUE(server_sink_.WaitForMessages(1));
  server_->Stop();
  EXPECT_TRUE(client_sink_.WaitForLost(1));
  EXPECT_EQ(client_sink_.lost()[0], peer_);
}

}  // namespace
}  // namespace slimps
