// SPDX-License-Identifier: Apache-2.0
// The service behind a real transport: frames are built and parsed, payload hashes checked.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/net/testing/in_process_transport.h"
#include "proto/status_proto.h"
#include "server/service/server_service.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;

// Keeps the messages that a worker receives. Thread-safe.
class Mailbox final : public MessageSink {
 public:
  void OnMessage(PeerId, Message message) override {
    MutexLock lock(&mutex_);
    messages_.push_back(std::move(message));
    changed_.NotifyAll();
  }
  void OnBadFrame(PeerId, const absl::Status& why) override { ADD_FAILURE() << why; }
  void OnUndeliverable(PeerId, const absl::Status& why) override { ADD_FAILURE() << why; }

  Message Next() {
    MutexLock lock(&mutex_);
    const bool came = changed_.Await(&mutex_, absl::Seconds(10), [this] { return HasUnread(); });
    return came ? messages_[read_++] : Message();
  }

 private:
  bool HasUnread() const { return read_ < messages_.size(); }

  Mutex mutex_;
  CondVar changed_;
  std::vector<Message> messages_;
  size_t read_ = 0;
};

constexpr uint64_t kIncarnation = 1000;  // of worker 0

// A server and the transport of one process that plays all workers.
class WireTest : public ::testing::Test {
 protected:
  WireTest() {
    ServerOptions options;
    options.num_workers = 2;
    options.shard_threads = 2;
    service_ = std::make_unique<ServerService>(
        &server_,
        [] {
          wire::Header header;
          header.set_protocol_version(kProtocolVersion);
          header.set_job_id("slimps");
          header.mutable_sender()->set_role(wire::SERVER);
          return header;
        },
        options, &clock_);
    wire::Roster roster;
    for (uint32_t rank : {0u, 1u}) {
      wire::RosterEntry* entry = roster.add_nodes();
      entry->mutable_node()->set_role(wire::WORKER);
      entry->mutable_node()->set_rank(rank);
      entry->set_incarnation(kIncarnation + rank);
    }
    service_->SetRoster(roster);  // before the I/O thread runs
    const std::string address = server_.Bind("inproc://*").value();
    EXPECT_TRUE(server_.Start(service_.get()).ok());
    EXPECT_TRUE(worker_.Start(&mailbox_).ok());
    peer_ = worker_.Connect(address).value();
  }
  ~WireTest() override {
    service_->Stop();
    server_.Stop();
    worker_.Stop();
  }

  static Message From(uint32_t worker) {
    Message message;
    message.header.set_job_id("slimps");
    message.header.mutable_sender()->set_role(wire::WORKER);
    message.header.mutable_sender()->set_rank(worker);
    message.header.set_incarnation(kIncarnation + worker);
    return message;
  }
  Message Ask(Message message) {
    EXPECT_TRUE(worker_.Send(peer_, std::move(message)).ok());
    return mailbox_.Next();
  }

  RealClock clock_;
  Mailbox mailbox_;
  std::shared_ptr<InProcessNetwork> network_ = std::make_shared<InProcessNetwork>();
  InProcessTransport server_{network_, TransportOptions{}};
  InProcessTransport worker_{network_, TransportOptions{}};
  std::unique_ptr<ServerService> service_;
  PeerId peer_{};
};

TEST_F(WireTest, RoundsGoRoundOverFrames) {
  Message init = From(0);
  AddInit(&init, {.values = {0, 0}});
  ASSERT_EQ(Ask(std::move(init)).header.init_reply().items_size(), 1);
  for (uint64_t round = 1; round <= 20; ++round) {
    for (const uint32_t worker : {0u, 1u}) {
      Message push = From(worker);
      AddPush(&push, {.round = round,
                      .values = {static_cast<float>(round), static_cast<float>(worker)},
                      .ticket = round});
      const Message reply = Ask(std::move(push));
      ASSERT_EQ(reply.header.push_reply().items_size(), 1);
      ASSERT_EQ(reply.header.push_reply().items(0).status().code(), 0);
    }
    Message pull = From(1);
    AddPull(&pull, {.min_version = round, .elements = 2, .timeout_ms = 10000, .ticket = round});
    const Message reply = Ask(std::move(pull));
    ASSERT_EQ(reply.payloads.size(), 1);
    EXPECT_THAT(Floats(reply.payloads[0]), ElementsAre(2 * static_cast<float>(round), 1));
  }
}

TEST_F(WireTest, PulledWeightsAreNotOverwrittenByLaterRounds) {
  Message init = From(0);
  const std::vector<float> initial(5000, 1.0f);
  AddInit(&init, {.values = initial});
  Ask(std::move(init));
  std::vector<Message> held;
  for (uint64_t round = 1; round <= 6; ++round) {
    const std::vector<float> gradient(5000, static_cast<float>(round));
    for (const uint32_t worker : {0u, 1u}) {
      Message push = From(worker);
      AddPush(&push, {.round = round, .values = gradient, .ticket = round});
      Ask(std::move(push));
    }
    Message pull = From(0);
    AddPull(&pull, {.min_version = round, .elements = 5000, .timeout_ms = 10000, .ticket = round});
    held.push_back(Ask(std::move(pull)));
  }
  for (uint64_t round = 1; round <= 6; ++round) {
    const std::vector<float> expected(5000, 2 * static_cast<float>(round));
    EXPECT_EQ(Floats(held[round - 1].payloads.at(0)), expected);
  }
}

}  // namespace
}  // namespace slimps
