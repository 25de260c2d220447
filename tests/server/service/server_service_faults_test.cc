// SPDX-License-Identifier: Apache-2.0
// What a ServerService answers to hostile, stray and late messages, and what it does when nodes are
// lost.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/limits.h"
#include "tests/server/round/server_test_util.h"
#include "tests/server/service/server_service_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ServerServiceFaultsTest = ServerServiceFixture;

TEST_F(ServerServiceFaultsTest, HostileItemsAreAnsweredOneByOneAndHarmNothing) {
  Start(1, 2);
  InitKey("w", {0, 0});
  Message push = From(0);
  AddPush(&push, {.values = {1, 1}});  // good
  AddPush(&push, {.name = "nobody", .values = {1, 1}, .ticket = 2});
  AddPush(&push, {.partition = 7, .values = {1, 1}, .ticket = 3});
  AddPush(&push, {.round = 0, .values = {1, 1}, .ticket = 4});
  AddPush(&push, {.round = 99, .values = {1, 1}, .ticket = 5});
  AddPush(&push, {.round = 2, .values = {1, 1, 1}, .ticket = 6});
  AddPush(&push, {.values = {2, 2}, .ticket = 7});
  AddPush(&push, {.round = 2, .values = {1, 1}, .ticket = 8});
  push.header.mutable_push()->mutable_items(7)->set_format(static_cast<wire::Format>(99));
  AddPush(&push, {.round = 2, .values = {1, 1}, .ticket = 9});
  push.header.mutable_push()->mutable_items(8)->set_change_codec("no such codec");
  AddPush(&push, {.round = 2, .values = {1, 1}, .ticket = 10});
  push.header.mutable_push()->mutable_items(9)->set_payload_bytes(4);
  AddPush(&push, {.round = 2, .values = {1, 1}, .ticket = 11});
  push.payloads.pop_back();
  service_->OnMessage(PeerId{10}, std::move(push));
  std::map<uint64_t, absl::StatusCode> codes;
  while (codes.size() < 11) {
    const Sent sent = transport_.Next();
    ASSERT_GT(sent.message.header.push_reply().items_size(), 0);
    for (const auto& item : sent.message.header.push_reply().items()) {
      codes[item.id().ticket()] = FromStatusProto(item.status()).code();
    }
  }
  using Code = absl::StatusCode;
  const std::map<uint64_t, Code> expected = {
      {1, Code::kOk},
      {2, Code::kNotFound},
      {3, Code::kNotFound},
      {4, Code::kInvalidArgument},
      {5, Code::kResourceExhausted},
      {6, Code::kInvalidArgument},
      {7, Code::kAlreadyExists},
      {8, Code::kInvalidArgument},
      {9, Code::kInvalidArgument},
      {10, Code::kDataLoss},
      {11, Code::kInvalidArgument},
  };
  for (const auto& [ticket, code] : expected) {
    EXPECT_EQ(codes[ticket], code) << "item " << ticket;
  }
  Message pull = From(0);
  AddPull(&pull, {.min_version = 1, .elements = 2, .timeout_ms = 10000});
  EXPECT_THAT(Floats(Ask(std::move(pull)).message.payloads.at(0)), ElementsAre(1, 1));
}

TEST_F(ServerServiceFaultsTest, AStrangerGetsOneShortErrorHoweverManyItsItems) {
  Start(1, 1);
  Message push = From(0, 9);
  push.header.set_job_id("other");
  for (uint64_t ticket = 1; ticket <= 1000; ++ticket)
    AddPush(&push, {.values = {1}, .ticket = ticket});
  const Sent sent = Ask(std::move(push));
  const wire::Header& refusal = sent.message.header;
  EXPECT_EQ(FromStatusProto(refusal.error().status()).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(refusal.request_id(), 9);
  EXPECT_LT(refusal.ByteSizeLong(), size_t{100});
  EXPECT_TRUE(refusal.job_id().empty());
  EXPECT_FALSE(IncarnationOf(refusal).is_set());
  EXPECT_EQ(refusal.membership_epoch(), 0);
  EXPECT_TRUE(transport_.Drained());
  Message leave = From(0);
  leave.header.set_incarnation(5);
  leave.header.mutable_leave();
  const Sent error = Ask(std::move(leave));
  EXPECT_EQ(FromStatusProto(error.message.header.error().status()).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(service_->counters().refused_messages, 2);
}

TEST_F(ServerServiceFaultsTest, VerbsThatAServerDoesNotKnowAreAnsweredWithAnError) {
  Start(1, 1);
  Message message = From(0, 8);
  message.header.mutable_declare_keys();
  const Sent sent = Ask(std::move(message));
  ASSERT_TRUE(sent.message.header.has_error());
  EXPECT_EQ(sent.message.header.request_id(), 8);
  EXPECT_THAT(sent.message.header.error().status().message(), HasSubstr("declare_keys"));
  EXPECT_TRUE(Ask(From(0)).message.header.has_error());  // no body at all
}

TEST_F(ServerServiceFaultsTest, MessageOfAWorkerWithANewerRosterWaitsForThatRoster) {
  ServerOptions options;
  options.job_id = "job";
  options.num_workers = 1;
  Start(options);
  Message init = From(0);
  init.header.set_incarnation(5555);
  init.header.set_membership_epoch(2);
  AddInit(&init, {.values = {1}});
  service_->OnMessage(PeerId{10}, std::move(init));
  EXPECT_TRUE(transport_.Drained());
  wire::Roster roster = MakeRoster(2, 1);
  roster.mutable_nodes(0)->set_incarnation(5555);
  service_->SetRoster(roster);
  EXPECT_EQ(transport_.Next().message.header.init_reply().items_size(), 1);
}

// The worker is only early, so it gets no answer: an error would end its store.
TEST_F(ServerServiceFaultsTest, WhatFindsNoRoomToWaitForANewerRosterIsDroppedUnanswered) {
  Start(1, 1);
  InitKey("w", {1});
  const auto push = [](uint64_t round) {
    Message message = From(0);
    message.header.set_incarnation(5555);
    message.header.set_membership_epoch(2);
    AddPush(&message, {.round = round, .values = {1}, .ticket = round});
    return message;
  };
  for (uint64_t round = 1; round <= 257; ++round) {
    service_->OnMessage(PeerId{9 + round}, push(round));
  }
  EXPECT_TRUE(transport_.Drained());
  EXPECT_EQ(service_->counters().refused_messages, 1);
  wire::Roster roster = MakeRoster(2, 1);
  roster.mutable_nodes(0)->set_incarnation(5555);
  service_->SetRoster(roster);
  EXPECT_EQ(PushStatus(transport_.Next()), absl::OkStatus());
}

TEST_F(ServerServiceFaultsTest, FullMailboxIsAnsweredAndNotAWait) {
  ServerOptions options;
  options.job_id = "job";
  options.shard.max_mailbox_bytes = 7;
  Start(options);
  Message init = From(0);
  AddInit(&init, {.values = {1, 2}});
  const Sent sent = Ask(std::move(init));
  ASSERT_EQ(sent.message.header.init_reply().items_size(), 1);
  EXPECT_EQ(FromStatusProto(sent.message.header.init_reply().items(0).status()).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(ServerServiceFaultsTest, LostNodeIsToldToThoseWhoWait) {
  Start(2, 2);
  InitKey("w", {1});
  Message pull = From(0);
  AddPull(&pull, {.min_version = 1, .timeout_ms = 60000});
  service_->OnMessage(PeerId{10}, std::move(pull));
  service_->FailPending(absl::UnavailableError("worker 1 is down"));
  EXPECT_EQ(PullStatus(transport_.Next()), absl::UnavailableError("worker 1 is down"));
}

TEST_F(ServerServiceFaultsTest, StopAnswersWhatStillWaits) {
  Start(2, 2);
  InitKey("w", {1});
  Message pull = From(0);
  AddPull(&pull, {.min_version = 1, .timeout_ms = 60000});
  service_->OnMessage(PeerId{10}, std::move(pull));
  service_->Stop();
  EXPECT_EQ(PullStatus(transport_.Next()).code(), absl::StatusCode::kUnavailable);
  Message push = From(0);
  AddPush(&push, {.values = {1}});
  EXPECT_EQ(PushStatus(Ask(std::move(push))).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace slimps
