// SPDX-License-Identifier: Apache-2.0
#include "worker/store/store_init.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/hash.h"
#include "proto/status_proto.h"
#include "tests/proto/base/moved_clock.h"
#include "tests/worker/courier/fake_transport.h"

namespace slimps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kLong = absl::Seconds(30);  // only a failing test waits this long

// A worker whose scheduler and servers are played by the test.
class StoreInitTest : public ::testing::Test {
 protected:
  StoreInitTest() {
    // Nobody answers the join, but from here on there is a connection to ask over.
    EXPECT_EQ(membership_.Join().code(), absl::StatusCode::kDeadlineExceeded);
  }

  // Lets `answer` fill in the scheduler's answers to declarations.
  void AnswerWith(std::function<void(const wire::DeclareKeys&, wire::Header*)> answer) {
    transport_.set_on_send([this, answer](PeerId, const Message& question) {
      if (!question.header.has_declare_keys()) return absl::OkStatus();
      Message reply;
      reply.header.set_request_id(question.header.request_id());
      answer(question.header.declare_keys(), &reply.header);
      EXPECT_TRUE(rpc_.HandleMessage(reply));
      return absl::OkStatus();
    });
  }

  // Places keys as a scheduler does: partitions of the size asked for, on `servers` in turn.
  static void Place(const wire::DeclareKeys& keys, uint32_t servers, wire::Placement* placement) {
    for (const wire::KeyInfo& info : keys.keys()) {
      wire::KeyPlace* place = placement->add_keys();
      uint64_t elements = 1, offset = 0;
      for (const int64_t extent : info.shape())
        elements *= static_cast<uint64_t>(std::max<int64_t>(extent, 0));
      for (uint32_t i = 0; offset < elements && keys.partition_elements() > 0; ++i) {
        wire::PartitionPlace* partition = place->add_partitions();
        partition->set_server(i % servers);
        partition->set_offset(offset);
        partition->set_elements(std::min(keys.partition_elements(), elements - offset));
        offset += partition->elements();
      }
    }
  }
  void AnswerAsScheduler(uint32_t servers) {
    AnswerWith([servers](const wire::DeclareKeys& keys, wire::Header* reply) {
      Place(keys, servers, reply->mutable_placement());
    });
  }
  absl::StatusOr<std::vector<TensorPlan>> Declare(const std::vector<InitTensor>& tensors,
                                                  size_t partition_bytes = 1 << 20,
                                                  absl::Duration timeout = kLong) {
    absl::StatusOr<DeclaredTensors> declared = DeclareTensors(tensors,
                                                              {.partition_bytes = partition_bytes,
                                                               .num_servers = 2,
                                                               .timeout = timeout,
                                                               .compression = "1bit"},
                                                              &membership_, &rpc_);
    if (!declared.ok()) return declared.status();
    return std::move(declared->plans);
  }
  std::vector<wire::DeclareKeys> Questions() {
    std::vector<wire::DeclareKeys> questions;
    for (const auto& sent : transport_.sent()) {
      if (sent.message.header.has_declare_keys()) {
        questions.push_back(sent.message.header.declare_keys());
      }
    }
    return questions;
  }

  FakeTransport transport_;
  Membership membership_{&transport_,
                         {.role = wire::WORKER,
                          .scheduler_address = "inproc://scheduler",
                          .join_timeout = absl::ZeroDuration()}};
  RpcClient rpc_{&transport_, absl::Milliseconds(5)};
};

// With several partitions, the answer to one travels while the next is pushed. A single one would
// use one direction at a time.
TEST_F(StoreInitTest, ASmallModelsLargestTensorUsesBothDirectionsOfALink) {
  AnswerAsScheduler(2);
  const size_t elements = 983040;  // 3.9 MB: most of a model of a million parameters
  const auto plans = Declare({{.key = "w", .shape = {static_cast<int64_t>(elements)}}},
                             KVStoreOptions().partition_bytes);
  ASSERT_TRUE(plans.ok()) << plans.status();
  std::array<size_t, 2> at_server{}, largest{};
  for (const PartitionPlan& partition : plans->at(0).partitions) {
    at_server.at(partition.server) += partition.elements;
    largest.at(partition.server) = std::max(largest.at(partition.server), partition.elements);
  }
  for (const size_t server : {0, 1}) {
    EXPECT_GE(at_server.at(server), elements * 2 / 5);
    EXPECT_LE(largest.at(server), elements / 3)
        << "the way back of its first part overlaps the rest";
  }
}

TEST_F(StoreInitTest, TheSchedulerIsToldAllAndItsPlacesBecomePlans) {
  AnswerAsScheduler(2);
  const auto plans = Declare({{.key = "conv", .shape = {5, 2}, .layer = wire::CONVOLUTION},
                              {.key = "bias", .shape = {3}, .dtype = wire::BFLOAT16}},
                             /*partition_bytes=*/16);
  ASSERT_TRUE(plans.ok()) << plans.status();
  ASSERT_THAT(*plans, SizeIs(2));
  EXPECT_EQ(plans->at(0).key, Key("conv"));
  EXPECT_EQ(plans->at(0).elements, 10u);
  ASSERT_THAT(plans->at(0).partitions, SizeIs(3));
  EXPECT_EQ(plans->at(0).partitions[2].offset, 8u);
  EXPECT_EQ(plans->at(0).partitions[2].elements, 2u);
  EXPECT_EQ(plans->at(0).partitions[1].server, 1u);
  EXPECT_EQ(plans->at(1).key, Key("bias"));

  const auto questions = Questions();
  ASSERT_THAT(questions, SizeIs(1));
  EXPECT_EQ(questions[0].partition_elements(), 4u);
  const wire::KeyInfo& conv = questions[0].keys(0);
  EXPECT_EQ(conv.key(), Key("conv").id());
  EXPECT_EQ(conv.name(), "s:conv");
  EXPECT_EQ(conv.layer(), wire::CONVOLUTION);
  EXPECT_THAT(conv.shape(), ElementsAre(5, 2));
  EXPECT_EQ(questions[0].keys(1).dtype(), wire::BFLOAT16);
  EXPECT_EQ(plans->at(0).info.layer(), wire::CONVOLUTION) << "servers are told the same";
}

TEST_F(StoreInitTest, ALayerOfWhichNothingWasSaidIsToldByItsShape) {
  AnswerAsScheduler(1);
  const auto plans = Declare({{.key = "kernel", .shape = {2, 1, 3, 3}},
                              {.key = "matrix", .shape = {2, 3}},
                              {.key = "bias", .shape = {2}},
                              {.key = "said", .shape = {2, 1, 3, 3}, .layer = wire::OTHER}},
                             /*partition_bytes=*/1024);
  ASSERT_TRUE(plans.ok()) << plans.status();
  EXPECT_EQ(plans->at(0).info.layer(), wire::CONVOLUTION);
  EXPECT_EQ(plans->at(1).info.layer(), wire::DENSE);
  EXPECT_EQ(plans->at(2).info.layer(), wire::OTHER);
  EXPECT_EQ(plans->at(3).info.layer(), wire::OTHER);
}

TEST_F(StoreInitTest, APartitionHoldsOneElementAtLeast) {
  AnswerAsScheduler(1);
  ASSERT_TRUE(Declare({{.key = 1, .shape = {2}}}, /*partition_bytes=*/1).ok());
  EXPECT_EQ(Questions().at(0).partition_elements(), 1u);
}

TEST_F(StoreInitTest, AShapeWithoutElementsIsRefusedBeforeAnythingIsSent) {
  AnswerAsScheduler(1);
  const auto plans = Declare({{.key = "ok", .shape = {2}}, {.key = "w", .shape = {4, -1}}});
  EXPECT_THAT(std::string(plans.status().message()),
              HasSubstr("init of key s:w: shape [4, -1]: expected 1 to "));
  EXPECT_THAT(Questions(), IsEmpty());
}

TEST_F(StoreInitTest, WhatTheSchedulerRefusesIsRefused) {
  const absl::Status why = absl::InvalidArgumentError("worker 0 declared key s:w otherwise");
  AnswerWith([&](const wire::DeclareKeys&, wire::Header* reply) {
    *reply->mutable_placement()->mutable_status() = ToStatusProto(why);
  });
  EXPECT_EQ(Declare({{.key = "w", .shape = {2}}}).status(), why);
}

TEST_F(StoreInitTest, APlacementOfOtherKeysIsDataLoss) {
  AnswerWith([](const wire::DeclareKeys& keys, wire::Header* reply) {
    Place(keys, 1, reply->mutable_placement());
    reply->mutable_placement()->mutable_keys()->RemoveLast();
  });
  EXPECT_EQ(Declare({{.key = "v", .shape = {2}}, {.key = "w", .shape = {2}}}).status(),
            absl::DataLossError("placement: expected 2 keys, got 1"));
  AnswerWith([](const wire::DeclareKeys&, wire::Header* reply) { reply->mutable_ack(); });
  EXPECT_EQ(Declare({{.key = "v", .shape = {2}}}).status(),
            absl::DataLossError("placement: expected 1 keys, got 0"));
}

TEST_F(StoreInitTest, APlacementWithGapsOrOnAServerThatIsNoneIsRefused) {
  const auto refusal = [&](std::function<void(wire::KeyPlace*)> spoil) {
    AnswerWith([spoil](const wire::DeclareKeys& keys, wire::Header* reply) {
      Place(keys, 2, reply->mutable_placement());
      spoil(reply->mutable_placement()->mutable_keys(0));
    });
    const auto plans = Declare({{.key = "w", .shape = {8}}}, /*partition_bytes=*/16);
    EXPECT_EQ(plans.status().code(), absl::StatusCode::kInvalidArgument);
    return plans.status().ToString();
  };
  EXPECT_THAT(refusal([](wire::KeyPlace* w) { w->mutable_partitions(1)->set_server(2); }),
              AllOf(HasSubstr("key s:w partition 1"), HasSubstr("on server 2")));
  EXPECT_THAT(refusal([](wire::KeyPlace* w) { w->mutable_partitions(1)->set_offset(5); }),
              HasSubstr("4 elements at 5"));
  EXPECT_THAT(refusal([](wire::KeyPlace* w) { w->mutable_partitions(0)->set_elements(9); }),
              HasSubstr("9 elements at 0"));
  EXPECT_THAT(refusal([](wire::KeyPlace* w) { w->mutable_partitions()->RemoveLast(); }),
              HasSubstr("covers 4 of 8 elements"));
}

TEST_F(StoreInitTest, ASilentSchedulerIsNamed) {
  const auto plans = Declare({{.key = "w", .shape = {2}}}, 1 << 20, absl::Milliseconds(40));
  EXPECT_EQ(plans.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(plans.status().ToString(), HasSubstr("declaring keys at the scheduler"));
}

// What rank 0 does with initial values: it sends them to two servers.
class InitialValuesTest : public ::testing::Test {
 protected:
  static TensorPlan Plan(const char* key, std::vector<PartitionPlan> partitions) {
    TensorPlan plan{.key = Key(key), .info = {}, .partitions = std::move(partitions)};
    plan.info.set_name(plan.key.typed_name());
    plan.info.set_layer(wire::DENSE);
    for (const PartitionPlan& partition : plan.partitions) plan.elements += partition.elements;
    return plan;
  }

  // Lets servers acknowledge each item with what `status` returns.
  using Status = std::function<absl::Status(const wire::InitItem&)>;
  void Acknowledge(Status status) {
    transport_.set_on_send([this, status](PeerId to, const Message& message) {
      Answer(to, message, status);
      return absl::OkStatus();
    });
  }
  void Answer(PeerId from, const Message& message, const Status& status) {
    Message reply;
    for (const wire::InitItem& init : message.header.init().items()) {
      wire::ItemStatus* item = reply.header.mutable_init_reply()->add_items();
      *item->mutable_id() = init.id();
      *item->mutable_status() = ToStatusProto(status(init));
    }
    EXPECT_TRUE(courier_.HandleMessage(from, reply));
  }
  void Accept(const FakeTransport::Sent& sent) {
    Answer(sent.to, sent.message, [](const wire::InitItem&) { return absl::OkStatus(); });
  }

  // Counts items, not messages.
  size_t sent() {
    size_t items = 0;
    for (const auto& one : transport_.sent()) {
      items += static_cast<size_t>(one.message.header.init().items_size());
    }
    return items;
  }

  MovedClock clock_;
  FakeTransport transport_;
  Membership membership_{&transport_, {.role = wire::WORKER}};
  Courier courier_{&transport_,
                   &membership_,
                   {PeerId{10}, PeerId{11}},
                   {.timeout = kLong, .retry_interval = kLong, .clock = &clock_}};
  const std::vector<float> w_ = {1, 2, 3, 4, 5};
  const std::vector<TensorPlan> plans_ = {Plan("w", {{1, 0, 3}, {0, 3, 2}})};
};

TEST_F(InitialValuesTest, EveryServerGetsItsPartitionsAsTheyAre) {
  Acknowledge([](const wire::InitItem&) { return absl::OkStatus(); });
  ASSERT_TRUE(SendInitialValues({{.key = "w", .shape = {5}, .value = w_}}, plans_,
                                {.combine = Combine::kMajority}, &courier_)
                  .ok());
  const auto sent = transport_.sent();
  ASSERT_THAT(sent, SizeIs(2));
  for (uint32_t i = 0; i < 2; ++i) {
    const PartitionPlan& partition = plans_[0].partitions[i];
    EXPECT_EQ(sent[partition.server].to, PeerId{10 + partition.server});
    const wire::InitItem& item = sent[partition.server].message.header.init().items(0);
    EXPECT_EQ(item.id().key(), Key("w").id());
    EXPECT_EQ(item.id().partition(), i);
    EXPECT_EQ(item.offset(), partition.offset);
    EXPECT_EQ(item.elements(), partition.elements);
    EXPECT_EQ(item.partitions(), 2u);
    EXPECT_EQ(item.format(), wire::RAW_F32);
    EXPECT_EQ(item.combine(), wire::MAJORITY);
    EXPECT_EQ(item.info().layer(), wire::DENSE);
    const Payload& payload = sent[partition.server].message.payloads.at(0);
    ASSERT_EQ(payload.size(), partition.elements * sizeof(float));
    EXPECT_EQ(item.payload_bytes(), payload.size());
    EXPECT_EQ(item.payload_hash(), HashBytes(payload.bytes()));
    EXPECT_EQ(std::memcmp(payload.bytes().data(), w_.data() + partition.offset, payload.size()), 0);
  }
}

TEST_F(InitialValuesTest, AWrongValueIsRefusedBeforeAnythingIsSent) {
  Acknowledge([](const wire::InitItem&) { return absl::OkStatus(); });
  const std::vector<float> nan = {1, std::nanf("")}, both = {1, 2};
  const std::vector<TensorPlan> plans = {plans_[0], Plan("v", {{0, 0, 2}})};
  const auto send = [&](std::span<const float> v) {
    return SendInitialValues(
        {{.key = "w", .shape = {5}, .value = w_}, {.key = "v", .shape = {2}, .value = v}}, plans,
        {}, &courier_);
  };
  EXPECT_THAT(send(nan).ToString(), HasSubstr("initial value of key s:v: element 1 is nan"));
  EXPECT_EQ(send(w_),
            absl::InvalidArgumentError("initial value of key s:v: expected 2 elements, got 5"));
  EXPECT_EQ(sent(), 0u);
  EXPECT_TRUE(send(both).ok());
  EXPECT_EQ(sent(), 3u);
}

TEST_F(InitialValuesTest, OneServersRefusalIsTheCalls) {
  Acknowledge([&](const wire::InitItem& item) {
    return item.id().partition() == 1 ? absl::PermissionDeniedError("only worker 0 may")
                                      : absl::OkStatus();
  });
  EXPECT_EQ(
      SendInitialValues({{.key = "w", .shape = {5}, .value = w_}}, plans_, {}, &courier_),
      absl::PermissionDeniedError("init of key s:w partition 1 to server 0: only worker 0 may"));
}

TEST_F(InitialValuesTest, ItWaitsForEveryAcknowledgement) {
  for (const bool answered : {true, false}) {
    absl::Status status;
    std::thread sender([&] {
      status = SendInitialValues({{.key = "w", .shape = {5}, .value = w_}}, plans_, {}, &courier_);
    });
    const size_t first = answered ? 0 : 2;
    EXPECT_TRUE(transport_.AwaitSent(first + 2));
    Accept(transport_.sent().at(first + 1));
    // A call that does not wait for the other answer would not see what becomes of it.
    answered ? Accept(transport_.sent().at(first)) : clock_.Advance(kLong);
    sender.join();
    EXPECT_EQ(status.code(),
              answered ? absl::StatusCode::kOk : absl::StatusCode::kDeadlineExceeded);
  }
}

TEST_F(InitialValuesTest, NoMoreThanTheBoundIsUnderWay) {
  // Each item has 8 bytes, and 16 bytes may be under way.
  const TensorPlan plan = Plan("w", {{0, 0, 2}, {1, 2, 2}, {0, 4, 2}, {1, 6, 2}, {0, 8, 1}});
  const std::vector<float> values(9, 1.0f);
  std::thread sender([&] {
    EXPECT_TRUE(SendInitialValues({{.key = "w", .shape = {9}, .value = values}}, {plan},
                                  {.max_bytes = 16}, &courier_)
                    .ok());
  });
  size_t most = 0;
  for (size_t answered = 0; answered < 5; ++answered) {
    EXPECT_TRUE(transport_.AwaitSent(std::min<size_t>(answered + 2, 5)));
    most = std::max(most, courier_.outstanding());
    Accept(transport_.sent()[answered]);
  }
  sender.join();
  EXPECT_EQ(most, 2u);
}

TEST_F(InitialValuesTest, AfterARefusalNoMoreIsSent) {
  const TensorPlan plan = Plan("w", {{0, 0, 1}, {0, 1, 1}, {0, 2, 1}, {0, 3, 1}});
  const std::vector<float> values(4, 1.0f);
  Acknowledge([&](const wire::InitItem&) { return absl::AlreadyExistsError("declared before"); });
  EXPECT_EQ(SendInitialValues({{.key = "w", .shape = {4}, .value = values}}, {plan},
                              {.max_bytes = 4}, &courier_)
                .code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(sent(), 1u);
}

}  // namespace
}  // namespace slimps
