// SPDX-License-Identifier: Apache-2.0
// Payloads shared between real processes. The tests kill either one with SIGKILL.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "proto/net/local_sockets.h"
#include "proto/net/shared/shared_memory.h"
#include "proto/net/zmq/same_host.h"
#include "proto/net/zmq/zmq_transport.h"
#include "tests/proto/base/wait_until.h"
#include "tests/proto/net/net_messages.h"
#include "tests/proto/net/recording_sink.h"
#include "tests/proto/net/shared/sharing_test_util.h"

namespace slimps {
namespace {

constexpr size_t kPayloadBytes = size_t{1} << 20;

class PeerProcess {
 public:
  explicit PeerProcess(const std::vector<std::string>& arguments) {
    // Prepared before the fork: the forked child of a process with threads may do little before
    // execv.
    std::vector<char*> words = {const_cast<char*>("tests/proto/net/zmq/sharing_peer")};
    for (const std::string& argument : arguments) {
      words.push_back(const_cast<char*>(argument.c_str()));
    }
    words.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    execv(words[0], words.data());
    _exit(127);
  }
  ~PeerProcess() { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

class SharingProcessTest : public testing::Test {
 protected:
  SharingProcessTest() {
    ZmqTransportOptions options;
    options.shared_memory = &memory_;
    server_ = std::make_unique<ZmqTransport>(options);
    address_ = *server_->Bind(*UnusedLocalAddress());
    EXPECT_TRUE(server_->Start(&sink_).ok());
  }
  ~SharingProcessTest() override { server_->Stop(); }

  SharedMemory memory_;
  RecordingSink sink_;
  std::unique_ptr<ZmqTransport> server_;
  std::string address_;
};

TEST_F(SharingProcessTest, AKilledBorrowerGivesTheMemoryBack) {
  PeerProcess peer({address_, "hold"});
  ASSERT_TRUE(sink_.WaitForMessages(1));
  const PeerId to = sink_.received()[0].from;
  for (size_t sent = 1; server_->stats().bytes_lent < 8 * kPayloadBytes; ++sent) {
    ASSERT_TRUE(server_->Send(to, SharedPush(&memory_, sent, kPayloadBytes)).ok());
    ASSERT_TRUE(sink_.WaitForMessages(1 + sent));
  }
  EXPECT_EQ(sink_.received().back().message.header.request_id(), 8 * kPayloadBytes);
  EXPECT_EQ(memory_.stats().bytes_in_use, 8 * kPayloadBytes);  // the peer keeps them all
  peer.Kill();
  EXPECT_TRUE(WaitUntil([&] { return memory_.stats().bytes_in_use == 0; }));
}

TEST_F(SharingProcessTest, WhatAKilledLenderLentStaysReadable) {
  constexpr uint64_t kCount = 8;
  PeerProcess peer({address_, "lend", std::to_string(kCount)});
  const auto is_done = [&] {
    const auto received = sink_.received();
    return !received.empty() && received.back().message.header.has_heartbeat();
  };
  ASSERT_TRUE(WaitUntil(is_done));
  EXPECT_GE(server_->stats().bytes_borrowed, kCount * kPayloadBytes);
  peer.Kill();
  const auto received = sink_.received();
  for (size_t i = 0; i < received.size() - 1; ++i) {
    const Message& message = received[i].message;
    EXPECT_TRUE(IsPayloadOf(message.payloads.at(0), message.header.request_id())) << i;
  }
  EXPECT_EQ(server_->stats().bad_frames, 0u);
}

TEST_F(SharingProcessTest, ASuccessorOfAKilledProcessIsLentToAgain) {
  for (int life = 0; life < 2; ++life) {
    const size_t before = sink_.received().size();
    const uint64_t lent = server_->stats().bytes_lent;
    PeerProcess peer({address_, "hold"});
    ASSERT_TRUE(sink_.WaitForMessages(before + 1));
    const PeerId to = sink_.received().back().from;
    for (size_t sent = 1; server_->stats().bytes_lent == lent; ++sent) {
      ASSERT_TRUE(server_->Send(to, SharedPush(&memory_, sent, kPayloadBytes)).ok());
      ASSERT_TRUE(sink_.WaitForMessages(before + 1 + sent));
    }
  }
  EXPECT_TRUE(WaitUntil([&] { return memory_.stats().bytes_in_use == 0; }));
}

}  // namespace
}  // namespace slimps
