// SPDX-License-Identifier: Apache-2.0
// A signal's handler runs during a call of ZeroMQ. The caller must repeat the call, and must not
// blame the peer.
//
// These tests replace ZeroMQ's calls by ones that fail with EINTR a given number of times first.
#include <dlfcn.h>
#include <errno.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "proto/net/zmq/zmq_socket.h"

namespace {

std::atomic<int> interruptions{0};

bool IsInterrupted() {
  if (interruptions.load() <= 0) return false;
  --interruptions;
  errno = EINTR;
  return true;
}

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int zmq_send(void* socket, const void* data, size_t size, int flags) {
  return IsInterrupted() ? -1 : Real<decltype(zmq_send)>("zmq_send")(socket, data, size, flags);
}

int zmq_msg_send(zmq_msg_t* message, void* socket, int flags) {
  return IsInterrupted() ? -1
                         : Real<decltype(zmq_msg_send)>("zmq_msg_send")(message, socket, flags);
}

int zmq_msg_recv(zmq_msg_t* message, void* socket, int flags) {
  return IsInterrupted() ? -1
                         : Real<decltype(zmq_msg_recv)>("zmq_msg_recv")(message, socket, flags);
}

int zmq_getsockopt(void* socket, int option, void* value, size_t* size) {
  return IsInterrupted()
             ? -1
             : Real<decltype(zmq_getsockopt)>("zmq_getsockopt")(socket, option, value, size);
}

}  // extern "C"

namespace slimps {
namespace {

class InterruptedTest : public testing::Test {
 protected:
  InterruptedTest() {
    interruptions = 0;
    zmq_setsockopt(router_.get(), ZMQ_LINGER, "\0\0\0", 4);
    EXPECT_EQ(zmq_bind(router_.get(), "inproc://here"), 0);
    EXPECT_EQ(zmq_setsockopt(dealer_.get(), ZMQ_ROUTING_ID, "peer", 4), 0);
    EXPECT_EQ(zmq_connect(dealer_.get(), "inproc://here"), 0);
    EXPECT_EQ(Send(dealer_.get(), "", {"hello"}), SendResult::kSent);
    EXPECT_EQ(Receive(router_.get()), "peer|hello");
  }
  ~InterruptedTest() override { interruptions = 0; }

  static SendResult Send(void* socket, const std::string& routing_id,
                         const std::vector<std::string>& parts) {
    std::vector<Payload> payloads;
    for (const std::string& part : parts) {
      payloads.push_back(Payload::Copy(std::as_bytes(std::span(part))));
    }
    return SendParts(socket, routing_id, payloads, nullptr);
  }

  // Receives a message and returns its parts, joined by bars.
  static std::string Receive(void* socket) {
    std::string text;
    for (bool more = true; more;) {
      ZmqPart part;
      if (!part.Receive(socket)) return text + "...";
      more = part.more();
      text += std::string(reinterpret_cast<const char*>(part.bytes().data()), part.bytes().size());
      if (more) text += "|";
    }
    return text;
  }

  ZmqContext context_{zmq_ctx_new()};
  ZmqSocket router_{zmq_socket(context_.get(), ZMQ_ROUTER)};
  ZmqSocket dealer_{zmq_socket(context_.get(), ZMQ_DEALER)};
};

TEST_F(InterruptedTest, APeerIsNotTakenForGone) {
  interruptions = 3;
  EXPECT_EQ(Send(router_.get(), "peer", {"one", "two"}), SendResult::kSent);
  EXPECT_EQ(interruptions, 0);
  EXPECT_EQ(Receive(dealer_.get()), "one|two");
}

TEST_F(InterruptedTest, AMessageIsReceivedWhole) {
  ASSERT_EQ(Send(dealer_.get(), "", {"one", "two", "three"}), SendResult::kSent);
  interruptions = 5;
  EXPECT_EQ(Receive(router_.get()), "peer|one|two|three");
  EXPECT_EQ(interruptions, 0);
}

TEST_F(InterruptedTest, WhatCanBeReadIsNotOverlooked) {
  ASSERT_EQ(Send(dealer_.get(), "", {"one"}), SendResult::kSent);
  interruptions = 2;
  EXPECT_NE(Events(router_.get()) & ZMQ_POLLIN, 0);
}

}  // namespace
}  // namespace slimps
