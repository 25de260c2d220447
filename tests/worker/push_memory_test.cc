// Memory that runs out around pushes.
#include <vector>

#include "gtest/gtest.h"
#include "tests/proto/base/failing_allocations.h"
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

}  // namespace
}  // namespace slimps
