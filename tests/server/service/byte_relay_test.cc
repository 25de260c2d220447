// SPDX-License-Identifier: Apache-2.0
#include "server/service/byte_relay.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/status_proto.h"

namespace slimps {
namespace {

constexpr uint64_t kBroadcast = 77;

Payload Bytes(const std::string& text) {
  return Payload::Copy(std::as_bytes(std::span<const char>(text)));
}

class ByteRelayTest : public ::testing::Test {
 protected:
  // Each message has a request id of its own, and comes from the peer of its worker's number.
  std::vector<Reply> Send(uint32_t worker, const wire::Relay& request, Payload payload = {}) {
    return relay_.Handle({.peer = PeerId{worker}, .worker = worker, .request_id = ++request_},
                         request, std::move(payload));
  }
  std::vector<Reply> Give(uint64_t chunk, const std::string& text, uint32_t takers = 2,
                          uint64_t broadcast = kBroadcast) {
    wire::Relay request;
    request.set_broadcast(broadcast);
    request.set_chunk(chunk);
    request.set_takers(takers);
    request.set_payload_bytes(text.size());
    return Send(0, request, Bytes(text));
  }
  std::vector<Reply> Ask(uint32_t worker, uint64_t chunk, uint64_t broadcast = kBroadcast) {
    wire::Relay request;
    request.set_broadcast(broadcast);
    request.set_chunk(chunk);
    return Send(worker, request);
  }
  std::vector<Reply> End(uint32_t worker) {
    wire::Relay request;
    request.set_broadcast(kBroadcast);
    request.set_end(true);
    return Send(worker, request);
  }

  // Returns who is told what, as "2: bytes" or "0: ack", in the order of the replies.
  static std::string Told(const std::vector<Reply>& replies) {
    std::string told;
    for (const Reply& reply : replies) {
      if (!told.empty()) told += ", ";
      told += std::to_string(static_cast<uint64_t>(reply.to)) + ": ";
      if (reply.message.header.has_ack()) {
        const absl::Status status = FromStatusProto(reply.message.header.ack().status());
        told += status.ok() ? "ack" : std::string(absl::StatusCodeToString(status.code()));
      } else {
        const auto bytes = reply.message.payloads.at(0).bytes();
        told += std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
    }
    return told;
  }

  ByteRelay relay_;
  uint64_t request_ = 0;
};

TEST_F(ByteRelayTest, AChunkIsForgottenOnceAllTakersHaveIt) {
  EXPECT_EQ(Told(Ask(1, 0)), "") << "it waits for the chunk";
  EXPECT_EQ(Told(Give(0, "first")), "1: first");
  EXPECT_EQ(Told(Ask(2, 0)), "2: first");
  EXPECT_EQ(Told(Ask(1, 1)), "");
  EXPECT_EQ(Told(Ask(2, 1)), "0: ack");
  EXPECT_EQ(Told(Ask(3, 0)), "") << "it is forgotten";
  EXPECT_EQ(Told(Give(1, "second")), "1: second, 2: second");
  EXPECT_EQ(Told(End(1)), "");
  EXPECT_EQ(Told(End(2)), "1: ack, 2: ack, 0: ack");
}

TEST_F(ByteRelayTest, ALostAnswerIsGivenAgain) {
  Give(0, "first", 1);
  EXPECT_EQ(Told(Ask(1, 0)), "1: first");
  EXPECT_EQ(Told(Ask(1, 0)), "1: first");
  EXPECT_EQ(Told(Ask(1, 1)), "0: ack");
  EXPECT_EQ(Told(Give(0, "first", 1)), "0: ack") << "all have it";
  EXPECT_EQ(Told(End(1)), "1: ack");
  EXPECT_EQ(Told(End(1)), "1: ack");
}

TEST_F(ByteRelayTest, WhatALaterMessageHasOvertakenIsDropped) {
  Give(0, "first", 1);
  Ask(1, 1);
  Give(1, "second", 1);
  EXPECT_EQ(Told(Ask(1, 0)), "");
  EXPECT_EQ(Told(Give(0, "first", 1)), "");
  EXPECT_EQ(Told(End(1)), "1: ack, 0: ack");
  EXPECT_EQ(Told(Ask(1, 1)), "");
}

TEST_F(ByteRelayTest, AServerThatWasStartedAgainLearnsWhoHasAChunk) {
  EXPECT_EQ(Told(Ask(1, 1)), "") << "it had chunk 0 of the server's former process";
  EXPECT_EQ(Told(Give(0, "first")), "");
  EXPECT_EQ(Told(Ask(2, 0)), "2: first");
  EXPECT_EQ(Told(Ask(2, 1)), "0: ack");
}

// Once an end was answered at once. The server that was started again did not know of it, and
// worker 0 waited in vain.
TEST_F(ByteRelayTest, AServerThatWasStartedAgainLearnsWhoHasEnded) {
  Give(0, "last");
  Ask(1, 0);
  EXPECT_EQ(Told(End(1)), "") << "worker 2 lacks the chunk";
  relay_ = ByteRelay();
  EXPECT_EQ(Told(Give(0, "last")), "");
  EXPECT_EQ(Told(End(1)), "");
  EXPECT_EQ(Told(Ask(2, 0)), "2: last");
  EXPECT_EQ(Told(End(2)), "1: ack, 2: ack, 0: ack");
}

TEST_F(ByteRelayTest, AnEndIsAnsweredWhereWorkerZeroMayHaveGoneOn) {
  EXPECT_EQ(Told(End(1)), "1: ack");
  EXPECT_EQ(Told(Give(0, "last")), "") << "it has not";
  EXPECT_EQ(Told(Ask(2, 0)), "2: last");
  EXPECT_EQ(Told(End(2)), "2: ack, 0: ack");
}

TEST_F(ByteRelayTest, AnotherBroadcastTakesThePlaceOfOneThatWasGivenUp) {
  Give(4, "old");
  Ask(1, 4);
  EXPECT_EQ(Told(Ask(1, 0, 78)), "");
  EXPECT_EQ(Told(Give(0, "new", 1, 78)), "1: new");
  EXPECT_EQ(Told(Ask(1, 1, 78)), "0: ack");
}

TEST_F(ByteRelayTest, OnlyWorkerZeroGivesAndOnlyOthersAsk) {
  wire::Relay request;
  EXPECT_EQ(Told(Send(1, request, Bytes("bytes"))), "1: PERMISSION_DENIED");
  EXPECT_EQ(Told(Send(0, request)), "0: INVALID_ARGUMENT");
  EXPECT_EQ(Told(Give(0, "bytes", 0)), "0: INVALID_ARGUMENT");
}

}  // namespace
}  // namespace slimps
