// SPDX-License-Identifier: Apache-2.0
// The older of two snapshots says what is durable.
#include "server/shard/durable_rounds.h"

#include "gtest/gtest.h"

namespace slimps {
namespace {

TEST(DurableRounds, TheOlderOfTwoSnapshotsCounts) {
  DurableRounds durable;
  EXPECT_EQ(durable.Of(0), 0u);
  durable.Copied({3, 0});
  EXPECT_EQ(durable.Of(0), 0u);  // not on the disk yet
  durable.Written();
  EXPECT_EQ(durable.Of(0), 0u);  // one alone may be damaged
  durable.Copied({5, 1});
  durable.Written();
  EXPECT_EQ(durable.Of(0), 4u);
  EXPECT_EQ(durable.Of(1), 1u);  // the partition itself
  EXPECT_EQ(durable.Of(2), 0u);  // there is no such worker
}

TEST(DurableRounds, AnImageOfASnapshotThatFailedDoesNotCount) {
  DurableRounds durable;
  durable.Copied({1});
  durable.Copied({2});  // the next try
  durable.Written();
  durable.Copied({3});
  durable.Written();
  EXPECT_EQ(durable.Of(0), 3u);
}

TEST(DurableRounds, ASnapshotWithoutThePartitionDoesNotCount) {
  DurableRounds durable;
  durable.Written();
  durable.Copied({1});
  durable.Written();
  EXPECT_EQ(durable.Of(0), 0u);
  durable.Copied({2});
  durable.Written();
  EXPECT_EQ(durable.Of(0), 2u);
}

TEST(DurableRounds, TheOneRestoredIsTheNewer) {
  DurableRounds durable;
  durable.Restored({7});
  EXPECT_EQ(durable.Of(0), 0u);
  durable.Copied({9});
  durable.Written();
  EXPECT_EQ(durable.Of(0), 8u);
}

}  // namespace
}  // namespace slimps
