// Memory that runs out at any one allocation while a message is sent: it arrives, or its sender is told that it did not,
// and nothing else is lost with it.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "proto/base/clock.h"
#include "proto/net/retry_tracker.h"
#include "proto/net/send_queue.h"
#include "proto/net/zmq_transport.h"
#include "tests/proto/base/failing_allocations.h"
#include "tests/proto/net/net_messages.h"
#include "tests/proto/net/payload_sharing_fixture.h"
#include "tests/proto/net/recording_sink.h"

namespace slimps {
namespace {

TEST(SendQueueOutOfMemory, AMessageIsQueuedOrNot) {
  for (const size_t already : {0u, 3u}) {
    bool pushed = false;
    for (int n = 0; !pushed; ++n) {
      SendQueue queue{TransportOptions{}};
      queue.AddPeer(kPeer);
      for (size_t i = 0; i < already; ++i) {
        ASSERT_TRUE(queue.Push({.to = kPeer, .bytes = 1}).ok());
      }
      // Ahead of the others: it takes the first one's place in the list.
      Outgoing message{.to = kPeer, .bytes = 100, .priority = 7};
      const bool ran_out = RunsOut(n, [&] { pushed = queue.Push(std::move(message)).ok(); });
      EXPECT_NE(ran_out, pushed) << n;
      size_t bytes = 0;
      while (const std::optional<Outgoing> next = queue.Pop(SteadyTime())) bytes += next->bytes;
      EXPECT_EQ(bytes, already + (pushed ? 100 : 0)) << n;
      EXPECT_TRUE(queue.empty()) << n;
    }
  }
}

TEST(SendQueueOutOfMemory, TakingAMessageNeedsNone) {
  SendQueue queue{TransportOptions{}};
  queue.AddPeer(kPeer);
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(queue.Push({.to = kPeer, .bytes = 1}).ok());
  EXPECT_FALSE(RunsOut(0, [&] {
    while (queue.Pop(SteadyTime())) {
    }
  }));
  EXPECT_TRUE(queue.empty());
}

TEST(RetryTrackerOutOfMemory, AnItemIsTrackedOrNotAndPostponingItNeedsNone) {
  const SteadyTime start = SteadyTime(), deadline = start + absl::Hours(1);
  bool added = false;
  for (int n = 0; !added; ++n) {
    RetryTracker tracker;
    ASSERT_TRUE(tracker.Add(1, 10, deadline, start).ok());
    const bool ran_out = RunsOut(n, [&] { added = tracker.Add(2, 100, deadline, start).ok(); });
    EXPECT_NE(ran_out, added) << n;
    EXPECT_EQ(tracker.items_in_flight(), added ? 2u : 1u) << n;
    EXPECT_EQ(tracker.bytes_in_flight(), added ? 110u : 10u) << n;
    EXPECT_FALSE(RunsOut(0, [&] { tracker.Postpone(1, start + absl::Minutes(1)); }));
    EXPECT_EQ(tracker.TakeDue(start + absl::Minutes(2)).resend.size(), added ? 2u : 1u) << n;
    EXPECT_EQ(tracker.TakeDue(deadline).expired.size(), added ? 2u : 1u) << n;
    EXPECT_EQ(tracker.bytes_in_flight(), 0u) << n;
  }
}

using SharingOutOfMemory = PayloadSharingTest;

TEST_F(SharingOutOfMemory, AFrameIsLentWholeOrNotAtAll) {
  Message message = SharedPush(&memory_, 1, kLarge);
  for (uint64_t number = 2; number <= 4; ++number) {
    Message more = SharedPush(&memory_, number, kLarge);
    *message.header.mutable_push()->add_items() = more.header.push().items(0);
    message.payloads.push_back(more.payloads[0]);
  }
  const Frame frame = BuildFrame(std::move(message), kDefaultLimits).value();
  bool lent = false;
  for (int n = 0; !lent; ++n) {
    Agree();
    std::optional<PayloadSharing::Loan> loan;
    const bool ran_out = RunsOut(n, [&] { loan = lender_->Lend(kPeer, frame); });
    lent = loan.has_value();
    EXPECT_NE(ran_out, lent) << n;
    EXPECT_EQ(lender_->lends(), lent) << n;
  }
}

// A client and a server, with messages of several payloads.
class TransportOutOfMemory : public testing::Test {
 protected:
  static constexpr uint64_t kLast = 1 << 30;

  TransportOutOfMemory() {
    client_sink_.on_message = server_sink_.on_message = [this](PeerId, const Message& message) {
      if (message.header.request_id() == kLast) last_.set_value();
    };
    address_ = *server_.Bind("tcp://127.0.0.1:0");
    EXPECT_TRUE(server_.Start(&server_sink_).ok());
    EXPECT_TRUE(client_.Start(&client_sink_).ok());
    to_server_ = *client_.Connect(address_);
    EXPECT_TRUE(client_.Send(to_server_, Numbered(1)).ok());
    EXPECT_TRUE(server_sink_.WaitForMessages(1));
    to_client_ = server_sink_.received()[0].from;
  }

  static Message Pushes(uint64_t number) {
    Message message = NumberedPush(number, 64);
    for (int i = 1; i < 4; ++i) {
      Message more = NumberedPush(number, 64);
      *message.header.mutable_push()->add_items() = more.header.push().items(0);
      message.payloads.push_back(more.payloads[0]);
    }
    return message;
  }

  // Sends through `from`, whose `from_sink` hears what becomes of it, until its memory has run out both before a message
  // was queued and while it was handed over.
  void SendAll(ZmqTransport& from, PeerId to, const RecordingSink& from_sink,
               const RecordingSink& to_sink) {
    uint64_t number = 100, refused = 0;
    std::set<uint64_t> accepted;
    const SteadyTime deadline = MachineClock()->Now() + absl::Seconds(60);
    while (refused == 0 || from_sink.undeliverable().size() < 10) {
      ASSERT_LT(MachineClock()->Now(), deadline)
          << refused << ", " << from_sink.undeliverable().size();
      for (int n = 0; n < 60; ++n) {
        absl::SleepFor(absl::Microseconds(300));  // most likely the I/O thread sleeps then
        Message message = Pushes(++number);
        absl::Status sent = absl::UnknownError("thrown");
        RunsOut(n, [&] { sent = from.Send(to, std::move(message), {.may_hand_over_here = true}); });
        if (sent.ok()) {
          accepted.insert(number);
        } else {
          EXPECT_EQ(sent.code(), absl::StatusCode::kResourceExhausted) << sent;
          ++refused;
        }
      }
    }
    // What follows is not taken for the rest of one that broke off.
    ASSERT_TRUE(from.Send(to, Pushes(kLast)).ok());
    ASSERT_EQ(last_.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
    std::set<uint64_t> arrived;
    for (const auto& received : to_sink.received()) {
      arrived.insert(received.message.header.request_id());
    }
    size_t missing = 0;
    for (const uint64_t one : accepted) missing += 1 - arrived.count(one);
    EXPECT_LE(missing, from_sink.undeliverable().size());
    EXPECT_GT(missing, 0u);
  }

  std::promise<void> last_;  // has arrived
  std::string address_;
  RecordingSink client_sink_, server_sink_;
  ZmqTransport server_{ZmqTransportOptions{}}, client_{ZmqTransportOptions{}};
  PeerId to_server_{}, to_client_{};
};

TEST_F(TransportOutOfMemory, AConnectionLosesNothingInSilence) {
  SendAll(client_, to_server_, client_sink_, server_sink_);
}

TEST_F(TransportOutOfMemory, ABoundAddressLosesNothingInSilence) {
  SendAll(server_, to_client_, server_sink_, client_sink_);
}

}  // namespace
}  // namespace slimps
