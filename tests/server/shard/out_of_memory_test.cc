// SPDX-License-Identifier: Apache-2.0
// Memory that runs out at a server. If a peer or a tensor chose the size, the server answers with
// an error. Otherwise the process ends and says what the memory was for.
#include "proto/base/out_of_memory.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "server/shard/shard.h"
#include "tests/proto/base/failing_allocations.h"
#include "tests/server/round/server_test_util.h"
#include "tests/server/shard/shard_state_fixture.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

using ServerOutOfMemory = ShardStateTest;

TEST_F(ServerOutOfMemory, WeightsThatDoNotFitAreRefusedAndTheNextAreKept) {
  InitWork huge = MakeInit("huge", {});
  huge.spec.elements = size_t{1} << 44;  // more than an address space
  huge.value = {.format = PayloadFormat::kAbsent};
  ShardItems items{.origin = From(0)};
  items.inits.push_back(std::move(huge));
  items.inits.push_back(MakeInit("w", {1, 2}));
  state_.HandleItems(std::move(items));
  const std::vector<Reply> replies = state_.TakeReplies();
  ASSERT_EQ(replies.size(), 1u);
  const auto& answers = replies[0].message.header.init_reply().items();
  ASSERT_EQ(answers.size(), 2);
  const absl::Status refused = FromStatusProto(answers[0].status());
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("weights of key s:huge: out of memory for 70368744177664 bytes"));
  EXPECT_TRUE(FromStatusProto(answers[1].status()).ok());
}

// Runs a shard on its own thread, where the first allocation of a round fails.
void ApplyARoundWhereAnAllocationFails() {
  EndWhereMemoryRunsOut();
  RealClock clock;
  Shard shard({}, std::make_unique<ShardState>(MakeOptimizer({}), &clock), &clock,
              [](const Reply&) {});
  constexpr size_t kElements = 2;
  const std::vector<float> values(kElements);
  ShardItems items{.origin = {.peer = PeerId{1}, .worker = 0, .request_id = 1}};
  InitWork& init = items.inits.emplace_back();
  init.id = MakeId("w", 0, 1);
  init.spec.key = Key("w").id();
  init.spec.name = "s:w";
  init.spec.elements = kElements;
  init.spec.num_workers = 1;
  init.value = Raw(values);
  Message message;
  PushWork& push = items.pushes.emplace_back();
  FillPush(&message, &push.item, {.values = values, .ticket = 2});
  push.payload = message.payloads[0];
  shard.PostOwnControl([&items](ShardState& state) {
    state.HandleItems(std::move(items));
    FailAllocation(0);
    state.ApplyOne();
  });
  shard.Stop();
}

TEST(ServerOutOfMemoryDeathTest, ARoundThatDoesNotFitEndsTheProcessAndNamesTheKey) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ApplyARoundWhereAnAllocationFails(), ::testing::ExitedWithCode(1),
              "^out_of_memory_test: a round of key s:w: out of memory\n$");
}

}  // namespace
}  // namespace slimps
