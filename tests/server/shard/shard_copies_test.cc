// SPDX-License-Identifier: Apache-2.0
// Answers that are copies: rows, and the optimizer's state. A peer could ask for them without end.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "server/shard/shard.h"
#include "tests/server/shard/shard_state_fixture.h"

namespace slimps {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Code = absl::StatusCode;

constexpr size_t kElements = 10;
constexpr size_t kCopyBytes = kElements * sizeof(float);

enum class What { kState, kRows, kWeights };

class ShardCopiesTest : public ShardStateTest {
 protected:
  static std::unique_ptr<ShardState> MakeState(const Clock* clock, size_t max_copied_bytes) {
    auto state =
        std::make_unique<ShardState>(MakeOptimizer(SgdSpec(1, 0.5)), clock, max_copied_bytes);
    ShardItems items{.origin = From(0)};
    items.inits.push_back(MakeInit("w", std::vector<float>(kElements)));
    items.inits[0].spec.row_elements = kElements;
    // State that was never put nor stepped is zero, and is not copied.
    InitWork& put = items.inits.emplace_back(MakeInit("w", std::vector<float>(kElements, 1)));
    put.state.emplace().set_kind(wire::OptimizerSpec::SGD);
    put.state->set_tensors(1);
    put.state->set_tensor(1);
    put.state->set_load(1);
    state->HandleItems(std::move(items));
    (void)state->TakeReplies();
    return state;
  }

  // Returns the items of one message: `times` equal pulls.
  static ShardItems Ask(What what, size_t times, uint32_t worker = 0) {
    ShardItems items{.origin = From(worker)};
    for (size_t i = 0; i < times; ++i) {
      PullWork& pull = items.pulls.emplace_back();
      FillPull(&pull.item, {.elements = kElements, .ticket = i + 1});
      if (what == What::kState) pull.item.set_state_tensor(1);
      if (what == What::kRows) {
        pull.item.set_rows_only(true);
        pull.item.set_rows(std::string(sizeof(uint32_t), '\0'));  // row 0, the only row
      }
    }
    return items;
  }
  static std::vector<absl::Status> Statuses(const std::vector<Reply>& replies) {
    std::vector<absl::Status> statuses;
    for (const Reply& reply : replies) {
      for (const auto& item : reply.message.header.pull_reply().items()) {
        statuses.push_back(FromStatusProto(item.status()));
        EXPECT_EQ(item.payload_bytes(), statuses.back().ok() ? kCopyBytes : 0);
      }
    }
    return statuses;
  }
};

TEST_F(ShardCopiesTest, OneMessageIsGivenSoManyAndIsToAskAgainForTheRest) {
  for (const What what : {What::kState, What::kRows}) {
    const auto state = MakeState(&clock_, 4 * kCopyBytes);
    for (int repeat = 0; repeat < 2; ++repeat) {
      state->HandleItems(Ask(what, 6));
      const std::vector<absl::Status> statuses = Statuses(state->TakeReplies());
      ASSERT_THAT(statuses, SizeIs(6));
      for (size_t i = 0; i < 6; ++i) {
        EXPECT_EQ(statuses[i].code(), i < 4 ? Code::kOk : Code::kResourceExhausted) << i;
      }
      EXPECT_THAT(statuses[5].ToString(),
                  HasSubstr("key s:w partition 0: a copy of 10 elements, while copies of 40 of at "
                            "most 40 wait to be sent"));
    }
  }
}

TEST_F(ShardCopiesTest, OneThatIsLargerThanTheBoundIsGivenWhereNoOtherWaits) {
  const auto state = MakeState(&clock_, kCopyBytes - 1);
  for (int repeat = 0; repeat < 2; ++repeat) {
    state->HandleItems(Ask(What::kState, 2));
    const std::vector<absl::Status> statuses = Statuses(state->TakeReplies());
    ASSERT_THAT(statuses, SizeIs(2));
    EXPECT_EQ(statuses[0], absl::OkStatus());
    EXPECT_EQ(statuses[1].code(), Code::kResourceExhausted);
  }
}

TEST_F(ShardCopiesTest, WhatIsPutOffIsGivenBeforeItsVersionGoes) {
  const auto state = MakeState(&clock_, kCopyBytes);
  for (uint32_t worker = 0; worker < 2; ++worker) {
    ShardItems rows = Ask(What::kRows, 1, worker);
    rows.pulls[0].item.set_min_version(1);
    rows.pulls[0].deadline = SteadyTime::InfiniteFuture();
    state->HandleItems(std::move(rows));
  }
  for (uint64_t round = 1; round <= 3; ++round) {
    for (uint32_t worker = 0; worker < 2; ++worker) {
      ShardItems push{.origin = From(worker)};
      push.pushes.push_back(MakePush("w", round, std::vector<float>(kElements, 1)));
      state->HandleItems(std::move(push));
    }
    while (state->HasCompleteRound()) state->ApplyOne();
  }
  size_t answered = 0;
  do {
    for (const absl::Status& status : Statuses(state->TakeReplies())) {
      EXPECT_EQ(status, absl::OkStatus());
      ++answered;
    }
  } while (state->AnswerPutOff());
  EXPECT_EQ(answered, 2);
}

TEST_F(ShardCopiesTest, WhatIsLentHasNoSuchBound) {
  const auto state = MakeState(&clock_, 1);
  state->HandleItems(Ask(What::kWeights, 20));
  const std::vector<absl::Status> statuses = Statuses(state->TakeReplies());
  EXPECT_THAT(statuses, SizeIs(20));
  EXPECT_THAT(statuses, Each(absl::OkStatus()));
}

// Each worker asks at once for at most half of the bound. No worker is refused because of what the
// others asked for meanwhile.
TEST_F(ShardCopiesTest, ManyWorkersThatAskForTheirPartAreAllAnswered) {
  constexpr uint32_t kWorkers = 9;
  constexpr absl::Duration kLong = absl::Seconds(30);  // only a failing test waits this long
  RealClock clock;
  Mutex mutex;
  CondVar changed;
  bool asked = false;
  std::vector<Reply> replies;
  Shard shard({}, MakeState(&clock, 4 * kCopyBytes), &clock, [&](Reply reply) {
    MutexLock lock(&mutex);
    replies.push_back(std::move(reply));
  });
  shard.PostOwnControl([&](ShardState&) {
    MutexLock lock(&mutex);
    EXPECT_TRUE(changed.Await(&mutex, kLong, [&] { return asked; }));
  });
  for (uint32_t worker = 0; worker < kWorkers; ++worker) {
    ShardItems items = Ask(What::kState, 2, worker);
    EXPECT_TRUE(shard.Post(&items).ok());
  }
  {
    MutexLock lock(&mutex);
    asked = true;
    changed.NotifyAll();
  }
  shard.Stop();
  const std::vector<absl::Status> statuses = Statuses(replies);
  EXPECT_THAT(statuses, SizeIs(2 * kWorkers));
  EXPECT_THAT(statuses, Each(absl::OkStatus()));
}

// One round makes all pulls ready. Their answers together exceed the bound.
TEST_F(ShardCopiesTest, ManyThatWaitForARoundAreAllAnswered) {
  RealClock clock;
  Mutex mutex;
  std::vector<Reply> replies;
  Shard shard({}, MakeState(&clock, 2 * kCopyBytes), &clock, [&](Reply reply) {
    MutexLock lock(&mutex);
    if (reply.message.header.has_pull_reply()) replies.push_back(std::move(reply));
  });
  for (const uint32_t worker : {0u, 1u}) {
    ShardItems items = Ask(What::kRows, 4, worker);
    for (PullWork& pull : items.pulls) {
      pull.item.set_min_version(1);
      pull.deadline = SteadyTime::InfiniteFuture();
    }
    EXPECT_TRUE(shard.Post(&items).ok());
  }
  for (const uint32_t worker : {0u, 1u}) {
    ShardItems items{.origin = From(worker)};
    items.pushes.push_back(MakePush("w", 1, std::vector<float>(kElements, 1)));
    EXPECT_TRUE(shard.Post(&items).ok());
  }
  shard.Stop();
  const std::vector<absl::Status> statuses = Statuses(replies);
  EXPECT_THAT(statuses, SizeIs(8));
  EXPECT_THAT(statuses, Each(absl::OkStatus()));
  for (const Reply& reply : replies) {
    EXPECT_LE(reply.message.header.pull_reply().items_size(), 2) << "more than may be copied";
  }
}

}  // namespace
}  // namespace slimps
