// SPDX-License-Identifier: Apache-2.0
#include "worker/capi/pushes_under_way.h"

#include <gtest/gtest.h>

namespace slimps {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(PushesUnderWay, TheFirstPushOfEachKeyHasRoom) {
  PushesUnderWay pushes;
  for (KeyId key = 0; key < 8; ++key) EXPECT_FALSE(pushes.Add(key, 128 * kMiB));
  EXPECT_TRUE(pushes.Add(8, 1)) << "1 GiB waits for the network";
}

TEST(PushesUnderWay, LaterPushesShareTheirRoom) {
  PushesUnderWay pushes;
  EXPECT_FALSE(pushes.Add(1, 32 * kMiB));
  EXPECT_FALSE(pushes.Add(1, 32 * kMiB));
  EXPECT_TRUE(pushes.Add(1, 1));
  EXPECT_TRUE(pushes.Add(2, 1)) << "also the first push of another key";
}

TEST(PushesUnderWay, AcknowledgedBytesLeaveRoom) {
  PushesUnderWay pushes;
  pushes.Add(1, 40 * kMiB);
  const PushesUnderWay::Mark early = pushes.MarkOf(1);
  pushes.Add(1, 20 * kMiB);
  EXPECT_EQ(pushes.MarkOf(1).bytes, 60 * kMiB);
  pushes.Acknowledged({early, pushes.MarkOf(7)});
  EXPECT_EQ(pushes.MarkOf(1).bytes, 20 * kMiB) << "the later push is still under way";
  EXPECT_FALSE(pushes.Add(1, 44 * kMiB));
  EXPECT_TRUE(pushes.Add(1, 1));
  pushes.Acknowledged({{1, 1000 * kMiB}});
  EXPECT_EQ(pushes.MarkOf(1).bytes, 0u);
  EXPECT_FALSE(pushes.Add(1, 100 * kMiB));
  pushes.AllAcknowledged();
  EXPECT_EQ(pushes.MarkOf(1).bytes, 0u);
  EXPECT_FALSE(pushes.Add(1, 100 * kMiB));
}

}  // namespace
}  // namespace slimps
