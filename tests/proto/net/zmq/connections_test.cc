// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/connections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "proto/base/log_rate.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ConnectionsTest : public testing::Test {
 protected:
  std::vector<int> TakeExcess() {
    std::vector<int> fds;
    why_.clear();
    for (const Connections::Excess& excess : connections_.TakeExcess([this](int fd) {
           const auto found = arrived_.find(fd);
           return found == arrived_.end() ? std::nullopt : std::optional(found->second);
         })) {
      fds.push_back(excess.fd);
      why_ = excess.why;
    }
    return fds;
  }

  Connections connections_{{.max_message_bytes = 10'000, .max_connections = 3}};
  std::map<int, uint64_t> arrived_;
  std::string why_;
};

TEST_F(ConnectionsTest, AMessageThatDoesNotEndIsTooMuch) {
  connections_.Accepted(5);
  arrived_[5] = 10'000;
  EXPECT_THAT(TakeExcess(), IsEmpty());
  arrived_[5] = 20'000;
  EXPECT_THAT(TakeExcess(), ElementsAre(5));
  EXPECT_THAT(why_, HasSubstr("without end"));
  EXPECT_THAT(TakeExcess(), IsEmpty()) << "each is named once";
}

TEST_F(ConnectionsTest, WhatHasComeOutIsNotHeld) {
  connections_.Accepted(5);
  for (int i = 1; i <= 100; ++i) {
    arrived_[5] += 9'000;
    connections_.Received(5, PeerId{1}, 9'000);
    EXPECT_THAT(TakeExcess(), IsEmpty());
  }
}

TEST_F(ConnectionsTest, WhoIsAdmittedMaySendAsMuchAsItLikes) {
  connections_.Accepted(5);
  EXPECT_TRUE(connections_.HasStrangers());
  connections_.Admit(5);
  EXPECT_FALSE(connections_.HasStrangers());
  arrived_[5] = 1 << 30;
  EXPECT_THAT(TakeExcess(), IsEmpty());
}

TEST_F(ConnectionsTest, TheOldestOfTooManyStrangersGo) {
  for (int fd = 10; fd > 5; --fd) connections_.Accepted(fd);
  connections_.Admit(8);
  EXPECT_THAT(TakeExcess(), ElementsAre(10));
  connections_.Accepted(11);
  EXPECT_THAT(TakeExcess(), ElementsAre(9));
}

TEST_F(ConnectionsTest, ADescriptorThatIsUsedAgainIsAnotherConnection) {
  connections_.Accepted(5);
  connections_.Received(5, PeerId{1}, 100);
  const uint64_t number = connections_.NumberOf(5);
  const std::optional<Connections::Ended> stranger = connections_.Closed(5);
  ASSERT_TRUE(stranger.has_value());
  EXPECT_EQ(stranger->peer, PeerId{1});
  EXPECT_FALSE(stranger->admitted);
  EXPECT_FALSE(connections_.Knows(5));
  connections_.Accepted(5);
  EXPECT_NE(connections_.NumberOf(5), number);
  connections_.Received(5, PeerId{2}, 100);
  connections_.Admit(5);
  const std::optional<Connections::Ended> member = connections_.Closed(5);
  ASSERT_TRUE(member.has_value());
  EXPECT_EQ(member->peer, PeerId{2});
  EXPECT_TRUE(member->admitted);
  connections_.Accepted(5);
  EXPECT_FALSE(connections_.Closed(5).has_value()) << "nothing came from it";
}

TEST(LogRate, LinesBeyondTenAnIntervalAreCounted) {
  LogRate<int64_t> rate(100);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(rate.Take(i), 0u);
  for (int i = 10; i < 100; ++i) EXPECT_FALSE(rate.Take(i).has_value());
  EXPECT_EQ(rate.Take(100), 90u);
  EXPECT_EQ(rate.Take(101), 0u);
  EXPECT_EQ(LeftOut(0), "");
  EXPECT_EQ(LeftOut(90), " (and 90 lines like it before)");
}

}  // namespace
}  // namespace slimps
