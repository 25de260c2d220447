// SPDX-License-Identifier: Apache-2.0
// Names of the in-process network, and the bounded inboxes behind them.
#include "proto/net/testing/in_process_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace slimps {
namespace {

using ::testing::HasSubstr;
using Delivery = InProcessInbox::Delivery;

bool IsSignalled(const Wakeup& wakeup) { return wakeup.signalled(); }

Packet PacketOf(size_t bytes, uint64_t number = 0) {
  Packet packet;
  packet.from_inbox = number;
  packet.frame.push_back(Payload::Adopt(AlignedBuffer(bytes), bytes));
  return packet;
}

class InProcessNetworkTest : public ::testing::Test {
 protected:
  std::shared_ptr<Wakeup> owner_ = std::make_shared<Wakeup>();
  std::shared_ptr<Wakeup> sender_ = std::make_shared<Wakeup>();
  InProcessNetwork network_;
  std::shared_ptr<InProcessInbox> inbox_ = network_.OpenInbox(owner_);
};

TEST_F(InProcessNetworkTest, ANameLeadsToItsInboxUntilThatIsClosed) {
  EXPECT_EQ(network_.Find("inproc://server"), nullptr);
  EXPECT_EQ(network_.Bind("inproc://server", inbox_).value(), "inproc://server");
  EXPECT_EQ(network_.Bind("inproc://also", inbox_).value(), "inproc://also");
  EXPECT_EQ(network_.Find("inproc://server"), inbox_);
  network_.CloseInbox(inbox_);
  EXPECT_EQ(network_.Find("inproc://server"), nullptr);
  EXPECT_EQ(network_.Find("inproc://also"), nullptr);
  EXPECT_TRUE(inbox_->closed());
  // Another inbox may serve the name now.
  const auto successor = network_.OpenInbox(owner_);
  EXPECT_NE(successor->id(), inbox_->id());
  EXPECT_TRUE(network_.Bind("inproc://server", successor).ok());
}

TEST_F(InProcessNetworkTest, NamesThatAreUsedOrNoneAreRefusedQuoted) {
  ASSERT_TRUE(network_.Bind("inproc://server", inbox_).ok());
  const auto other = network_.OpenInbox(sender_);
  const absl::Status used = network_.Bind("inproc://server", other).status();
  EXPECT_EQ(used.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(used.message()), HasSubstr("inproc://server: Address already in use"));
  EXPECT_EQ(network_.Find("inproc://server"), inbox_);
  for (const std::string bad : {"", "inproc://", "tcp://127.0.0.1:1", "server"}) {
    const absl::Status status = network_.Bind(bad, other).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr("'" + bad + "' is no address"));
  }
}

TEST_F(InProcessNetworkTest, UnnamedInboxesGetNamesOfTheirOwn) {
  const std::string first = network_.Bind("inproc://*", inbox_).value();
  ASSERT_TRUE(network_.Bind("inproc://unnamed-2", inbox_).ok());
  const auto other = network_.OpenInbox(sender_);
  const std::string second = network_.Bind("inproc://*", other).value();
  EXPECT_NE(first, second);
  EXPECT_EQ(network_.Find(first), inbox_);
  EXPECT_EQ(network_.Find(second), other);
}

TEST_F(InProcessNetworkTest, ANewNameWakesWhoeverMayWaitForIt) {
  const auto waiting = network_.OpenInbox(sender_);
  ASSERT_TRUE(network_.Bind("inproc://server", inbox_).ok());
  EXPECT_TRUE(IsSignalled(*sender_));
  sender_->Clear();
  EXPECT_FALSE(network_.Bind("inproc://server", inbox_).ok());
  EXPECT_FALSE(IsSignalled(*sender_)) << "nothing new";
}

TEST_F(InProcessNetworkTest, PacketsAreTakenInTheirOrder) {
  for (uint64_t number = 1; number <= 3; ++number) {
    EXPECT_EQ(inbox_->Deliver(PacketOf(8, number), sender_), Delivery::kTaken);
    EXPECT_TRUE(IsSignalled(*owner_));
  }
  for (uint64_t number = 1; number <= 3; ++number) {
    const std::optional<Packet> packet = inbox_->Take();
    ASSERT_TRUE(packet.has_value());
    EXPECT_EQ(packet->from_inbox, number);
  }
  EXPECT_FALSE(inbox_->Take().has_value());
}

TEST_F(InProcessNetworkTest, ASlowReceiverHoldsSendersBackByBytesAndTellsThemWhenThereIsRoom) {
  constexpr size_t kHalf = size_t{32} << 20;
  EXPECT_EQ(inbox_->Deliver(PacketOf(3 * kHalf), sender_), Delivery::kTaken)
      << "an empty one takes any size";
  EXPECT_FALSE(inbox_->IsReady());
  EXPECT_EQ(inbox_->Deliver(PacketOf(1), sender_), Delivery::kFull);
  EXPECT_FALSE(IsSignalled(*sender_));
  ASSERT_TRUE(inbox_->Take().has_value());
  EXPECT_TRUE(IsSignalled(*sender_));
  sender_->Clear();
  EXPECT_TRUE(inbox_->IsReady());
  EXPECT_EQ(inbox_->Deliver(PacketOf(kHalf), sender_), Delivery::kTaken);
  EXPECT_EQ(inbox_->Deliver(PacketOf(kHalf), sender_), Delivery::kTaken);
  EXPECT_EQ(inbox_->Deliver(PacketOf(0), sender_), Delivery::kFull);
  inbox_->Take();
  EXPECT_TRUE(IsSignalled(*sender_));
  sender_->Clear();
  inbox_->Take();
  EXPECT_FALSE(IsSignalled(*sender_)) << "told once";
}

TEST_F(InProcessNetworkTest, ASlowReceiverHoldsSendersBackByNumberToo) {
  size_t taken = 0;
  while (inbox_->Deliver(PacketOf(0), sender_) == Delivery::kTaken) {
    ASSERT_LE(++taken, size_t{1} << 16);
  }
  EXPECT_GT(taken, 1u);
  EXPECT_FALSE(inbox_->IsReady());
  inbox_->Take();
  EXPECT_EQ(inbox_->Deliver(PacketOf(0), sender_), Delivery::kTaken);
}

TEST_F(InProcessNetworkTest, AClosedInboxDropsWhatItHasAndLetsSendersGo) {
  while (inbox_->Deliver(PacketOf(size_t{16} << 20), sender_) == Delivery::kTaken) {
  }
  inbox_->Close();
  EXPECT_TRUE(IsSignalled(*sender_)) << "they would wait for ever";
  EXPECT_TRUE(inbox_->IsReady()) << "to say that it is closed";
  EXPECT_FALSE(inbox_->Take().has_value());
  EXPECT_EQ(inbox_->Deliver(PacketOf(1), sender_), Delivery::kClosed);
}

}  // namespace
}  // namespace slimps
