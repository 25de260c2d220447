// SPDX-License-Identifier: Apache-2.0
// Received parts become messages. Payloads, borrowed ones too, go to their places, and nothing is
// read past the end.
#include "proto/net/zmq/zmq_received_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <zmq.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/hash.h"
#include "tests/proto/net/net_messages.h"
#include "tests/proto/net/shared/child_process.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr size_t kLarge = 64 << 10;  // shared without a copy
constexpr size_t kSmall = 400;       // copied

class ReceivedPartsTest : public ::testing::Test {
 protected:
  ReceivedPartsTest()
      : context_(zmq_ctx_new()),
        from_(zmq_socket(context_.get(), ZMQ_PAIR)),
        to_(zmq_socket(context_.get(), ZMQ_PAIR)) {
    EXPECT_EQ(zmq_bind(to_.get(), "inproc://parts"), 0);
    EXPECT_EQ(zmq_connect(from_.get(), "inproc://parts"), 0);
  }

  // Returns what a receiver gets when `parts` are sent.
  ReceivedParts Receive(const std::vector<Payload>& parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::span<const std::byte> bytes = parts[i].bytes();
      const int more = i + 1 < parts.size() ? ZMQ_SNDMORE : 0;
      EXPECT_GE(zmq_send(from_.get(), bytes.data(), bytes.size(), more), 0);
    }
    ReceivedParts received;
    for (size_t i = 0; i < parts.size(); ++i) {
      received.push_back(std::make_shared<ZmqPart>());
      EXPECT_TRUE(received.back()->Receive(to_.get()));
      EXPECT_EQ(received.back()->more(), i + 1 < parts.size());
    }
    return received;
  }

  // Returns a frame of pushes with payloads of these sizes.
  static Frame FrameOf(const std::vector<size_t>& payload_bytes) {
    Message message;
    for (size_t i = 0; i < payload_bytes.size(); ++i) {
      Message one = NumberedPush(i + 1, payload_bytes[i]);
      *message.header.mutable_push()->add_items() = one.header.push().items(0);
      message.payloads.push_back(one.payloads[0]);
    }
    return BuildFrame(std::move(message), kDefaultLimits).value();
  }
  static bool SameBytes(const Payload& a, const Payload& b) {
    return a.size() == b.size() && std::memcmp(a.bytes().data(), b.bytes().data(), a.size()) == 0;
  }

  ZmqContext context_;
  ZmqSocket from_, to_;
};

TEST_F(ReceivedPartsTest, PayloadsComeInTheirOrder) {
  const Frame frame = FrameOf({kSmall, kLarge, 4});
  const auto message = ParseReceived(Receive(frame), {}, kDefaultLimits);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->header.push().items_size(), 3);
  ASSERT_EQ(message->payloads.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(SameBytes(message->payloads[i], frame[i + 1])) << i;
}

TEST_F(ReceivedPartsTest, LargePayloadsAreNotCopiedAndSmallOnesDoNotPinTheirBuffer) {
  ReceivedParts parts = Receive(FrameOf({kSmall, kLarge}));
  const std::byte* const small = parts[1]->bytes().data();
  const std::byte* const large = parts[2]->bytes().data();
  const std::weak_ptr<ZmqPart> small_part = parts[1], large_part = parts[2];
  auto message = ParseReceived(std::move(parts), {}, kDefaultLimits);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_NE(message->payloads[0].bytes().data(), small);
  EXPECT_TRUE(small_part.expired());
  EXPECT_EQ(message->payloads[1].bytes().data(), large);
  EXPECT_FALSE(large_part.expired());
  message->payloads.clear();
  EXPECT_TRUE(large_part.expired());
}

TEST_F(ReceivedPartsTest, BorrowedPayloadsStandWhereTheyHaveTheirPlace) {
  const Frame frame = FrameOf({kSmall, kLarge, 8, kLarge});
  // Tries each of the 16 ways to borrow some of the four payloads.
  for (unsigned ways = 0; ways < 16; ++ways) {
    std::vector<Payload> sent = {frame[0]};
    std::vector<PayloadSharing::Borrowed> borrowed;
    for (size_t i = 0; i < 4; ++i) {
      if ((ways >> i & 1) != 0) {
        borrowed.push_back({.payload = i, .bytes = frame[i + 1]});
      } else {
        sent.push_back(frame[i + 1]);
      }
    }
    const auto message = ParseReceived(Receive(sent), std::move(borrowed), kDefaultLimits);
    ASSERT_TRUE(message.ok()) << ways << ": " << message.status();
    ASSERT_EQ(message->payloads.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(SameBytes(message->payloads[i], frame[i + 1])) << ways << ", payload " << i;
      const bool is_lenders = message->payloads[i].bytes().data() == frame[i + 1].bytes().data();
      EXPECT_EQ(is_lenders, (ways >> i & 1) != 0) << ways << ", payload " << i;
    }
  }
}

TEST_F(ReceivedPartsTest, NoPartsAreNoFrame) {
  const absl::Status status = ParseReceived({}, {}, kDefaultLimits).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("without a header part"));
}

TEST_F(ReceivedPartsTest, AReferenceBehindTheLastPayloadIsRefused) {
  const Frame frame = FrameOf({kSmall, kLarge});
  for (const size_t place : {2u, 3u, 1000u}) {
    const absl::Status status =
        ParseReceived(Receive({frame[0], frame[1]}), {{.payload = place, .bytes = frame[2]}},
                      kDefaultLimits)
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("stands for payload " + std::to_string(place) + ", the frame has 2"));
  }
}

TEST_F(ReceivedPartsTest, ABorrowedPayloadInAnothersPlaceIsFound) {
  const Frame frame = FrameOf({kSmall, kLarge});
  const absl::Status swapped = ParseReceived(Receive({frame[0], frame[1]}),
                                             {{.payload = 0, .bytes = frame[2]}}, kDefaultLimits)
                                   .status();
  EXPECT_EQ(swapped.code(), absl::StatusCode::kDataLoss) << swapped;
}

// Another process keeps writing to a payload that it has lent. The bytes taken must be the bytes
// hashed.
TEST_F(ReceivedPartsTest, WhatWillBeDecodedIsWhatWasHashed) {
  void* const memory =
      mmap(nullptr, kLarge, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const std::span<std::byte> bytes(static_cast<std::byte*>(memory), kLarge);
  const Payload lent(std::make_shared<int>(0), bytes);
  Message message;
  wire::PushItem* item = message.header.mutable_push()->add_items();
  item->set_elements(8 * kLarge);
  item->set_format(wire::LEVELS);
  AttachPayload(item, lent, PayloadHashing::kXxh3, &message);
  const uint64_t hash = item->payload_hash();
  const Frame frame = BuildFrame(std::move(message), kDefaultLimits).value();
  const auto parse = [&] {
    return ParseReceived(Receive({frame[0]}), {{.payload = 0, .bytes = lent}}, kDefaultLimits);
  };
  ASSERT_TRUE(parse().ok());
  const Child writer([&] {
    for (std::byte& byte : bytes) {
      *static_cast<volatile std::byte*>(&byte) = std::byte{1};
      *static_cast<volatile std::byte*>(&byte) = std::byte{0};
    }
  });
  int whole = 0;
  for (int i = 0; i < 20000 && whole < 1000; ++i) {
    const auto parsed = parse();
    if (!parsed.ok()) {
      EXPECT_EQ(parsed.status().code(), absl::StatusCode::kDataLoss) << parsed.status();
      continue;
    }
    ++whole;
    ASSERT_EQ(HashBytes(parsed->payloads[0].bytes()), hash);
  }
  EXPECT_GT(whole, 0);
  munmap(memory, kLarge);
}

TEST_F(ReceivedPartsTest, TooFewAndTooManyPayloadsAreRefused) {
  const Frame frame = FrameOf({kSmall, kSmall});
  EXPECT_FALSE(ParseReceived(Receive({frame[0], frame[1]}), {}, kDefaultLimits).ok());
  EXPECT_FALSE(
      ParseReceived(Receive({frame[0], frame[1], frame[2], frame[2]}), {}, kDefaultLimits).ok());
  EXPECT_FALSE(ParseReceived(Receive({frame[0], frame[1], frame[2]}),
                             {{.payload = 2, .bytes = frame[2]}}, kDefaultLimits)
                   .ok());
}

TEST_F(ReceivedPartsTest, LimitsHoldForBorrowedPayloadsToo) {
  const Frame frame = FrameOf({kLarge});
  Limits limits = kDefaultLimits;
  limits.max_message_bytes = kLarge;
  EXPECT_FALSE(
      ParseReceived(Receive({frame[0]}), {{.payload = 0, .bytes = frame[1]}}, limits).ok());
  EXPECT_TRUE(
      ParseReceived(Receive({frame[0]}), {{.payload = 0, .bytes = frame[1]}}, kDefaultLimits).ok());
}

}  // namespace
}  // namespace slimps
