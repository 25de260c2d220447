// SPDX-License-Identifier: Apache-2.0
// Rounds that are clipped by the norm of several keys: what a shard answers and when it steps.
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status_proto.h"
#include "tests/server/shard/shard_state_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ShardNormsTest : public ShardStateTest {
 protected:
  void SetUp() override {
    ASSERT_TRUE(state_.SetOptimizer(MakeOptimizer(SgdSpec(1))).ok());
    Init("w", {0, 0});
  }
  void PushClipped(uint32_t worker, uint64_t round, const std::vector<float>& values) {
    ShardItems items{.origin = From(worker)};
    items.pushes.push_back(MakePush("w", round, values));
    items.pushes[0].item.set_clipped(true);
    state_.HandleItems(std::move(items));
    EXPECT_THAT(PushCodes(), ElementsAre(absl::StatusCode::kOk));
  }
  std::vector<absl::StatusCode> Scale(uint32_t worker, uint64_t round, double scale) {
    ShardItems items{.origin = From(worker)};
    PushWork push;
    *push.item.mutable_id() = MakeId("w", 0, 77);
    push.item.set_round(round);
    push.item.set_gradient_scale(scale);
    items.pushes.push_back(std::move(push));
    state_.HandleItems(std::move(items));
    return PushCodes();
  }
  void PullNorm(uint32_t worker, uint64_t round) {
    ShardItems items{.origin = From(worker)};
    PullWork pull;
    FillPull(&pull.item, {.min_version = round, .elements = 2, .ticket = 88});
    pull.item.set_norm(true);
    pull.deadline = clock_.Now() + absl::Seconds(5);
    items.pulls.push_back(std::move(pull));
    state_.HandleItems(std::move(items));
  }
  std::vector<wire::PullReplyItem> Answers() {
    std::vector<wire::PullReplyItem> items;
    for (const Reply& reply : state_.TakeReplies()) {
      for (const auto& item : reply.message.header.pull_reply().items()) items.push_back(item);
    }
    return items;
  }
};

TEST_F(ShardNormsTest, ANormIsAnsweredBeforeTheStepAndTheWeightsAfterTheScale) {
  PullNorm(0, 1);
  Pull({.worker = 1, .min_version = 1, .elements = 2});
  PushClipped(0, 1, {3, 0});
  PushClipped(1, 1, {0, 4});
  ApplyAll();
  const std::vector<wire::PullReplyItem> norms = Answers();
  ASSERT_THAT(norms, SizeIs(1));
  EXPECT_EQ(norms[0].id().ticket(), 88u);
  EXPECT_EQ(norms[0].norm2(), 25);
  EXPECT_EQ(norms[0].format(), wire::ABSENT);
  EXPECT_FALSE(state_.HasCompleteRound());
  EXPECT_THAT(Scale(1, 1, 0.5), ElementsAre(absl::StatusCode::kOk));
  ApplyAll();
  const std::vector<Pulled> pulled = Pulls();
  ASSERT_THAT(pulled, SizeIs(1));
  EXPECT_THAT(pulled[0].values, ElementsAre(-1.5f, -2));
  EXPECT_THAT(Scale(0, 1, 0.5), ElementsAre(absl::StatusCode::kOk)) << "as the other worker said";
  EXPECT_THAT(Scale(0, 1, 0.25), ElementsAre(absl::StatusCode::kAlreadyExists));
}

TEST_F(ShardNormsTest, ANormThatIsNotFiniteIsNoNumberOnTheWire) {
  PushClipped(0, 1, {std::numeric_limits<float>::infinity(), 0});
  PushClipped(1, 1, {0, 0});
  ApplyAll();
  PullNorm(0, 1);
  const std::vector<wire::PullReplyItem> norms = Answers();
  ASSERT_THAT(norms, SizeIs(1));
  EXPECT_FALSE(norms[0].has_norm2());
  EXPECT_TRUE(FromStatusProto(norms[0].status()).ok());
}

TEST_F(ShardNormsTest, ANormThatWaitsInVainNamesWhomItWaitsFor) {
  PushClipped(0, 1, {1, 1});
  PullNorm(0, 1);
  EXPECT_THAT(Answers(), IsEmpty());
  clock_.Advance(absl::Seconds(6));
  state_.ExpirePulls();
  const std::vector<wire::PullReplyItem> late = Answers();
  ASSERT_THAT(late, SizeIs(1));
  EXPECT_THAT(late[0].status().message(), HasSubstr("round 1 lacks the push of worker 1"));
}

}  // namespace
}  // namespace slimps
