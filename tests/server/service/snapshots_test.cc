// SPDX-License-Identifier: Apache-2.0
// A server that takes snapshots is gone without warning, and another one goes on from them, with
// what the workers send again. Frames are built and parsed.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/base/hash.h"
#include "proto/net/testing/in_process_transport.h"
#include "proto/status_proto.h"
#include "server/service/beginning.h"
#include "server/service/server_service.h"
#include "tests/proto/base/wait_until.h"
#include "tests/server/round/server_test_util.h"
#include "tests/server/saved/snapshot_test_util.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kWorkers = 2;
constexpr uint64_t kIncarnation = 1000;  // of worker 0

// Keeps the messages that the workers receive. Thread-safe.
class Mailbox final : public MessageSink {
 public:
  void OnMessage(PeerId, Message message) override {
    MutexLock lock(&mutex_);
    const uint64_t id = message.header.request_id();
    messages_.emplace(id, std::move(message));
    changed_.NotifyAll();
  }
  void OnBadFrame(PeerId, const absl::Status& why) override { ADD_FAILURE() << why; }
  void OnUndeliverable(PeerId, const absl::Status&) override {}

  // Waits for the first answer to a request.
  Message Await(uint64_t request_id) {
    MutexLock lock(&mutex_);
    const auto here = [&] { return messages_.contains(request_id); };
    EXPECT_TRUE(changed_.Await(&mutex_, absl::Seconds(30), here));
    return here() ? messages_.at(request_id) : Message();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<uint64_t, Message> messages_;
};

// A server process: its transport and what is behind it.
struct Process {
  explicit Process(const std::shared_ptr<InProcessNetwork>& network)
      : transport(network, TransportOptions{}) {}
  // Without a goodbye, and without a last snapshot.
  ~Process() {
    transport.Stop();
    service.reset();
  }
  InProcessTransport transport;
  std::unique_ptr<ServerService> service;
};

class SnapshotsTest : public ::testing::Test {
 protected:
  SnapshotsTest() {
    options_.job_id = "job";
    options_.num_workers = kWorkers;
    options_.shard_threads = 2;
    options_.snapshots = {.root = root_.path(), .rank = 1, .every = absl::Hours(1), .disk = &disk_};
    EXPECT_TRUE(workers_.Start(&mailbox_).ok());
  }
  ~SnapshotsTest() override {
    server_.reset();
    workers_.Stop();
  }

  // Starts a server in place of the one that runs, if any, which is gone then.
  absl::Status StartServer() {
    server_.reset();
    absl::StatusOr<Beginning> beginning = BeginFromSnapshot(options_, &clock_);
    if (!beginning.ok()) return beginning.status();
    restored_ = beginning->restored;
    server_ = std::make_unique<Process>(network_);
    const auto make_header = [] {
      wire::Header header;
      header.set_protocol_version(kProtocolVersion);
      header.set_job_id("job");
      header.mutable_sender()->set_role(wire::SERVER);
      return header;
    };
    server_->service = std::make_unique<ServerService>(&server_->transport, make_header, options_,
                                                       &clock_, *std::move(beginning));
    wire::Roster roster;
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      wire::RosterEntry* entry = roster.add_nodes();
      entry->mutable_node()->set_role(wire::WORKER);
      entry->mutable_node()->set_rank(rank);
      entry->set_incarnation(kIncarnation + rank);
    }
    server_->service->SetRoster(roster);
    const std::string address = server_->transport.Bind("inproc://*").value();
    EXPECT_TRUE(server_->transport.Start(server_->service.get()).ok());
    peer_ = workers_.Connect(address).value();
    return server_->service->StartSnapshots(absl::StrCat("process", ++processes_),
                                            [this](const absl::Status& why) { replaced_ = why; });
  }

  static Message From(uint32_t worker) {
    Message message;
    message.header.set_job_id("job");
    message.header.mutable_sender()->set_role(wire::WORKER);
    message.header.mutable_sender()->set_rank(worker);
    message.header.set_incarnation(kIncarnation + worker);
    return message;
  }
  Message Ask(Message message) {
    const uint64_t id = ++requests_;
    message.header.set_request_id(id);
    EXPECT_TRUE(workers_.Send(peer_, std::move(message)).ok());
    return mailbox_.Await(id);
  }
  absl::Status AckOf(Message message) {
    const Message ack = Ask(std::move(message));
    if (!ack.header.has_ack()) return absl::UnknownError("no ack");
    return FromStatusProto(ack.header.ack().status());
  }
  absl::Status Persist() {
    Message message = From(0);
    message.header.mutable_persist();
    return AckOf(std::move(message));
  }
  absl::Status SetOptimizer(const wire::OptimizerSpec& spec,
                            wire::StoreMode mode = wire::DIST_SYNC) {
    Message message = From(0);
    *message.header.mutable_set_optimizer()->mutable_spec() = spec;
    message.header.mutable_set_optimizer()->set_mode(mode);
    return AckOf(std::move(message));
  }
  static Message InitOf(const std::string& key, size_t elements,
                        wire::StoreMode mode = wire::DIST_SYNC) {
    Message message = From(0);
    message.header.mutable_init()->set_mode(mode);
    AddInit(&message, {.name = key, .values = RandomValues(elements, elements)});
    return message;
  }
  static Message PushOf(uint32_t worker, const std::string& key, uint64_t round, size_t elements,
                        const std::string& codec = "") {
    Message message = From(worker);
    AddPush(&message, {.name = key,
                       .round = round,
                       .values = RandomValues(elements, 1000 * round + 10 * worker + elements),
                       .ticket = round});
    message.header.mutable_push()->mutable_items(0)->set_change_codec(codec);
    return message;
  }
  wire::ItemStatus StatusOf(Message message) {
    const wire::Header header = Ask(std::move(message)).header;
    const auto& items =
        header.has_init_reply() ? header.init_reply().items() : header.push_reply().items();
    EXPECT_EQ(items.size(), 1);
    return items.empty() ? wire::ItemStatus() : items[0];
  }
  // Returns what a pull says, in one text.
  std::string Pulled(uint32_t worker, const std::string& key, uint64_t version, size_t elements) {
    Message message = From(worker);
    AddPull(&message,
            {.name = key, .min_version = version, .elements = elements, .timeout_ms = 20000});
    wire::PullItem* item = message.header.mutable_pull()->mutable_items(0);
    item->set_takes_change(worker == 1 && version > 0);
    item->set_held_version(version - 1);
    const Message answer = Ask(std::move(message));
    if (answer.header.pull_reply().items_size() != 1) return "none";
    wire::PullReplyItem said = answer.header.pull_reply().items(0);
    said.clear_encode_ns();
    const uint64_t bytes = answer.payloads.empty() ? 0 : HashBytes(answer.payloads[0].bytes());
    return absl::StrCat(said.ShortDebugString(), " ", bytes);
  }

  // Flips a bit in the newest snapshot, if there are two. Returns true if it did.
  bool DamageNewest() {
    auto folder = SnapshotFolder::Open(root_.path(), "job", 1, &disk_).value();
    const std::vector<std::string> newest = folder->Newest();
    if (newest.size() < 2) return false;
    std::string content = ReadAll(newest[0]);
    content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 4);
    WriteAll(newest[0], content);
    return true;
  }

  const TestFolder root_;
  FailingDisk disk_;
  RealClock clock_;
  ServerOptions options_;
  std::shared_ptr<InProcessNetwork> network_ = std::make_shared<InProcessNetwork>();
  Mailbox mailbox_;
  InProcessTransport workers_{network_, TransportOptions{}};
  PeerId peer_{};
  std::unique_ptr<Process> server_;
  bool restored_ = false;
  int processes_ = 0;
  uint64_t requests_ = 0;
  absl::Status replaced_;  // written by the thread of snapshots before it answers Persist
};

struct Tensor {
  std::string key;
  size_t elements = 0;
  std::string codec;  // of pulls
};

// Workers that keep what is not durable, and send it again to a server that has come back.
class RecoveryTest : public SnapshotsTest, public ::testing::WithParamInterface<wire::StoreMode> {
 protected:
  static constexpr uint64_t kRounds = 12;
  const std::vector<Tensor> tensors_ = {
      {"a", 5000, GetParam() == wire::DIST_SYNC ? "1bit" : ""}, {"b", 3, ""}, {"c", 600, ""}};

  // Sends a push or an Init, and forgets what is durable.
  void Send(const Tensor& tensor, uint32_t worker, uint64_t round) {
    const wire::ItemStatus status =
        round == 0 ? StatusOf(InitOf(tensor.key, tensor.elements, GetParam()))
                   : StatusOf(PushOf(worker, tensor.key, round, tensor.elements, tensor.codec));
    ASSERT_EQ(FromStatusProto(status.status()), absl::OkStatus());
    ASSERT_TRUE(status.has_durable());
    uint64_t& durable = durable_[{tensor.key, worker}];
    durable = std::max(durable, status.durable());
  }

  // Sends all up to `round` of the last tensor and worker that may be lost.
  void SendAgain(const std::map<std::pair<std::string, uint32_t>, uint64_t>& sent) {
    for (const Tensor& tensor : tensors_) {
      for (uint64_t round = 0; round <= kRounds; ++round) {
        for (uint32_t worker = 0; worker < kWorkers; ++worker) {
          if (round == 0 && worker != 0) continue;
          const auto found = sent.find({tensor.key, worker});
          if (found == sent.end() || round > found->second) continue;
          const uint64_t durable = durable_[{tensor.key, worker}];
          if (durable > round) continue;  // 0: not even the Init; n + 1: rounds up to n
          Send(tensor, worker, round);
        }
      }
    }
  }

  // Runs the job. Returns all that workers pulled.
  std::vector<std::string> Train(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::string> pulled;
    std::map<std::pair<std::string, uint32_t>, uint64_t> sent;
    const auto happens = [&] {
      if (seed == 0) return;
      if (random() % 4 == 0) {
        EXPECT_EQ(Persist(), absl::OkStatus());
      }
      if (random() % 5 != 0) return;
      server_.reset();
      ++crashes_;
      if (random() % 2 == 0 && DamageNewest()) ++damaged_;
      ASSERT_EQ(StartServer(), absl::OkStatus());
      ASSERT_TRUE(restored_);
      SendAgain(sent);
    };
    EXPECT_EQ(StartServer(), absl::OkStatus());
    EXPECT_EQ(SetOptimizer(SgdSpec(0.1, 0.9), GetParam()), absl::OkStatus());
    EXPECT_EQ(Persist(), absl::OkStatus());
    EXPECT_EQ(Persist(), absl::OkStatus());  // in both that are kept
    for (uint64_t round = 0; round <= kRounds; ++round) {
      for (const Tensor& tensor : tensors_) {
        for (uint32_t worker = 0; worker < (round == 0 ? 1 : kWorkers); ++worker) {
          Send(tensor, worker, round);
          sent[{tensor.key, worker}] = round;
          happens();
        }
        const uint64_t version = GetParam() == wire::DIST_SYNC ? round : round * kWorkers;
        for (uint32_t worker = 0; worker < kWorkers; ++worker) {
          pulled.push_back(Pulled(worker, tensor.key, version, tensor.elements));
          happens();
        }
        // A late pull.
        if (round > 0 && GetParam() == wire::DIST_SYNC) {
          pulled.push_back(Pulled(0, tensor.key, round - 1, tensor.elements));
        }
      }
    }
    server_.reset();
    std::filesystem::remove_all(root_.path() + "/job");
    durable_.clear();
    return pulled;
  }

  std::map<std::pair<std::string, uint32_t>, uint64_t> durable_;  // the newest word of it
  int crashes_ = 0, damaged_ = 0;
};

TEST_P(RecoveryTest, EachPullIsWhatItIsWithoutAFailure) {
  const std::vector<std::string> calm = Train(0);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    EXPECT_EQ(Train(seed), calm);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(crashes_, 15);
  EXPECT_GT(damaged_, 3);
}

INSTANTIATE_TEST_SUITE_P(Modes, RecoveryTest, ::testing::Values(wire::DIST_SYNC, wire::DIST_ASYNC),
                         [](const auto& info) { return wire::StoreMode_Name(info.param); });

TEST_F(SnapshotsTest, AnswersSayHowFarTheOlderSnapshotReaches) {
  ASSERT_EQ(StartServer(), absl::OkStatus());
  EXPECT_FALSE(restored_);
  EXPECT_EQ(StatusOf(InitOf("w", 3)).durable(), 0u);
  EXPECT_EQ(StatusOf(PushOf(0, "w", 1, 3)).durable(), 0u);
  EXPECT_EQ(Persist(), absl::OkStatus());
  EXPECT_EQ(StatusOf(PushOf(1, "w", 1, 3)).durable(), 0u);
  EXPECT_EQ(Persist(), absl::OkStatus());
  EXPECT_EQ(StatusOf(PushOf(0, "w", 2, 3)).durable(), 2u);  // the first had its round 1
  EXPECT_EQ(StatusOf(PushOf(1, "w", 2, 3)).durable(), 1u);  // and only the partition of worker 1
  ASSERT_EQ(StartServer(), absl::OkStatus());
  EXPECT_TRUE(restored_);
  EXPECT_EQ(StatusOf(PushOf(1, "w", 1, 3)).durable(), 0u);  // a repeat; the older is not known
  EXPECT_EQ(Persist(), absl::OkStatus());
  EXPECT_EQ(StatusOf(PushOf(1, "w", 2, 3)).durable(), 2u);
  EXPECT_EQ(server_->service->counters().snapshots.written, 1u);
}

TEST_F(SnapshotsTest, SnapshotsAreTakenEverySoOften) {
  options_.snapshots->every = absl::Milliseconds(1);
  ASSERT_EQ(StartServer(), absl::OkStatus());
  StatusOf(InitOf("w", 3));
  StatusOf(PushOf(0, "w", 1, 3));
  EXPECT_TRUE(WaitUntil([&] { return StatusOf(PushOf(0, "w", 1, 3)).durable() == 2; }));
}

TEST_F(SnapshotsTest, WithoutSnapshotsPersistIsAnsweredAtOnce) {
  options_.snapshots.reset();
  server_ = std::make_unique<Process>(network_);
  server_->service = std::make_unique<ServerService>(
      &server_->transport, [] { return From(0).header; }, options_, &clock_);
  EXPECT_EQ(server_->service->StartSnapshots("me", nullptr), absl::OkStatus());
  wire::Roster roster;
  roster.add_nodes()->mutable_node()->set_role(wire::WORKER);
  roster.mutable_nodes(0)->set_incarnation(kIncarnation);
  server_->service->SetRoster(roster);
  const std::string address = server_->transport.Bind("inproc://*").value();
  ASSERT_TRUE(server_->transport.Start(server_->service.get()).ok());
  peer_ = workers_.Connect(address).value();
  EXPECT_EQ(Persist(), absl::OkStatus());
  EXPECT_FALSE(StatusOf(InitOf("w", 3)).has_durable());
}

TEST_F(SnapshotsTest, ADiskThatFailsIsToldAndTrainingGoesOn) {
  ASSERT_EQ(StartServer(), absl::OkStatus());
  StatusOf(InitOf("w", 3));
  disk_.error = ENOSPC;
  const absl::Status full = Persist();
  EXPECT_TRUE(absl::IsUnavailable(full)) << full;
  EXPECT_THAT(std::string(full.message()), HasSubstr("No space left on device"));
  for (uint32_t worker = 0; worker < kWorkers; ++worker) StatusOf(PushOf(worker, "w", 1, 3));
  const std::string pulled = Pulled(0, "w", 1, 3);
  disk_.error = 0;
  EXPECT_EQ(Persist(), absl::OkStatus());
  EXPECT_EQ(server_->service->counters().snapshots.failed, 1u);
  EXPECT_EQ(server_->service->counters().snapshots.written, 1u);
  ASSERT_EQ(StartServer(), absl::OkStatus());
  EXPECT_EQ(Pulled(0, "w", 1, 3), pulled);
}

TEST_F(SnapshotsTest, AServerWhosePlaceWasTakenIsToldSo) {
  ASSERT_EQ(StartServer(), absl::OkStatus());
  StatusOf(InitOf("w", 3));
  ASSERT_EQ(Persist(), absl::OkStatus());
  auto folder = SnapshotFolder::Open(root_.path(), "job", 1, &disk_).value();
  folder->SetRestored(folder->Newest()[0]);
  ASSERT_EQ(folder->TakeOver("another"), absl::OkStatus());
  EXPECT_TRUE(absl::IsFailedPrecondition(Persist()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Persist()));
  EXPECT_TRUE(absl::IsFailedPrecondition(replaced_)) << replaced_;
}

TEST_F(SnapshotsTest, WhatTheShardsGiveToNewPartitionsIsRestored) {
  ASSERT_EQ(StartServer(), absl::OkStatus());
  StatusOf(InitOf("w", 3));
  ASSERT_EQ(SetOptimizer(SgdSpec(0.5)), absl::OkStatus());
  Message leave = From(1);
  leave.header.mutable_leave();
  ASSERT_EQ(AckOf(std::move(leave)), absl::OkStatus());
  ASSERT_EQ(Persist(), absl::OkStatus());
  ASSERT_EQ(StartServer(), absl::OkStatus());
  for (const std::string key : {"w", "new"}) {
    EXPECT_EQ(FromStatusProto(StatusOf(InitOf(key, 3)).status()), absl::OkStatus());
    const std::vector<float> before = RandomValues(3, 3), gradient = RandomValues(3, 1003);
    StatusOf(PushOf(0, key, 1, 3));  // its round is complete without worker 1
    Message pull = From(0);
    AddPull(&pull, {.name = key, .min_version = 1, .elements = 3, .timeout_ms = 20000});
    const std::vector<float> after = Floats(Ask(std::move(pull)).payloads.at(0));
    for (size_t i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(after[i], before[i] - 0.5f * gradient[i]);
  }
  const wire::ItemStatus other = StatusOf(InitOf("x", 3, wire::DIST_ASYNC));
  EXPECT_TRUE(absl::IsFailedPrecondition(FromStatusProto(other.status())));
}

TEST_F(SnapshotsTest, WhereNoSnapshotIsWholeTheServerSaysSo) {
  ASSERT_EQ(StartServer(), absl::OkStatus());
  StatusOf(InitOf("w", 3));
  ASSERT_EQ(Persist(), absl::OkStatus());
  ASSERT_EQ(Persist(), absl::OkStatus());
  server_.reset();
  auto folder = SnapshotFolder::Open(root_.path(), "job", 1, &disk_).value();
  for (const std::string& path : folder->Newest()) WriteAll(path, ReadAll(path).substr(0, 100));
  const absl::Status none = StartServer();
  EXPECT_TRUE(absl::IsDataLoss(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("it ends early"));
  EXPECT_THAT(std::string(none.message()), HasSubstr("remove that folder"));
}

TEST_F(SnapshotsTest, ASnapshotOfAnotherServerIsNotTaken) {
  ASSERT_EQ(StartServer(), absl::OkStatus());
  ASSERT_EQ(Persist(), absl::OkStatus());
  server_.reset();
  std::filesystem::rename(root_.path() + "/job/server-1", root_.path() + "/job/server-0");
  options_.snapshots->rank = 0;
  EXPECT_THAT(std::string(StartServer().message()),
              HasSubstr("expected job \"job\", server 0 and 2 workers, got job \"job\", server 1"));
}

TEST_F(SnapshotsTest, AJobThatEndsInOrderLeavesNothing) {
  ASSERT_EQ(StartServer(), absl::OkStatus());
  StatusOf(InitOf("w", 3));
  ASSERT_EQ(Persist(), absl::OkStatus());
  server_->service->Stop();
  server_->service->RemoveSnapshots();
  EXPECT_TRUE(std::filesystem::is_empty(root_.path()));
}

}  // namespace
}  // namespace slimps
