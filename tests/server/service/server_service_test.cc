// SPDX-License-Identifier: Apache-2.0
#include "server/service/server_service.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/limits.h"
#include "proto/status_proto.h"
#include "tests/server/round/server_test_util.h"
#include "tests/server/service/server_service_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using ServerServiceTest = ServerServiceFixture;

TEST_F(ServerServiceTest, PushPullIsAcknowledgedAtOnceAndAnsweredOnceTheRoundIsComplete) {
  Start(2, 1);
  InitKey("w", {1, 1});
  ASSERT_TRUE(AckStatus(Ask(Optimizer(SgdSpec(1)))).ok());
  const auto push_pull = [this](uint32_t worker) {
    Message message = From(worker, 5 + worker);
    FillPush(&message, message.header.mutable_push_pull()->add_push(), {.values = {1, 2}});
    FillPull(message.header.mutable_push_pull()->add_pull(),
             {.min_version = 1, .elements = 2, .timeout_ms = 10000, .ticket = 2});
    return Ask(std::move(message));
  };
  const Sent alone = push_pull(0);
  EXPECT_TRUE(PushStatus(alone).ok()) << PushStatus(alone);
  EXPECT_EQ(alone.message.header.request_id(), 5);
  EXPECT_EQ(alone.message.header.job_id(), "job");
  std::vector<Sent> answers;
  answers.push_back(push_pull(1));
  answers.push_back(transport_.Next());
  std::map<PeerId, std::vector<float>> pulled;
  for (const Sent& sent : answers) {
    // The last worker's acknowledgement was ready together with its pull, so both share a message.
    EXPECT_EQ(sent.message.header.pull_reply().pushed_size(), sent.to == PeerId{11} ? 1 : 0);
    ASSERT_TRUE(PullStatus(sent).ok()) << PullStatus(sent);
    const wire::PullReplyItem& item = sent.message.header.pull_reply().items(0);
    EXPECT_EQ(item.id().ticket(), 2);
    EXPECT_EQ(item.version(), 1);
    EXPECT_EQ(item.payload_hash(), HashBytes(sent.message.payloads.at(0).bytes()));
    pulled[sent.to] = Floats(sent.message.payloads[0]);
  }
  EXPECT_THAT(pulled[PeerId{10}], ElementsAre(-1, -3));
  EXPECT_THAT(pulled[PeerId{11}], ElementsAre(-1, -3));
}

TEST_F(ServerServiceTest, EveryAnswerFitsItsFrame) {
  Start(1, 2);
  for (const char* name : {"a", "b", "c", "d"}) InitKey(name, {1, 2, 3});
  Message pull = From(0);
  for (const char* name : {"a", "b", "c", "d"})
    AddPull(&pull, {.name = name, .elements = 3, .timeout_ms = 1000});
  service_->OnMessage(PeerId{1}, std::move(pull));
  size_t items = 0;
  while (items < 4) {
    Sent sent = transport_.Next();
    ASSERT_GT(sent.message.header.pull_reply().items_size(), 0);
    items += sent.message.header.pull_reply().items_size();
    const auto frame = BuildFrame(std::move(sent.message), kDefaultLimits);
    EXPECT_TRUE(frame.ok()) << frame.status();
  }
}

// Runs several rounds of two workers, on keys in partitions of different sizes, with shuffled
// pushes. Returns the final weights.
class Bits : public ServerServiceTest {
 protected:
  static constexpr size_t kElements = 10000;

  std::vector<float> TrainTo(uint64_t rounds, size_t shard_threads, size_t partition_elements,
                             uint64_t seed) {
    Start(2, shard_threads);
    const uint32_t partitions =
        static_cast<uint32_t>((kElements + partition_elements - 1) / partition_elements);
    Message init = From(0);
    ForEachPart(RandomValues(kElements, 1), partition_elements,
                [&](uint32_t index, size_t offset, const std::vector<float>& part) {
                  AddInit(&init, {.partition = index,
                                  .partitions = partitions,
                                  .offset = offset,
                                  .values = part,
                                  .total = kElements,
                                  .ticket = index});
                });
    service_->OnMessage(PeerId{10}, std::move(init));
    wire::OptimizerSpec spec = SgdSpec(0.1, 0.9);
    spec.set_average(true);
    service_->OnMessage(PeerId{10}, Optimizer(spec));
    for (uint64_t round = 1; round <= rounds; ++round) {
      for (Message& push : Pushes(round, partition_elements, seed)) {
        service_->OnMessage(PeerId{10}, std::move(push));
      }
    }
    Message pull = From(0);
    ForEachPart(std::vector<float>(kElements), partition_elements,
                [&](uint32_t index, size_t, const std::vector<float>& part) {
                  AddPull(&pull, {.partition = index,
                                  .min_version = rounds,
                                  .elements = part.size(),
                                  .timeout_ms = 10000});
                });
    service_->OnMessage(PeerId{10}, std::move(pull));
    return Collect(partitions, partition_elements);
  }

  template <typename Function>
  static void ForEachPart(const std::vector<float>& values, size_t partition_elements,
                          const Function& function) {
    uint32_t index = 0;
    for (size_t first = 0; first < values.size(); first += partition_elements, ++index) {
      const size_t last = std::min(values.size(), first + partition_elements);
      function(index, first, std::vector<float>(values.begin() + first, values.begin() + last));
    }
  }

  // Returns one message per partition and worker, each twice, in an order that `seed` decides.
  static std::vector<Message> Pushes(uint64_t round, size_t partition_elements, uint64_t seed) {
    std::vector<Message> messages;
    for (const uint32_t worker : {0u, 1u}) {
      ForEachPart(RandomValues(kElements, 100 * round + worker), partition_elements,
                  [&](uint32_t index, size_t, const std::vector<float>& part) {
                    for (int copy = 0; copy < 2; ++copy) {
                      messages.push_back(From(worker));
                      AddPush(
                          &messages.back(),
                          {.partition = index, .round = round, .values = part, .ticket = round});
                    }
                  });
    }
    std::shuffle(messages.begin(), messages.end(), std::mt19937_64(seed * 1000 + round));
    return messages;
  }

  std::vector<float> Collect(uint32_t partitions, size_t partition_elements) {
    std::vector<float> weights(kElements);
    for (uint32_t got = 0; got < partitions;) {
      const Sent sent = transport_.Next();
      const wire::Header& header = sent.message.header;
      EXPECT_NE(header.body_case(), wire::Header::BODY_NOT_SET) << "nothing came";
      if (header.body_case() == wire::Header::BODY_NOT_SET) return {};
      for (int i = 0; i < header.push_reply().items_size(); ++i) {
        EXPECT_TRUE(PushStatus(sent, i).ok()) << PushStatus(sent, i);
      }
      for (int i = 0; i < header.pull_reply().items_size(); ++i, ++got) {
        const wire::PullReplyItem& item = header.pull_reply().items(i);
        EXPECT_EQ(item.status().code(), 0) << item.status().message();
        const std::vector<float> part = Floats(sent.message.payloads.at(i));
        std::copy(part.begin(), part.end(),
                  weights.begin() + item.id().partition() * partition_elements);
      }
    }
    return weights;
  }
};

TEST_F(Bits, AreTheSameForAnyShardThreadsPartitionSizeAndOrder) {
  const std::vector<float> reference = TrainTo(5, 1, kElements, 0);
  ASSERT_THAT(reference, SizeIs(kElements));
  uint64_t seed = 1;
  for (const size_t shard_threads : {1, 2}) {
    for (const size_t partition_elements : {size_t{5000}, size_t{4096}, size_t{700}}) {
      EXPECT_EQ(TrainTo(5, shard_threads, partition_elements, seed++), reference)
          << shard_threads << " threads, partitions of " << partition_elements;
    }
  }
}

TEST_F(ServerServiceTest, OnlyWorkerZeroInitialisesAndSetsTheOptimizer) {
  Start(2, 1);
  Message init = From(1);
  AddInit(&init, {.values = {1}});
  const Sent refused = Ask(std::move(init));
  ASSERT_EQ(refused.message.header.init_reply().items_size(), 1);
  EXPECT_EQ(FromStatusProto(refused.message.header.init_reply().items(0).status()).code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(AckStatus(Ask(Optimizer(SgdSpec(1), 1))).code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(ServerServiceTest, InitIsIdempotentButNotWithAnotherValue) {
  Start(1, 2);
  InitKey("w", {1, 2});
  InitKey("w", {1, 2});
  Message other = From(0);
  AddInit(&other, {.values = {1, 3}});
  const Sent sent = Ask(std::move(other));
  const absl::Status status = FromStatusProto(sent.message.header.init_reply().items(0).status());
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("s:w"));
}

TEST_F(ServerServiceTest, OptimizerIsRefusedByFieldAndMode) {
  Start(1, 2);
  EXPECT_EQ(AckStatus(Ask(Optimizer(SgdSpec(-1)))).code(), absl::StatusCode::kInvalidArgument);
  InitKey("w", {1});
  Message async = Optimizer(SgdSpec(1));
  async.header.mutable_set_optimizer()->set_mode(wire::DIST_ASYNC);
  EXPECT_EQ(AckStatus(Ask(std::move(async))).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(AckStatus(Ask(Optimizer(SgdSpec(1)))).ok());
  EXPECT_TRUE(AckStatus(Ask(Optimizer(SgdSpec(1)))).ok());
  Message push = From(0);
  AddPush(&push, {.values = {1}});
  ASSERT_TRUE(PushStatus(Ask(std::move(push))).ok());
  EXPECT_TRUE(AckStatus(Ask(Optimizer(SgdSpec(0.5)))).ok());
  wire::OptimizerSpec test;
  test.set_kind(wire::OptimizerSpec::TEST);
  EXPECT_TRUE(
      AckStatus(Ask(Optimizer(test))).ok());  // the kind may change though a round has begun
}

TEST_F(ServerServiceTest, AsyncStoreNeedsAnOptimizer) {
  Start(1, 1);
  Message none = Optimizer({});
  none.header.mutable_set_optimizer()->set_mode(wire::DIST_ASYNC);
  EXPECT_EQ(AckStatus(Ask(std::move(none))).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ServerServiceTest, PullBeforeInitIsAnsweredByInit) {
  Start(2, 2);
  Message pull = From(1);
  AddPull(&pull, {.elements = 2, .timeout_ms = 10000, .ticket = 3});
  service_->OnMessage(PeerId{11}, std::move(pull));
  Message init = From(0);
  AddInit(&init, {.values = {8, 9}});
  service_->OnMessage(PeerId{10}, std::move(init));
  bool pulled = false;
  for (int i = 0; i < 2; ++i) {
    const Sent sent = transport_.Next();
    if (!sent.message.header.has_pull_reply()) continue;
    pulled = true;
    EXPECT_EQ(sent.to, PeerId{11});
    EXPECT_THAT(Floats(sent.message.payloads.at(0)), ElementsAre(8, 9));
  }
  EXPECT_TRUE(pulled);
}

TEST_F(ServerServiceTest, PullsEndAtTheirDeadline) {
  Start(2, 1);
  InitKey("w", {1});
  Message late = From(0);
  AddPull(&late, {.min_version = 1});
  EXPECT_EQ(PullStatus(Ask(std::move(late))).code(), absl::StatusCode::kDeadlineExceeded);
  Message unknown = From(0);
  AddPull(&unknown, {.name = "nobody", .timeout_ms = 1});
  EXPECT_EQ(PullStatus(Ask(std::move(unknown))).code(), absl::StatusCode::kNotFound);
  Message ahead = From(0);
  AddPull(&ahead, {.name = "nobody else", .min_version = 1, .timeout_ms = ~uint64_t{0}});
  EXPECT_EQ(PullStatus(Ask(std::move(ahead))).code(), absl::StatusCode::kNotFound);
}

TEST_F(ServerServiceTest, ControlMessagesWithoutRoomAreAnsweredSo) {
  ServerOptions options;
  options.job_id = "job";
  options.num_workers = 2;
  options.shard_threads = 2;
  options.shard.max_controls = 0;
  Start(options);
  Message leave = From(1, 7);
  leave.header.mutable_leave()->set_from_round(1);
  const Sent left = Ask(std::move(leave));
  EXPECT_EQ(AckStatus(left).code(), absl::StatusCode::kResourceExhausted) << AckStatus(left);
  EXPECT_EQ(left.message.header.request_id(), 7u);
  const absl::Status optimizer = AckStatus(Ask(Optimizer(SgdSpec(1))));
  EXPECT_EQ(optimizer.code(), absl::StatusCode::kResourceExhausted) << optimizer;
  EXPECT_TRUE(transport_.Drained()) << "one answer each, whatever the number of shards";
}

TEST_F(ServerServiceTest, LeaveIsAcknowledgedAndCompletesRounds) {
  Start(2, 2);
  InitKey("w", {0});
  Message push = From(0);
  AddPush(&push, {.values = {7}});
  ASSERT_TRUE(PushStatus(Ask(std::move(push))).ok());
  for (int repeat = 0; repeat < 2; ++repeat) {
    Message leave = From(1);
    leave.header.mutable_leave()->set_from_round(1);
    EXPECT_TRUE(AckStatus(Ask(std::move(leave))).ok());
  }
  Message pull = From(1);
  AddPull(&pull, {.min_version = 1, .timeout_ms = 10000});
  const Sent sent = Ask(std::move(pull));
  EXPECT_THAT(Floats(sent.message.payloads.at(0)), ElementsAre(7));
}

}  // namespace
}  // namespace slimps
