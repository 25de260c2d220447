// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/link/delaying_switch.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kHold = absl::Milliseconds(10);
constexpr size_t kBytes = 64;
constexpr uint8_t kEverybody = 0xff;
constexpr SteadyTime kStart;

SteadyTime At(int ms) { return kStart + absl::Milliseconds(ms); }

// A frame between two addresses that end so.
std::vector<std::byte> Frame(uint8_t destination, uint8_t source, size_t bytes = kBytes) {
  std::vector<std::byte> frame(bytes);
  for (size_t i = 0; i < 6 && destination == kEverybody; ++i) {
    frame[kEthernetOffset + i] = std::byte{kEverybody};
  }
  frame[kEthernetOffset + 5] = std::byte{destination};
  frame[kEthernetOffset + 11] = std::byte{source};
  return frame;
}

// Takes what is due and returns the ports.
std::vector<size_t> Due(DelayingSwitch& between, SteadyTime now) {
  std::vector<size_t> ports;
  while (const auto out = between.TakeDue(now)) ports.push_back(out->port);
  return ports;
}

TEST(DelayingSwitch, AFrameIsHeldAndLeavesAsItCame) {
  DelayingSwitch between(2, kHold, 1000);
  EXPECT_EQ(between.due(), SteadyTime::InfiniteFuture());
  const std::vector<std::byte> frame = Frame(2, 1);
  between.Receive(0, frame, At(3));
  EXPECT_EQ(between.due(), At(13));
  EXPECT_FALSE(between.TakeDue(At(13) - absl::Nanoseconds(1)).has_value());
  const auto out = between.TakeDue(At(13));
  ASSERT_TRUE(out.has_value());
  EXPECT_EQ(out->port, 1u);
  EXPECT_EQ(out->frame, frame);
}

TEST(DelayingSwitch, FramesLeaveInTheOrderInWhichTheyCame) {
  DelayingSwitch between(3, kHold, 1000);
  for (const size_t port : {2, 0, 1}) {
    between.Receive(port, Frame(kEverybody, static_cast<uint8_t>(port)), kStart);
  }
  EXPECT_THAT(Due(between, At(9)), IsEmpty());
  EXPECT_THAT(Due(between, At(10)), ElementsAre(0, 1, 1, 2, 0, 2));
}

TEST(DelayingSwitch, APortIsLearntFromWhatCameIn) {
  DelayingSwitch between(3, kHold, 1000);
  between.Receive(2, Frame(9, 7), kStart);  // nobody knows 9
  between.Receive(0, Frame(7, 9), kStart);
  between.Receive(1, Frame(9, 8), kStart);
  EXPECT_THAT(Due(between, At(10)), ElementsAre(0, 1, 2, 0));
  between.Receive(1, Frame(7, 9), At(10));  // 9 has moved
  between.Receive(2, Frame(9, 7), At(10));
  between.Receive(1, Frame(9, 5), At(10));  // there already
  EXPECT_THAT(Due(between, At(20)), ElementsAre(2, 1));
}

TEST(DelayingSwitch, AFrameThatDoesNotFitIsLostAndCounted) {
  DelayingSwitch between(2, kHold, 2 * kBytes);
  for (int i = 0; i < 3; ++i) between.Receive(0, Frame(2, 1), At(i));
  EXPECT_EQ(between.lost(), 1u);
  EXPECT_THAT(Due(between, At(10)), ElementsAre(1));
  between.Receive(0, Frame(2, 1), At(10));  // there is room again
  between.Receive(0, Frame(2, 1, 2 * kBytes), At(10));
  EXPECT_EQ(between.lost(), 2u);
  EXPECT_THAT(Due(between, At(20)), ElementsAre(1, 1));
}

TEST(DelayingSwitch, AFrameThatIsTooShortIsLost) {
  DelayingSwitch between(2, kHold, 1000);
  for (const size_t bytes : {size_t{0}, kEthernetOffset, kEthernetOffset + 13}) {
    between.Receive(0, std::vector<std::byte>(bytes), kStart);
  }
  EXPECT_EQ(between.lost(), 3u);
  EXPECT_THAT(Due(between, At(10)), IsEmpty());
}

}  // namespace
}  // namespace slimps
