// SPDX-License-Identifier: Apache-2.0
// What one phase of an exchange sends, and what it makes of the answers. The test plays the server.
#include "worker/phases/auxiliary_exchange.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/mutex.h"
#include "proto/net/membership/membership.h"
#include "proto/status_proto.h"
#include "tests/worker/courier/holding_transport.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr PeerId kServer{7};

Payload PayloadOf(const std::vector<float>& values) {
  return Payload::Copy(std::as_bytes(std::span<const float>(values)));
}

TensorPlan MakeKey(const std::string& name, size_t elements) {
  TensorPlan plan{.key = Key::Auxiliary("q", Key(name)), .info = {}, .elements = elements};
  plan.partitions = {{.server = 0, .offset = 0, .elements = elements}};
  return plan;
}

class AuxiliaryExchangeTest : public ::testing::Test {
 protected:
  // What is not answered uses the exchange, which ends before the courier.
  void TearDown() override { courier_.Stop(); }

  void Combine(const TensorPlan& key, uint64_t round, const std::vector<float>& values) {
    exchange_.Combine({.key = &key,
                       .round = round,
                       .job_round = 10 + round,
                       .priority = 0,
                       .values = values.empty() ? Payload() : PayloadOf(values)},
                      [this](Combined combined) { combined_.push_back(std::move(combined)); });
  }

  // Answers the pull of the only message sent, as `edit` leaves the answer.
  void AnswerPull(const std::vector<float>& values,
                  const std::function<void(wire::PullReplyItem*)>& edit) {
    const wire::PullItem asked = transport_.header(0).push_pull().pull(0);
    Message reply;
    wire::PullReplyItem* item = reply.header.mutable_pull_reply()->add_items();
    *item->mutable_id() = asked.id();
    item->set_version(asked.min_version());
    item->set_elements(asked.elements());
    item->set_format(wire::RAW_F32);
    item->set_payload_bytes(values.size() * sizeof(float));
    edit(item);
    reply.payloads.push_back(PayloadOf(values));
    EXPECT_TRUE(courier_.HandleMessage(kServer, reply));
  }

  void AnswerPush(const absl::Status& status) {
    Message reply;
    wire::ItemStatus* item = reply.header.mutable_push_reply()->add_items();
    *item->mutable_id() = transport_.header(0).push_pull().push(0).id();
    if (!status.ok()) *item->mutable_status() = ToStatusProto(status);
    EXPECT_TRUE(courier_.HandleMessage(kServer, reply));
  }

  const TensorPlan key_ = MakeKey("w", 2);
  HoldingTransport transport_;
  Membership membership_{&transport_, {.role = wire::WORKER}};
  Courier courier_{&transport_, &membership_, std::vector<PeerId>{kServer}, CourierOptions{}};
  std::vector<std::pair<uint64_t, size_t>> passed_;  // round and bytes
  AuxiliaryExchange exchange_{
      &courier_,
      {.timeout = absl::Seconds(30), .on_passed = [this](uint64_t round, size_t bytes, auto) {
         passed_.push_back({round, bytes});
       }}};
  std::vector<Combined> combined_;
};

TEST_F(AuxiliaryExchangeTest, PushAndPullOfAllKeysShareAMessage) {
  const TensorPlan other = MakeKey("v", 1);
  Combine(key_, 3, {1, 2});
  Combine(other, 3, {});
  EXPECT_EQ(transport_.sent(), 0);
  exchange_.Flush();
  ASSERT_EQ(transport_.sent(), 1);
  const wire::PushPull sent = transport_.header(0).push_pull();
  ASSERT_THAT(sent.push(), SizeIs(2));
  ASSERT_THAT(sent.pull(), SizeIs(2));
  EXPECT_EQ(sent.push(0).id().key(), key_.key.id());
  EXPECT_EQ(sent.push(0).round(), 3);
  EXPECT_EQ(sent.push(0).format(), wire::RAW_F32);
  EXPECT_EQ(sent.push(1).format(), wire::ABSENT);
  EXPECT_EQ(sent.pull(0).min_version(), 3);
  EXPECT_FALSE(sent.pull(0).newest());
  EXPECT_THAT(transport_.payloads(0), SizeIs(1));
}

TEST_F(AuxiliaryExchangeTest, TheAnswerBringsTheValueAndItsContributors) {
  Combine(key_, 1, {1, 2});
  exchange_.Flush();
  AnswerPush(absl::OkStatus());
  EXPECT_THAT(combined_, IsEmpty());
  AnswerPull({4, 6}, [](wire::PullReplyItem* item) {
    item->add_contributors(0);
    item->add_contributors(2);
  });
  ASSERT_THAT(combined_, SizeIs(1));
  EXPECT_TRUE(combined_[0].status.ok()) << combined_[0].status;
  EXPECT_THAT(combined_[0].values, ElementsAre(4, 6));
  EXPECT_THAT(combined_[0].contributors, ElementsAre(0, 2));
  EXPECT_EQ(exchange_.totals().bytes_pushed, 8);
  EXPECT_EQ(exchange_.totals().bytes_pulled, 8);
}

TEST_F(AuxiliaryExchangeTest, WhatAPhasePushesCountsForTheLink) {
  Combine(key_, 2, {1, 2});
  exchange_.Flush();
  EXPECT_THAT(passed_, IsEmpty());
  AnswerPush(absl::OkStatus());
  EXPECT_THAT(passed_, ElementsAre(std::pair(12, 8)));
}

TEST_F(AuxiliaryExchangeTest, APhaseMayNeedTheFirstRowsOnly) {
  TensorPlan key = MakeKey("w", 6);
  key.info.add_shape(3);
  key.info.add_shape(2);
  exchange_.Combine({.key = &key, .round = 4, .rows = 2, .values = PayloadOf({1, 2, 3, 4})},
                    [this](Combined combined) { combined_.push_back(std::move(combined)); });
  exchange_.Flush();
  const wire::PushPull sent = transport_.header(0).push_pull();
  EXPECT_EQ(sent.push(0).elements(), 4);
  EXPECT_EQ(sent.push(0).payload_bytes(), 16);
  EXPECT_EQ(sent.pull(0).elements(), 4);
  AnswerPull({5, 6, 7, 8}, [](wire::PullReplyItem*) {});
  ASSERT_THAT(combined_, SizeIs(1));
  EXPECT_TRUE(combined_[0].status.ok()) << combined_[0].status;
  EXPECT_THAT(combined_[0].values, ElementsAre(5, 6, 7, 8));
}

TEST_F(AuxiliaryExchangeTest, AnAnswerOfAnotherRoundIsRefused) {
  Combine(key_, 2, {1, 2});
  exchange_.Flush();
  AnswerPull({4, 6}, [](wire::PullReplyItem* item) { item->set_version(1); });
  ASSERT_THAT(combined_, SizeIs(1));
  EXPECT_EQ(combined_[0].status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(combined_[0].status.message()),
              HasSubstr("key #q:s:w: expected version 2 with 2 elements, got version 1"));
}

TEST_F(AuxiliaryExchangeTest, AnAnswerOfAnotherSizeIsRefused) {
  Combine(key_, 2, {1, 2});
  exchange_.Flush();
  AnswerPull({4, 6}, [](wire::PullReplyItem* item) { item->set_elements(3); });
  ASSERT_THAT(combined_, SizeIs(1));
  EXPECT_EQ(combined_[0].status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(combined_[0].status.message()), HasSubstr("got version 2 with 3"));
}

TEST_F(AuxiliaryExchangeTest, ARefusedPushEndsThePhaseOnce) {
  Combine(key_, 1, {1, 2});
  exchange_.Flush();
  AnswerPush(absl::InvalidArgumentError("no"));
  ASSERT_THAT(combined_, SizeIs(1));
  EXPECT_EQ(combined_[0].status.code(), absl::StatusCode::kInvalidArgument);
  courier_.FailAll(absl::CancelledError("over"));  // answers the pull
  EXPECT_THAT(combined_, SizeIs(1));
}

TEST_F(AuxiliaryExchangeTest, TheCouriersFailureEndsThePhase) {
  Combine(key_, 1, {1, 2});
  courier_.FailAll(absl::CancelledError("over"));
  exchange_.Flush();
  ASSERT_THAT(combined_, SizeIs(1));
  EXPECT_EQ(combined_[0].status.code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace slimps
