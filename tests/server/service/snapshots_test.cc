// SPDX-License-Identifier: Apache-2.0
// When a server takes snapshots, what it says of them, and which it goes on from. Frames are built
// and parsed.
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status_proto.h"
#include "tests/proto/base/wait_until.h"
#include "tests/server/service/snapshots_fixture.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

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

TEST_F(SnapshotsTest, WhatAWorkerThatIsAwayPushedIsSavedOnceTheDiskTakesIt) {
  ASSERT_EQ(StartServer(), absl::OkStatus());
  StatusOf(InitOf("w", 3));
  disk_.error = ENOSPC;
  wire::Roster roster = Workers();
  roster.set_epoch(7);
  roster.mutable_nodes(1)->set_away(true);
  server_->service->SetRoster(roster);
  EXPECT_TRUE(absl::IsUnavailable(Persist()));
  EXPECT_EQ(server_->service->saved_epoch(), 0u);
  disk_.error = 0;
  EXPECT_EQ(Persist(), absl::OkStatus());
  EXPECT_EQ(server_->service->saved_epoch(), 7u);
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
