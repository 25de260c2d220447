// SPDX-License-Identifier: Apache-2.0
#include "server/service/parked_messages.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/buffer.h"
#include "proto/base/clock.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Code = absl::StatusCode;

constexpr SteadyTime kBegin = SteadyTime();

EarlyMessage Early(uint64_t request, size_t payload_bytes = 0, SteadyTime came = kBegin,
                   uint64_t peer = 1) {
  EarlyMessage early{.from = PeerId{peer}, .message = {}, .came = came};
  early.message.header.set_request_id(request);
  if (payload_bytes > 0) {
    early.message.payloads.push_back(Payload::Adopt(AlignedBuffer(payload_bytes), payload_bytes));
  }
  return early;
}

TEST(ParkedMessages, AreTakenInTheOrderInWhichTheyCame) {
  ParkedMessages parked;
  for (uint64_t request = 1; request <= 3; ++request) {
    EXPECT_TRUE(parked.Add(Early(request)).ok());
  }
  const auto all = parked.TakeAll();
  ASSERT_THAT(all, SizeIs(3));
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(all[i].message.header.request_id(), i + 1);
  EXPECT_THAT(parked.TakeAll(), IsEmpty());
}

TEST(ParkedMessages, AreNoMoreThanThereIsRoomFor) {
  ParkedMessages parked;
  for (size_t i = 0; i < ParkedMessages::kMaxMessages; ++i) {
    EXPECT_TRUE(parked.Add(Early(i, 0, kBegin, i)).ok());
  }
  EXPECT_EQ(parked.Add(Early(0, 0, kBegin, 9999)).code(), Code::kResourceExhausted);
  EXPECT_THAT(parked.TakeAll(), SizeIs(ParkedMessages::kMaxMessages));
}

TEST(ParkedMessages, OfOnePeerHave64KiB) {
  ParkedMessages parked;
  constexpr size_t kThird = ParkedMessages::kMaxBytesOfPeer / 3;
  for (int repeat = 0; repeat < 2; ++repeat) {
    EXPECT_TRUE(parked.Add(Early(1, kThird)).ok());
    EXPECT_TRUE(parked.Add(Early(2, kThird)).ok());
    EarlyMessage large = Early(3, kThird);
    const absl::Status refused = parked.Add(std::move(large));
    EXPECT_EQ(refused.code(), Code::kResourceExhausted);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("at most 256 of 16777216 may, 65536 of"));
    // NOLINTNEXTLINE(bugprone-use-after-move): what is refused is its owner's still
    EXPECT_THAT(large.message.payloads, SizeIs(1));
    EXPECT_TRUE(parked.Add(Early(4, kThird, kBegin, 2)).ok()) << "another peer has its own";
    // A message that leaves frees its room, whether it was dropped or taken.
    if (repeat == 0) {
      EXPECT_EQ(parked.DropLate(kBegin + ParkedMessages::kLongest), 3u);
    }
  }
  EXPECT_THAT(parked.TakeAll(), SizeIs(3));
}

// An empty item has two bytes on the wire, but about a hundred in memory.
TEST(ParkedMessages, AreCountedAsTheyLieInMemory) {
  ParkedMessages parked;
  EarlyMessage early = Early(1);
  for (int i = 0; i < 1000; ++i) early.message.header.mutable_pull()->add_items();
  ASSERT_LT(early.message.header.ByteSizeLong(), size_t{4096});
  EXPECT_EQ(parked.Add(std::move(early)).code(), Code::kResourceExhausted);
}

TEST(ParkedMessages, OfAllPeersHave16MiB) {
  ParkedMessages parked;
  constexpr size_t kMax = ParkedMessages::kMaxBytesOfPeer - 4096;
  uint64_t peer = 0;
  while (parked.Add(Early(1, kMax, kBegin, peer)).ok()) ++peer;
  EXPECT_LE(peer * kMax, ParkedMessages::kMaxBytes);
  EXPECT_GE(peer, 255u);
}

TEST(ParkedMessages, WaitForSoLong) {
  ParkedMessages parked;
  EXPECT_TRUE(parked.Add(Early(1, 0, kBegin)).ok());
  EXPECT_TRUE(parked.Add(Early(2, 0, kBegin + absl::Seconds(1))).ok());
  const SteadyTime end = kBegin + ParkedMessages::kLongest;
  EXPECT_EQ(parked.DropLate(end - absl::Nanoseconds(1)), 0u);
  EXPECT_EQ(parked.DropLate(end), 1u);
  const auto left = parked.TakeAll();
  ASSERT_THAT(left, SizeIs(1));
  EXPECT_EQ(left[0].message.header.request_id(), 2u);
}

}  // namespace
}  // namespace slimps
