// Memory that runs out around pushes: a round that was counted leaves, or the store hears that it cannot.
#include <optional>
#include <utility>

#include "gtest/gtest.h"
#include "tests/proto/base/failing_allocations.h"
#include "tests/worker/push_pipeline_fixture.h"
#include "worker/unacknowledged_pushes.h"

namespace slimps {
namespace {

// On the thread that reads from the network: whom it forgot would wait for ever.
TEST(UnacknowledgedPushesOutOfMemory, WhoWaitedIsTakenWithoutAny) {
  UnacknowledgedPushes pushes;
  int told = 0;
  const uint64_t turn = pushes.Add(1, 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(pushes.Await(1, [&told](const absl::Status&) { ++told; }));
  }
  UnacknowledgedPushes::Waiters waiters;
  EXPECT_FALSE(RunsOut(0, [&] { waiters = pushes.Take(1, turn, 1); }));
  UnacknowledgedPushes::Tell(waiters, absl::OkStatus());
  EXPECT_EQ(told, 3);
  (void)pushes.Add(1, 1);
  EXPECT_TRUE(pushes.Await(1, [&told](const absl::Status&) { ++told; }));
  EXPECT_FALSE(RunsOut(0, [&] { waiters = pushes.TakeWaiters(); }));
  UnacknowledgedPushes::Tell(waiters, absl::OkStatus());
  EXPECT_EQ(told, 4);
}

using PushOutOfMemory = PushPipelineTest;

TEST_F(PushOutOfMemory, APushPreparedByItsCallerIsAnErrorAndHoldsNobodyUp) {
  Make();
  int refused = 0;
  for (int n = 0;; ++n) {
    SCOPED_TRACE(n);
    const PushJob job = Job(Tensor("a key whose name takes memory of its own", 4));
    absl::StatusOr<std::optional<OutgoingItem>> item = absl::UnknownError("thrown");
    const bool ran_out = RunsOut(n, [&] { item = pipeline_->PrepareNow(job); });
    if (item.ok() && item->has_value()) (**item).done({});
    refused += absl::IsResourceExhausted(item.status());
    if (!ran_out) {
      EXPECT_TRUE(item.ok() && item->has_value()) << "the encoder is free again";
      break;
    }
  }
  EXPECT_GT(refused, 1);
}

TEST_F(PushOutOfMemory, ThePushThreadTellsTheStore) {
  Make();
  const TensorPlan* tensor = Tensor("w", kLargeElements);
  // So many that the transport's list has room for another.
  for (uint64_t round = 1; round <= 5; ++round) {
    ASSERT_TRUE(pipeline_->Submit(Job(tensor, 0, round)).ok());
    ASSERT_TRUE(transport_.AwaitSent(round));
  }
  transport_.before_send = [] { FailAllocation(0); };  // on the push thread
  ASSERT_TRUE(pipeline_->Submit(Job(tensor, 0, 6)).ok());
  ASSERT_TRUE(pipeline_->Submit(Job(tensor, 0, 7)).ok());
  EXPECT_EQ(AwaitError(), absl::ResourceExhaustedError("push of key s:w: out of memory"));
  EXPECT_EQ(transport_.sent(), 6u);
}

}  // namespace
}  // namespace slimps
